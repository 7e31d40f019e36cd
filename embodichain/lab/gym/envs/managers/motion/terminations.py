"""Ends of episodes that left the reference: ``func(env, **params)``."""

from functools import cache

import torch
from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.lab.sim.model.drives import match_names
from embodichain.utils.device import constant


def motion_anchor_tilt(env: TermEnv, limit: PositiveFloat = 0.8) -> Tensor:
    """Return where the anchor leans otherwise than the reference's, [N] bool (BeyondMimic).

    Args:
        limit: difference of the vertical components of their z axes, 0 to 2.
    """
    motion = motion_of(env)
    lean = [2.0 * states[:, -1, 4:6].square().sum(dim=1) for states in (motion.robot(), motion.reference())]
    return (lean[0] - lean[1]).abs() > limit


def motion_body_heights(env: TermEnv, bodies: list[str], limit: PositiveFloat = 0.25) -> Tensor:
    """Return where a body is further than a limit above or below the reference's, [N] bool (BeyondMimic).

    Args:
        bodies: names or regular expressions of the command's bodies and anchor, such as hands and feet.
        limit: m.
    """
    motion = motion_of(env)
    columns = constant(_columns(tuple(bodies), tuple(motion.names)), env.device)
    return torch.any((motion.robot()[:, columns, 2] - motion.reference()[:, columns, 2]).abs() > limit, dim=1)


@cache
def _columns(bodies: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(names.index(name) for name in match_names(bodies, names, "bodies", "link"))
