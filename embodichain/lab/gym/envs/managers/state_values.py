"""Values of the state that several terms need. Shapes: N environments."""

import math

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.sim.objects import cached_per_state
from embodichain.utils import ConfigError, unknown_name
from embodichain.utils.device import constant


def target_pose(env: TermEnv, target_pose_key: str) -> Tensor:
    """Return a target pose, [N, 4, 4]."""
    target = getattr(env, target_pose_key, None)
    if isinstance(target, Tensor):
        return target
    shape = (env.num_envs, 4, 4)
    poses = [name for name, value in vars(env).items() if isinstance(value, Tensor) and value.shape == shape]
    raise ConfigError(f"target_pose_key: {unknown_name('pose', target_pose_key, poses)}; events store them")


def offset_to_target(env: TermEnv, uid: str, target_pose_key: str, use_xy_only: bool = False) -> Tensor:
    """Return an entity's position less the target's, [N, 3], m; the last is 0 when ``use_xy_only``.

    It is cached for each state: do not write into it.
    """
    return _offset(env, uid, target_pose(env, target_pose_key), use_xy_only)


def range_to_target(env: TermEnv, uid: str, target_pose_key: str, use_xy_only: bool = False) -> Tensor:
    """Return an entity's distance to the target, [N], m, in the horizontal plane when ``use_xy_only``."""
    return _range(env, uid, target_pose(env, target_pose_key), use_xy_only)


@cached_per_state
def _offset(env: TermEnv, uid: str, target: Tensor, use_xy_only: bool) -> Tensor:
    offset = env.sim.get_asset(uid).get_local_pose()[:, :3] - target[:, :3, 3]
    return offset * constant((1.0, 1.0, 0.0), env.device, torch.float32) if use_xy_only else offset


@cached_per_state
def _range(env: TermEnv, uid: str, target: Tensor, use_xy_only: bool) -> Tensor:
    return torch.linalg.vector_norm(_offset(env, uid, target, use_xy_only), dim=1)


# Commands below this are to stand still, m/s and rad/s: their norm.
STANDING_COMMAND = 0.1


def height_above_ground(env: TermEnv, pos: Tensor) -> Tensor:
    """Return the height of points above the ground below them, [...], for positions [..., 3], m."""
    return pos[..., 2] - ground_height(env, pos[..., :2])


def ground_height(env: TermEnv, xy: Tensor) -> Tensor:
    """Return the height of the ground at points [..., 2], [...], m."""
    terrain = env.sim.terrain
    return torch.zeros_like(xy[..., 0]) if terrain is None else terrain.height_at(xy)


def is_moving(command: Tensor) -> Tensor:
    """Return which commands [N, C] are not to stand still, [N] bool."""
    return command.square().sum(dim=1) > STANDING_COMMAND**2


def gait_clock(env: TermEnv, frequency: float) -> Tensor:
    """Return the phase of a gait's clock, [N], rad, for a stride frequency, 1/s: 0 at the start of each episode."""
    cycles = env.elapsed_steps * (env.step_dt * frequency)
    return torch.frac(cycles) * (2 * math.pi)
