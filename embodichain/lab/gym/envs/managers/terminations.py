"""Terms that end episodes: ``func(env, **params) -> [N] bool``. Shapes: N environments."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import SensorName
from embodichain.lab.gym.envs.managers.locomotion_state import height_above_ground
from embodichain.lab.gym.envs.managers.term_env import TermEnv

__all__ = ["bad_orientation", "base_height_below", "illegal_contact"]

Lean = Annotated[float, Field(gt=0.0, lt=math.pi)]


def bad_orientation(env: TermEnv, limit_angle: Lean = 1.0) -> Tensor:
    """Return where the robot's base leans by more than an angle, [N] bool.

    Args:
        limit_angle: largest angle between the base's z axis and the vertical, rad.
    """
    return -env.robot.base.projected_gravity()[:, 2] < math.cos(limit_angle)


def base_height_below(env: TermEnv, minimum: PositiveFloat) -> Tensor:
    """Return where the robot's base is too close to the ground, [N] bool.

    Args:
        minimum: height of the base's origin above the ground, m.
    """
    return height_above_ground(env, env.robot.base.get()[:, :3]) < minimum


def illegal_contact(env: TermEnv, sensor: SensorName) -> Tensor:
    """Return where any link of a contact sensor touches something in the step's last physics substep, [N] bool.

    Args:
        sensor: the contact sensor.
    """
    return torch.any(env.sim.get_contact_sensor(sensor).in_contact, dim=1)
