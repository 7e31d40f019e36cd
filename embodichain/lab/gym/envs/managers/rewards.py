"""Reward terms, ``func(env, obs, action, info, **params) -> [N]``, and their manager. Penalties are negative or zero.

Shapes: N environments. Distances are in metres.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import checks, state_values, types
from embodichain.lab.gym.envs.managers.base import Functor, Manager, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, RewardCfg
from embodichain.utils import ConfigError
from embodichain.utils.device import constant


def distance_between_objects(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    source_entity_cfg: types.RigidEntity,
    target_entity_cfg: types.RigidEntity,
    exponential: bool = False,
    sigma: PositiveFloat = 1.0,
) -> Tensor:
    """Return -d for the distance d between two rigid bodies, or exp(-d^2 / (2 sigma^2)) when ``exponential``.

    Args:
        source_entity_cfg: first entity.
        target_entity_cfg: second entity.
        exponential: the second form, between 0 and 1.
        sigma: the distance of which the second form is exp(-1/2), m.
    """
    source = env.sim.get_rigid_object(source_entity_cfg.uid).pos
    target = env.sim.get_rigid_object(target_entity_cfg.uid).pos
    return _closeness(torch.linalg.vector_norm(source - target, dim=1), exponential, sigma)


def distance_to_target(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    source_entity_cfg: types.SceneEntityCfg,
    target_pose_key: types.PoseKey = "goal_pose",
    exponential: bool = False,
    sigma: PositiveFloat = 1.0,
    use_xy_only: bool = False,
) -> Tensor:
    """Return -d, d an entity's distance to a target pose, or exp(-d^2 / (2 sigma^2)) when ``exponential``.

    Args:
        source_entity_cfg: a rigid body, or an articulation or robot, by its base.
        exponential: the second form, between 0 and 1.
        sigma: the distance of which the second form is exp(-1/2), m.
        use_xy_only: the distance in the horizontal plane.
    """
    distance = state_values.range_to_target(env, source_entity_cfg.uid, target_pose_key, use_xy_only)
    return _closeness(distance, exponential, sigma)


def orientation_alignment(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    source_entity_cfg: types.RigidEntity,
    target_entity_cfg: types.RigidEntity,
) -> Tensor:
    """Return the cosine of the angle between two rigid bodies' orientations: 1 where they agree, -1 half a turn off.

    The trace of the rotation from one to the other is 1 + 2 cos(angle); it is the sum of the products of the two
    matrices' entries.

    Args:
        source_entity_cfg: first entity.
        target_entity_cfg: second entity.
    """
    source = env.sim.get_rigid_object(source_entity_cfg.uid).get_local_pose(to_matrix=True)
    target = env.sim.get_rigid_object(target_entity_cfg.uid).get_local_pose(to_matrix=True)
    return 0.5 * (source[:, :3, :3] * target[:, :3, :3]).sum(dim=(1, 2)) - 0.5


class incremental_distance_to_target(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return how much nearer to the target a rigid body came in this step, squashed by tanh.

    tanh(tanh_scale (d_before - d_now)) with distances to the present target, times ``positive_weight`` where the body
    came nearer and ``negative_weight`` where it went away. The first step of an episode gives 0, having nothing to
    compare with.

    Args:
        source_entity_cfg: the body.
        tanh_scale: steepness, 1/m.
        positive_weight: factor of progress.
        negative_weight: factor of steps back.
        use_xy_only: distances in the horizontal plane.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._before = torch.full((env.num_envs, 3), float("nan"), device=env.device)  # offset from the target, m
        self._target = torch.zeros_like(self._before)
        self._compared: tuple[str, str, bool] | None = None  # arguments of ``state_values.offset_to_target``

    @override
    def reset(self, env_ids: Tensor) -> None:
        self._before = self._before.index_fill(0, env_ids, float("nan"))

    @override
    def begin_step(self) -> None:
        before = self._before
        if self._compared is not None and state_values.offset_to_target(self.env, *self._compared) is not before:
            self._read_state(*self._compared)  # an event moved something
            self._before = torch.where(before.isnan(), before, self._before)

    @override
    def __call__(
        self,
        env: TermEnv,
        obs: TensorDict,
        action: Tensor,
        info: dict[str, Any],
        source_entity_cfg: types.RigidEntity,
        target_pose_key: types.PoseKey = "goal_pose",
        tanh_scale: float = 10.0,
        positive_weight: float = 1.0,
        negative_weight: float = 1.0,
        use_xy_only: bool = False,
    ) -> Tensor:
        uid, target = source_entity_cfg.uid, state_values.target_pose(env, target_pose_key)[:, :3, 3]
        before = self._before - (target - self._target)  # which may have moved
        if use_xy_only:
            before = before * constant((1.0, 1.0, 0.0), env.device, torch.float32)
        distance = state_values.range_to_target(env, uid, target_pose_key, use_xy_only)
        gain = torch.linalg.vector_norm(before, dim=1) - distance
        progress = torch.tanh(tanh_scale * gain).nan_to_num(nan=0.0)
        self._compared = uid, target_pose_key, use_xy_only
        self._read_state(*self._compared)
        if positive_weight == negative_weight:
            return progress * positive_weight
        return positive_weight * progress.clamp(min=0.0) + negative_weight * progress.clamp(max=0.0)

    def _read_state(self, uid: str, target_pose_key: str, use_xy_only: bool) -> None:
        self._before = state_values.offset_to_target(self.env, uid, target_pose_key, use_xy_only)
        self._target = state_values.target_pose(self.env, target_pose_key)[:, :3, 3].clone()


def reaching_behind_object(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    object_cfg: types.RigidEntity,
    target_pose_key: types.PoseKey = "goal_pose",
    behind_offset: float = 0.015,
    height_offset: float = 0.015,
    distance_scale: float = 5.0,
    part_name: str = "arm",
) -> Tensor:
    """Return 1 - tanh(distance_scale d) for the tool's distance d to the place from which to push.

    That place lies ``behind_offset`` from the body's centre, opposite to the horizontal direction to the target, and
    ``height_offset`` above the centre (m).

    Args:
        object_cfg: the body to push.
        behind_offset: m.
        height_offset: m.
        distance_scale: steepness, 1/m.
        part_name: control part with the pushing tool.
    """
    away = state_values.offset_to_target(env, object_cfg.uid, target_pose_key, use_xy_only=True)
    distance = state_values.range_to_target(env, object_cfg.uid, target_pose_key, use_xy_only=True)
    # From the place to the tool: the tool's offset from the body's centre less the place's.
    offset = env.robot.get_eef_pose(part_name)[:, :3, 3] - env.sim.get_rigid_object(object_cfg.uid).pos
    offset = torch.addcdiv(offset, away, distance.clamp(min=1e-6).unsqueeze(1), value=-behind_offset)
    offset[:, 2].sub_(height_offset)
    return 1.0 - torch.tanh(distance_scale * torch.linalg.vector_norm(offset, dim=1))


def joint_velocity_penalty(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    robot_uid: str,
    joint_ids: types.JointIds | None = None,
    part_name: str | None = None,
) -> Tensor:
    """Return minus the norm of a robot's joint velocities (rad/s, m/s), of some joints or of a control part.

    Args:
        robot_uid: the robot.
        joint_ids: robot joints; None: all.
        part_name: a control part; None: the whole robot.
    """
    if joint_ids is not None and part_name is not None:
        raise ConfigError("joint_velocity_penalty: joint_ids or part_name, not both")
    velocity = env.sim.get_robot(robot_uid).get_qvel(part_name)
    if joint_ids is not None:
        velocity = velocity[:, constant(tuple(joint_ids), env.device)]
    return -torch.linalg.vector_norm(velocity, dim=1)


def joint_limit_penalty(
    env: TermEnv,
    obs: TensorDict,
    action: Tensor,
    info: dict[str, Any],
    robot_uid: str,
    joint_ids: types.JointIds | None = None,
    margin: PositiveFloat = 0.1,
) -> Tensor:
    """Return minus how far a robot's joints are inside ``margin`` of their limits, as shares of their ranges, summed.

    A joint at a limit, or beyond, gives -``margin`` or less; one without limits gives 0.

    Args:
        robot_uid: the robot.
        joint_ids: robot joints; None: all.
        margin: share of the range between the limits.
    """
    robot = env.sim.get_robot(robot_uid)
    low, high = robot.body_data.qpos_limits[0].unbind(dim=1)
    qpos = robot.get_qpos()
    if joint_ids is not None:
        columns = constant(tuple(joint_ids), env.device)
        qpos, low, high = qpos[:, columns], low[columns], high[columns]
    # Infinite limits: the share is inf / inf.
    share = (torch.minimum(qpos - low, high - qpos) / (high - low)).nan_to_num(nan=margin)
    return -(margin - share).clamp(min=0.0).sum(dim=1)


class action_smoothness_penalty(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return minus the norm of the change of the action since the step before; 0 in an episode's first step."""

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._before = torch.zeros(env.num_envs, env.action_manager.total_action_dim, device=env.device)

    @override
    def __call__(self, env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        change = torch.linalg.vector_norm(action - self._before, dim=1)
        self._before = action
        return -torch.where(env.elapsed_steps > 1, change, 0.0)


def success_reward(env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
    """Return 1 where the task is achieved, else 0."""
    return info["success"].to(torch.float32)


def _closeness(distance: Tensor, exponential: bool, sigma: float) -> Tensor:
    return torch.exp(distance.square() * (-0.5 / sigma**2)) if exponential else -distance


class RewardManager(Manager):
    """Computes the terms, each [N], and their weighted sum.

    A term is ``func(env, **params)`` or ``func(env, obs, action, info, **params)``: see ``checks.takes_step``.
    """

    def __init__(self, cfgs: Mapping[str, RewardCfg], env: TermEnv) -> None:
        self._terms = checks.build_terms(cfgs, env, "env.rewards")
        super().__init__(env, self._terms)
        weights = [term.cfg.weight for term in self._terms]
        self._shape = torch.Size([env.num_envs])
        self._weights = torch.tensor(weights, device=env.device)[:, None]
        self._counts = [len(checks.leading_arguments(term.cfg)) for term in self._terms]  # of a call's arguments
        self._is_first = True  # the next call

    def begin_step(self) -> None:
        """Let the terms read the state from which the next step starts."""
        for func in self.functors:
            func.begin_step()

    def compute(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the reward [N] and the weighted terms by name, [N] each."""
        if not self._terms:
            return torch.zeros(self._env.num_envs, device=self._env.device), {}
        env, random, values = self._env, self._env.random, []
        given, unchecked = (env, obs, action, info), nullcontext()
        shared = {}
        if self._is_first:
            shared = {**dict(obs.flatten_keys("/").items()), "action": action, **info.get("metrics", {})}
        with random.stream("rewards", tick=env.elapsed_steps):
            for term, count in zip(self._terms, self._counts, strict=True):
                random.turn_to(term.stream)
                with checks.leaving_unchanged(term.place, term.func, shared) if self._is_first else unchecked:
                    values.append(term(*given[:count]))
        self._is_first = False
        for term, value in zip(self._terms, values, strict=True):
            if not (isinstance(value, Tensor) and value.shape == self._shape):
                raise checks.wrong_return(term.place, term.func, value, f"[N] = {list(self._shape)}")
        weighted = torch.stack(values) * self._weights
        return weighted.sum(dim=0), dict(zip((t.name for t in self._terms), weighted.unbind(), strict=True))
