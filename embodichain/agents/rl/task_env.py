"""Environments of a training: ours, with a scene, and other libraries', without one."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from gymnasium import spaces

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.vec_env import EvalEnv
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.sim.backend import has_warp, parse_sim_device
from embodichain.utils import ConfigError, collected, install_extra, logger
from embodichain.utils.device import resolve_device


class TaskEnv(EvalEnv, Protocol):
    """Environments of a training."""

    @property
    def single_observation_space(self) -> spaces.Dict:
        """The structured space of one environment."""

    @property
    def step_dt(self) -> float | None:
        """The time between two actions, s; None: not known."""

    @property
    def single_action_space(self) -> spaces.Box:
        """The actions of one environment, [A]."""

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Write files into a folder from now on, and into the allowed ones that the config names."""


def scene_cfg(cfg: TaskCfg) -> EmbodiedEnvCfg | None:
    """Return the config of environments of ours, or None."""
    return cfg if isinstance(cfg, EmbodiedEnvCfg) else None


def scene_env(env: object) -> EmbodiedEnv | None:
    """Return environments of ours, or None."""
    return env if isinstance(env, EmbodiedEnv) else None


def with_scene(cfg: TaskCfg, place: str) -> EmbodiedEnvCfg:
    """Return the config of environments of ours, for a tool that needs their scene.

    Args:
        place: the tool, for the message.

    Raises:
        ConfigError: the environments are another library's.
    """
    own = scene_cfg(cfg)
    if own is None:
        raise ConfigError(f"{place}: {_no_scene(cfg)}")
    return own


def scene_problems(trainer: TrainerCfg, algorithm: Any, cfg: TaskCfg) -> list[str]:
    """Return the errors of settings that need a scene, which another library's environments lack, a line each.

    Args:
        algorithm: algorithm's settings, or None if they are wrong.
    """
    needs_scene = {
        "trainer.viewer": trainer.viewer,
        "trainer.enable_rt": trainer.enable_rt,
        "trainer.sim_device": trainer.sim_device not in (None, "auto", "cpu"),
        "algorithm.cfg.demonstrations": getattr(algorithm, "demonstrations", None) is not None,
    }
    found = [f"{key}: {_no_scene(cfg)}" for key, is_set in needs_scene.items() if is_set]
    for kind, terms in vars(trainer.events).items():
        found += [
            f'trainer.events.{kind}.{name}: {_no_scene(cfg)}; it has no events, and "render_mode": "rgb_array" in '
            "its kwargs records videos of evaluations"
            for name in terms
        ]
    return found


def _no_scene(cfg: Any) -> str:
    return f"needs an environment with a scene of EmbodiChain's, and '{cfg.id}' is another library's"


def choose_sim_device(trainer: TrainerCfg, cfg: EmbodiedEnvCfg, problems: list[str]) -> str:
    """Return the device of the physics; errors are added to ``problems``."""
    place, name = "trainer.", trainer.sim_device
    if name is None:
        place, name = "env.sim_cfg.", str(cfg.sim_cfg.sim_device)
    if name == "auto":
        name = "cpu"
        with suppress(ConfigError):  # the learner's device, which is reported with the others
            name = str(resolve_device(trainer.device))
        if name != "cpu" and trainer.device == "auto" and not has_warp():
            logger.log_warning(
                f"the learner runs on {name}, the physics on the processor: for physics on the GPU, "
                f"{install_extra('gpu')}"
            )
            name = "cpu"
    if name.startswith("cuda") and trainer.device == "cpu" and not torch.cuda.is_available():
        logger.log_warning(f"{place}sim_device: '{name}' is not here: the physics runs on the processor, too")
        name = "cpu"
    with collected(problems, place):
        parse_sim_device(name)
    return name
