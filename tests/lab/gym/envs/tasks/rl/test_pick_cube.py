"""Shapes: N = 2 environments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs.tasks.rl import PickCubeEnv
from embodichain.utils.utility import load_json
from tests.lab.scenes import actions_for, env_of, state

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/pick_cube/gym_config.json"
OPEN, CLOSED = -1.0, 1.0
DOWN = torch.tensor([[1.0, 0, 0], [0, -1, 0], [0, 0, -1]])


def make(num_envs: int = 2, **changes: Any) -> PickCubeEnv:
    env = env_of(load_json(CONFIG), num_envs, **changes)
    assert isinstance(env, PickCubeEnv)
    env.reset(seed=1)
    return env


@pytest.fixture
def env() -> PickCubeEnv:
    return make()


def move(env: PickCubeEnv, place: Tensor, gripper: float, steps: int, rate: float = 0.03) -> dict[str, Any]:
    """Bring the tool to ``place`` [N, 3] with its fingers along the cube's faces; return the last step's info."""
    info: dict[str, Any] = {}
    for _ in range(steps):
        turn = env.turn_to_faces().clamp(-0.1, 0.1)
        present = env.robot.get_eef_pose()
        heading = torch.atan2(present[:, 1, 0], present[:, 0, 0]) + turn
        pose = present.clone()
        about_z = torch.eye(3).repeat(len(pose), 1, 1)
        about_z[:, 0, 0] = about_z[:, 1, 1] = heading.cos()
        about_z[:, 1, 0], about_z[:, 0, 1] = heading.sin(), -heading.sin()
        pose[:, :3, :3] = about_z @ DOWN
        pose[:, :3, 3] += (place - present[:, :3, 3]).clamp(-rate, rate)
        _, qpos = env.robot.compute_ik(pose)
        action = torch.full((env.num_envs, 7), gripper)
        action[:, :6] = (qpos - env.robot.get_qpos("arm")) / 0.1
        *_, info = env.step(action)
    return info
