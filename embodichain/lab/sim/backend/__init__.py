"""Physics engines behind one protocol, and the choice of one by its device."""

import importlib.util
import re
from typing import Any

import mujoco
import torch

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend
from embodichain.lab.sim.servos import has_servos
from embodichain.utils import ConfigError, install_extra


def has_warp() -> bool:
    """Return whether MuJoCo Warp is installed."""
    return importlib.util.find_spec("mujoco_warp") is not None


def parse_sim_device(sim_device: str | torch.device) -> tuple[bool, torch.device]:
    """Return whether a ``sim_device`` means MuJoCo Warp, and the device of its tensors; nothing is imported."""
    name = str(sim_device)
    match = re.fullmatch(r"auto|cpu|warp:cpu|cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(f"sim_device: must be 'auto', 'cpu', 'cuda:<number>' or 'warp:cpu', got '{name}'")
    if name in ("auto", "cpu"):
        return False, torch.device("cpu")
    device = torch.device("cpu" if name == "warp:cpu" else f"cuda:{match[1] or 0}")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(match[1] or 0) >= count:
            there = f"there are {count} (cuda:0 to cuda:{count - 1})" if count else "CUDA is not available here"
            raise ConfigError(f"sim_device: '{name}' cannot be used: {there}")
    if not has_warp():
        hint = f"{install_extra('gpu')}, or sim_device 'cpu'"
        raise ConfigError(f"sim_device: '{name}' needs the package mujoco_warp: {hint}")
    return True, device


def make_backend(
    model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, num_threads: int, sim_device: str | torch.device
) -> Backend:
    """Return the engine of ``SimulationManagerCfg.sim_device`` for a scene; 0 threads: one for each usable CPU."""
    is_warp, device = parse_sim_device(sim_device)
    if not is_warp:
        return MujocoBatchBackend(model, visual_model, num_envs, num_threads)
    if has_servos(model):
        raise ConfigError("drive_pros.servo and drive_pros.backlash need sim_device 'cpu': MuJoCo Warp does without")
    module = import_for_warp("embodichain.lab.sim.backend.mujoco_warp")
    backend: Backend = module.MujocoWarpBackend(model, visual_model, num_envs, device)
    return backend


def import_for_warp(name: str) -> Any:
    """Import a module that needs Warp, with Warp's own messages off; ModuleNotFoundError where it is not installed."""
    import warp  # noqa: PLC0415 (an extra)

    warp.config.log_level = warp.LOG_ERROR  # it prints its devices and every kernel it compiles
    return importlib.import_module(name)


def draw_without_shadows(model: Any) -> None:
    """Make an ``MjModel``'s images ten times as fast, before the first: shadows and smoothing take the most on CPUs."""
    if isinstance(model, mujoco.MjModel):
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
