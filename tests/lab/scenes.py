"""Small scenes and environments for the tests. Shapes: N environments."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import ArticulationCfg, JointDrivePropertiesCfg, MarkerCfg, RigidObjectCfg, RobotCfg
from embodichain.lab.sim.model.terrain import TerrainCfg
from embodichain.utils import replace

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
"""A mesh in the format obj."""
HOME = [0.0, -1.57, 1.57, -1.57, -1.57, 0.0]
# Soft enough for every substep, so that no test of something else is warned about them.
ARM_DRIVES = JointDrivePropertiesCfg(
    stiffness={"shoulder.*": 4000.0, "elbow_joint": 2000.0, "wrist.*": 400.0},
    damping={"shoulder.*": 200.0, "elbow_joint": 100.0, "wrist.*": 20.0},
)
CART_DRIVES: dict[str, Any] = {
    "stiffness": {"slider_to_cart": 10.0, "cart_to_pole": 0.01},
    "damping": {"slider_to_cart": 1.0, "cart_to_pole": 0.001},
    "max_effort": {"slider_to_cart": 100.0, "cart_to_pole": 0.1},
}
CART: dict[str, Any] = {
    "uid": "Cart",
    "fpath": "cart_pole",
    "init_pos": [0.0, 0.0, 0.5],
    "init_qpos": [-0.2, 0.07],
    "drive_pros": CART_DRIVES,
    "control_parts": {"arm": ["slider_to_cart"], "hand": ["cart_to_pole"]},
}
BOX: dict[str, Any] = {
    "uid": "box",
    "shape": {"shape_type": "Cube", "size": [0.1, 0.1, 0.1]},
    "init_pos": [2.0, 0.0, 0.05],
    "attrs": {"static_friction": 0.5},
}
Entity = RigidObjectCfg | ArticulationCfg | MarkerCfg


def simulate(
    *entities: Entity, num_envs: int = 1, num_threads: int = 1, terrain: TerrainCfg | None = None, **cfg: Any
) -> SimulationManager:
    """Build a scene of these things, on a terrain or on level ground."""
    sim = SimulationManager(SimulationManagerCfg(num_envs=num_envs, num_threads=num_threads, **cfg))
    if terrain is not None:
        sim.add_terrain(terrain)
    for entity in entities:
        sim.add(entity)
    sim.build()
    return sim


def ur10(**changes: Any) -> RobotCfg:
    """Return the bare arm at home."""
    return replace(RobotCfg(uid="arm", fpath="ur10", init_qpos=HOME, drive_pros=ARM_DRIVES), **changes)


def cart_cfg(
    num_envs: int = 2,
    env: Mapping[str, Any] | None = None,
    rigid_object: Sequence[Mapping[str, Any]] = (),
    allowed_imports: Sequence[str] = (),
    **top: Any,
) -> EmbodiedEnvCfg:
    """Return the config of an environment with the cart-pole (2 joints, action: change of the cart's target)."""
    actions = {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}}
    data = {"robot": CART, "env": {"actions": actions} | dict(env or {}), "rigid_object": list(rigid_object)}
    return config_to_cfg(data | {"num_envs": num_envs} | top, allowed_imports=allowed_imports)


def env_of(data: Mapping[str, Any], num_envs: int, **changes: Any) -> EmbodiedEnv:
    """Build the registered environment of a config in the file's format."""
    cfg = replace(config_to_cfg(dict(data)), num_envs=num_envs, **changes)
    return build_env(data["id"], base_env_cfg=cfg)


def actions_for(env: EmbodiedEnv, steps: int, seed: int = 0) -> Tensor:
    """Return random actions, [steps, N, A], in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, env.num_envs, env.action_manager.total_action_dim, generator=generator) * 2 - 1


def state(env: EmbodiedEnv) -> Tensor:
    """Return a copy of the whole physical state, [N, nq + nv + nu]."""
    backend = env.sim.backend
    return torch.cat((backend.qpos, backend.qvel, backend.ctrl), dim=1).clone()


def solved_by_the_expert(env: EmbodiedEnv) -> Tensor:
    """Play an episode of each environment by the task's expert, and return which ended with success, [N] bool."""
    over, solved = torch.zeros(2, env.num_envs, dtype=torch.bool)
    while not over.all():
        action = env.expert_action()  # type: ignore[attr-defined]
        assert (action.abs() <= 1.0).all()
        _, _, terminated, truncated, info = env.step(action)
        solved |= info["success"] & ~over
        over |= terminated | truncated
    return solved


DOWN = torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
"""Rotation of a tool that points straight down, with the fingers along the world's x axis."""


def aim(env: EmbodiedEnv, pos: Tensor | Sequence[float], rotation: Tensor = DOWN) -> None:
    """Put the tools at positions [N, 3] or [3], turned by rotations [N, 3, 3] or [3, 3]."""
    pose = torch.eye(4).repeat(env.num_envs, 1, 1)
    pose[:, :3, :3], pose[:, :3, 3] = rotation, torch.as_tensor(pos)
    is_reached, qpos = env.robot.compute_ik(pose, iterations=100)
    assert is_reached.all()
    env.robot.set_qpos(qpos, name="arm", target=False)


def without_opengl(monkeypatch: pytest.MonkeyPatch, reason: str = "no GLContext", is_ray_traced: bool = False) -> None:
    """Let MuJoCo find no OpenGL, and without ray tracing no package for it."""

    def fail(*args: object, **kwargs: object) -> None:
        raise AttributeError(reason)

    monkeypatch.setattr("mujoco.Renderer", fail)
    if not is_ray_traced:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
