"""Grasps of a gripper with two fingers. Shapes: N environments."""

from __future__ import annotations

import re
from typing import TypeVar

import torch
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.actions import GripperTerm
from embodichain.lab.gym.envs.managers.base import ActionTerm
from embodichain.utils import ConfigError

Arm = TypeVar("Arm", bound=ActionTerm)

# A grip's force along the fingers' line is at least this many times the force across; the fingers' friction is 1.2.
_STEEPEST = 2.0


def is_gripped(env: EmbodiedEnv, fingers: tuple[str, str], grip_force: float) -> Tensor:
    """Return whether both fingers press on something between them, [N] bool.

    Args:
        fingers: the robot's links on the +x and on the -x side of the tool of control part ``arm``, with
            ``sense_contacts``.
        grip_force: least force on each along the line between them, N.
    """
    line = env.robot.get_eef_pose()[:, :3, 0]
    one, two = fingers
    return _is_pressed(env, one, line, grip_force) & _is_pressed(env, two, -line, grip_force)


def finger_problems(cfg: EmbodiedEnvCfg, fingers: tuple[str, str], task: str) -> list[str]:
    """Return why a config does not let :func:`is_gripped` measure a task's grip, a line each.

    Args:
        fingers: the task's, unless the config's ``extensions`` name others.
        task: task's name, for the message.
    """
    given = [] if cfg.robot is None else cfg.robot.sense_contacts
    named = cfg.extensions.get("fingers", fingers)
    missing = [link for link in named if not any(re.fullmatch(pattern, link) for pattern in given)]
    return [f"robot.sense_contacts: '{link}' is missing, whose grip {task} measures" for link in missing]


def expert_arm(env: EmbodiedEnv, kind: type[Arm], task: str) -> Arm:
    """Return the arm's action term, for a scripted expert that acts by such a one and the gripper's.

    Args:
        kind: the class of the term.
        task: the task's name, for the message.

    Raises:
        ConfigError: the environment has other action terms.
    """
    terms = list(env.action_manager.terms.values())
    if [type(term) for term in terms] != [kind, GripperTerm]:
        raise ConfigError(
            f"env.actions: the scripted expert of {task} acts by {kind.__name__} and GripperTerm, got "
            f"{' and '.join(type(term).__name__ for term in terms)}"
        )
    arm = terms[0]
    assert isinstance(arm, kind)
    return arm


def _is_pressed(env: EmbodiedEnv, finger: str, outwards: Tensor, grip_force: float) -> Tensor:
    """Return whether a finger is pushed along a direction [N, 3], [N] bool."""
    force = env.sim.get_contact_force(env.robot.uid, finger)
    along = (force * outwards).sum(dim=1)
    across = torch.linalg.vector_norm(force - along.unsqueeze(1) * outwards, dim=1)
    # The ground under fingers that close pushes them outwards too, by friction, but upwards more.
    return (along > grip_force) & (along > _STEEPEST * across)
