"""How far rigid bodies are from target poses. Shapes: N environments."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

__all__ = ["offset_to_target", "range_to_target", "target_pos"]


def target_pos(env: TermEnv, target_pose_key: str) -> Tensor:
    """Return the position of a target pose, [N, 3], m."""
    target = _target(env, target_pose_key)
    return env.sim.kept.get(("target", target), lambda: target[:, :3, 3])


def offset_to_target(env: TermEnv, uid: str, target_pose_key: str, use_xy_only: bool = False) -> Tensor:
    """Return a rigid body's position less the target's, [N, 3], m; the last is 0 when ``use_xy_only``.

    Do not write into it: it is kept until the state or the target changes, since rewards and the task both ask for it.
    """
    target = _target(env, target_pose_key)

    def compute() -> Tensor:
        offset = env.sim.get_rigid_object(uid).pos - target_pos(env, target_pose_key)
        return offset * _xy(env.device) if use_xy_only else offset

    return env.sim.kept.get(("offset", uid, target, _writes(target), use_xy_only), compute)


def range_to_target(env: TermEnv, uid: str, target_pose_key: str, use_xy_only: bool = False) -> Tensor:
    """Return a rigid body's distance to the target, [N], m, in the horizontal plane when ``use_xy_only``; kept, too."""
    offset = offset_to_target(env, uid, target_pose_key, use_xy_only)
    return env.sim.kept.get(("range", offset), lambda: torch.linalg.vector_norm(offset, dim=1))


def _target(env: TermEnv, target_pose_key: str) -> Tensor:
    """Return a target pose, [N, 4, 4].

    Raises:
        ConfigError: nothing stores a pose under this key.
    """
    target = getattr(env, target_pose_key, None)
    if isinstance(target, Tensor):
        return target
    shape = (env.num_envs, 4, 4)
    poses = [name for name, value in vars(env).items() if isinstance(value, Tensor) and value.shape == shape]
    raise ConfigError(f"target_pose_key: {unknown_name('pose', target_pose_key, poses)}; events store them")


def _writes(tensor: Tensor) -> int:
    """Return how often a tensor was written to; tensors made in inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


@lru_cache
def _xy(device: torch.device) -> Tensor:
    return torch.tensor([1.0, 1.0, 0.0], device=device)
