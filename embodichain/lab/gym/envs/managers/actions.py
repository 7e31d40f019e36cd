"""Action terms. Shapes: N environments, A action size, J joints of the term, K actions on their way, oldest first.

Each moves the environment's active joints, or the joints of the control part ``part_name``.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap, TermEnv, own_actuators
from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg
from embodichain.lab.gym.envs.managers.sensor_models import draw_delay, push, read
from embodichain.lab.sim.math import matrix_from_euler, matrix_from_quat, pad_batch, pose_from_pos_matrix
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.objects import DriveMode
from embodichain.utils import ConfigError

# Of inverse kinematics in one step: the next steps continue from the result. 64 environments take 1.4 ms.
_IK_ITERATIONS = 5
# The same where the target moves by centimetres, and each search starts from the last one's end.
_SHIFT_IK_ITERATIONS = 3

POSITION, CONTROL = "joint position, rad or m", "control of the actuator"
"""Meanings of commands that are the targets of position drives, or the controls of a file's actuators."""
_EULER, _QUATERNION = ("roll", "pitch", "yaw"), ("qw", "qx", "qy", "qz")


class DeltaQposTerm(ActionTerm):
    """Targets are the present joint positions plus ``scale`` times the action, within the joint limits.

    Actions are in [-1, 1].

    Args:
        scale: largest change in a control step, rad or m.
    """

    kind = "qpos"

    @override
    def configure(self, scale: PositiveFloat = 1.0, part_name: types.Part | None = None) -> None:
        self.scale = scale
        self.choose_joints(part_name)
        self._low, self._high = _position_limits(self)

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command("change of joint position, rad or m", self.scale)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        target = torch.add(self.present_qpos(), action, alpha=self.scale)
        return {"qpos": torch.clamp(target, self._low, self._high)}


class ChoiceTerm(DeltaQposTerm):
    """Targets are the present joint positions plus one of several changes, within the joint limits.

    The action is discrete, the index of the change: PPO and GRPO learn it.

    Args:
        choices: the changes, rad or m: for each choice a list of one number for each joint.
    """

    @override
    def configure(self, choices: list[list[float]], part_name: types.Part | None = None) -> None:  # type: ignore[override]
        super().configure(1.0, part_name)
        for change in choices:
            if len(change) != len(self.joint_ids):
                raise ConfigError(f"params.choices: {len(change)} numbers for {len(self.joint_ids)} joints: {change}")
        self._changes = torch.tensor(choices, device=self.device)
        self.choices = (len(choices),)
        self.limit_action(torch.zeros(1, device=self.device), torch.full((1,), len(choices) - 1.0, device=self.device))

    @override
    def command_map(self) -> CommandMap | None:  # type: ignore[override]
        return None  # the index is none of a change of position

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return super().process_action(self._changes[action[:, 0].round().long()])


class _AffineTerm(ActionTerm):
    """Targets are clip(offset + factor * action, low, high), [J] each: the term's command map."""

    meaning: ClassVar[str] = POSITION
    _map: CommandMap

    def command_map(self) -> CommandMap:
        return self._map

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        own = self._map
        return {self.kind: torch.clamp(torch.addcmul(own.offset, action, own.factor), own.low, own.high)}


class QposTerm(_AffineTerm):
    """Targets are ``scale`` times the action, within the joint limits.

    Actions reach from limit to limit.

    Args:
        scale: rad or m of an action of 1.
    """

    kind = "qpos"

    @override
    def configure(self, scale: PositiveFloat = 1.0, part_name: types.Part | None = None) -> None:
        self.choose_joints(part_name)
        low, high = _position_limits(self)
        self._map = own = self.joint_command(self.meaning, scale, 0.0, low, high)
        self.limit_action(own.low / own.factor, own.high / own.factor)


class QposDenormalizedTerm(_AffineTerm):
    """Targets are where ``scale`` times the action, in ``range``, lies between the joint limits.

    With the defaults -1 is the lower limit and 1 the upper one. A smaller ``scale`` makes the action space wider.

    Args:
        scale: factor of the action.
        joint_ids: robot joints that are mapped so; the term's others get ``scale`` times the action as it is,
            rad or m. None: all of the term's.
        range: the interval that stands for the joint's whole range.
    """

    kind = "qpos"

    @override
    def configure(
        self,
        scale: PositiveFloat = 1.0,
        joint_ids: types.JointIds | None = None,
        range: types.Interval = (-1.0, 1.0),
        part_name: types.Part | None = None,
    ) -> None:
        self.choose_joints(part_name)
        low, high = _position_limits(self)
        start, slope = _unit_map(self, joint_ids, range)
        # target = low + (scale a - first) / (last - first) (high - low), as one product and one sum
        self._map = self.joint_command(self.meaning, scale / slope, -start / slope, low, high)
        mapped = slope.ne(1.0) | start.ne(0.0)
        ends = torch.tensor(range, device=start.device) / scale
        self.limit_action(torch.where(mapped, ends[0], low / scale), torch.where(mapped, ends[1], high / scale))


class QposNormalizedTerm(ActionTerm):
    """Map joint positions from their limits to ``range``: for mode ``post``, to record targets in that form.

    Args:
        joint_ids: robot joints to map; the term's others stay as they are. None: all of the term's.
        range: new values of the lower and the upper limit.
    """

    kind = "qpos"

    @override
    def configure(
        self,
        joint_ids: types.JointIds | None = None,
        range: types.Interval = (0.0, 1.0),
        part_name: types.Part | None = None,
    ) -> None:
        self.choose_joints(part_name)
        self._offset, self._factor = _unit_map(self, joint_ids, range)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"qpos": torch.addcmul(self._offset, action, self._factor)}


class EefPoseTerm(ActionTerm):
    """Targets are the joint positions that put the tool centre point at a pose, by inverse kinematics.

    The action is a position (m) and either Euler angles (rad, about the fixed x, then y, then z axis) or a quaternion
    (w, x, y, z; of any length). It is the pose itself, in the environment's frame, or with ``relative`` a change of the
    present one: a shift, and a turn about the fixed axes, with actions in [-1, 1].

    The search starts from the drives' present targets (the present positions when ``relative``), respects the joint
    limits, and is short: if the pose is not reached, the targets are the nearest found, and the next step continues
    from there. ``info["metrics"]["ik_success"]`` is where they reach it (within 1 mm and 0.01 rad), with several terms
    where all do.

    Args:
        scale: factor of the action.
        pose_dim: 6 for Euler angles, 7 for a quaternion, which cannot be ``relative``.
        relative: whether the action is a change of the present pose.
        rotation_scale: factor of the Euler angles instead of ``scale``; a quaternion has none.
    """

    kind = "qpos"

    @override
    def configure(
        self,
        scale: PositiveFloat = 1.0,
        pose_dim: Literal[6, 7] = 7,
        part_name: types.Part | None = None,
        relative: bool = False,
        rotation_scale: PositiveFloat | None = None,
    ) -> None:
        self.choose_joints(part_name)
        if self.part is None:
            raise ConfigError("params.part_name: EefPoseTerm needs a control part with a tool")
        if pose_dim == 7 and (relative or rotation_scale is not None):
            given = "relative" if relative else "rotation_scale"
            raise ConfigError(f"params.{given}: needs pose_dim 6, since a quaternion of any length is a whole turn")
        self._relative = relative
        self._pose_dim = pose_dim
        ends = torch.full((pose_dim,), 1.0 if relative else math.inf, device=self.env.device)
        self.limit_action(-ends, ends)
        turn = scale if rotation_scale is None else rotation_scale
        self._scale = torch.tensor([scale] * 3 + [turn] * 4, device=self.env.device)

    @override
    def command_map(self) -> CommandMap:
        names = ["x", "y", "z", *(_EULER if self._pose_dim == 6 else _QUATERNION)]
        turn = "Euler angles about the fixed axes, rad" if self._pose_dim == 6 else "quaternion"
        what = "change of the tool's pose" if self._relative else "pose of the tool"
        return self.joint_command(f"{what}: m; {turn}", self._scale[: self._pose_dim], names=names)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        """Return ``qpos`` [N, J], ``ik_success`` [N] bool and the wanted ``eef_pose`` [N, 4, 4]."""
        size = action.shape[-1]
        if size not in (6, 7):
            raise ValueError(f"an end-effector pose has 6 numbers (Euler angles) or 7 (quaternion), got {size}")
        robot = self.env.robot
        assert self.part is not None
        scaled = action * self._scale[:size]
        turn = matrix_from_euler if size == 6 else _matrix_from_any_quat
        rotation = turn(pad_batch(scaled[:, 3:]))[: len(action)]
        pos, seed = scaled[:, :3], robot.get_qpos_target(self.part)
        if self._relative:
            present, seed = robot.get_eef_pose(self.part), self.present_qpos()
            pos, rotation = present[:, :3, 3] + pos, rotation @ present[:, :3, :3]
        pose = pose_from_pos_matrix(pos, rotation)
        success, qpos = robot.compute_ik(pose, seed, self.part, iterations=_IK_ITERATIONS)
        return {"qpos": qpos, "ik_success": success, "eef_pose": pose}


class GripperTerm(_AffineTerm):
    """One number for all joints of a gripper: -1 is their lower limits, 1 their upper ones, in between all alike.

    Args:
        part_name: control part that opens and closes the gripper.
    """

    kind = "qpos"

    @override
    def configure(self, part_name: str = "hand") -> None:
        self.choose_joints(part_name)
        low, high = _position_limits(self)
        if not torch.isfinite(high - low).all():
            raise ConfigError(f"params.part_name: '{part_name}' has joints without limits to open and close between")
        self._map = self.joint_command(self.meaning, (high - low) / 2, (low + high) / 2)
        one = torch.ones(1, device=self.device)
        self.limit_action(-one, one)


class _RateTerm(_AffineTerm):
    """Velocities or efforts: ``scale`` times the action, within the drives' limits."""

    mode: ClassVar[DriveMode]

    @override
    def configure(self, scale: PositiveFloat = 1.0, part_name: types.Part | None = None) -> None:
        self.choose_joints(part_name)
        data = self.env.robot.body_data
        limit = (data.qvel_limits if self.mode == "velocity" else data.qf_limits)[0, self.joint_ids]
        self._map = self.joint_command(self.meaning, scale, 0.0, -limit, limit)
        ends = torch.where(torch.isfinite(limit), limit / self._map.factor, 1.0)
        self.limit_action(-ends, ends)
        self.env.robot.drives.set_mode(self.mode, self.joint_ids)


class QvelTerm(_RateTerm):
    """Drives brake and push towards velocities of ``scale`` times the action, within the drives' ``max_velocity``.

    The term's drives have no stiffness then: force = damping (target - velocity). Actions reach from limit to limit,
    and from -1 to 1 where the config has no ``max_velocity``.

    Args:
        scale: rad/s or m/s of an action of 1.
    """

    kind, mode, meaning = "qvel", "velocity", "joint velocity, rad/s or m/s"


class QfTerm(_RateTerm):
    """Drives push with ``scale`` times the action, within their effort limits, and with nothing else.

    Actions reach from limit to limit, and from -1 to 1 where there is none.

    Args:
        scale: Nm or N of an action of 1.
    """

    kind, mode, meaning = "qf", "effort", "joint effort, Nm or N"


def _matrix_from_any_quat(quat: Tensor) -> Tensor:
    """Return the rotations of quaternions [B, 4] of any length; length 0 is no rotation."""
    length = torch.linalg.vector_norm(quat, dim=1, keepdim=True)
    unit = torch.where(length > 1e-6, quat / length.clamp(min=1e-6), quat.new_tensor([1.0, 0.0, 0.0, 0.0]))
    return matrix_from_quat(unit)


def _position_limits(term: ActionTerm) -> tuple[Tensor, Tensor]:
    """Return the lower and upper limits of a term's joints, [J] each."""
    low, high = term.env.robot.body_data.qpos_limits[0, term.joint_ids].unbind(dim=1)
    return low, high


def _unit_map(term: ActionTerm, joint_ids: Sequence[int] | None, ends: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return offset and factor [J] that map positions from their limits to ``ends``; (0, 1) for joints not named."""
    names = term.env.robot.joint_names
    chosen = term.joint_ids if joint_ids is None else list(joint_ids)
    low, high = _position_limits(term)
    offset, factor = torch.zeros_like(low), torch.ones_like(low)
    for joint in chosen:
        if joint not in term.joint_ids:
            raise ConfigError(f"params.joint_ids: {joint} is not among the term's joints {term.joint_ids}")
        at = term.joint_ids.index(joint)
        if not torch.isfinite(high[at] - low[at]):
            raise ConfigError(f"params.joint_ids: joint {joint} ('{names[joint]}') has no limits to be mapped from")
        factor[at] = (ends[1] - ends[0]) / (high[at] - low[at])
        offset[at] = ends[0] - low[at] * factor[at]
    return offset, factor


class _EefShiftTerm(ActionTerm):
    """Shifts the tool centre point's target along the first D axes; everything else of its pose stays.

    Args:
        scale: largest shift along each axis in a control step, m.
        low: lowest coordinates of the target along these axes, m; None: no bound.
        high: highest coordinates of the target along these axes, m; None: no bound.
    """

    kind = "qpos"
    axes: ClassVar[str]
    """Names of the D coordinates."""

    def __init__(self, cfg: ActionTermCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        assert self.part is not None
        self._target = env.robot.get_eef_pose(self.part).clone()  # [N, 4, 4]

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.02,
        low: types.Floats | None = None,
        high: types.Floats | None = None,
        part_name: types.Part | None = None,
    ) -> None:
        self.choose_joints(part_name)
        if self.part is None:
            raise ConfigError(f"params.part_name: {type(self).__name__} needs a control part with a tool")
        size = len(self.axes)
        low, high = low or (-math.inf,) * size, high or (math.inf,) * size
        if not (len(low) == len(high) == size and all(a < b for a, b in zip(low, high, strict=True))):
            raise ConfigError(f"params.low: must be below 'high' in each of {self.axes}, got {low} and {high}")
        self.scale = scale
        self._low, self._high = (torch.tensor(ends, device=self.env.device) for ends in (low, high))
        ones = torch.ones(size, device=self.env.device)
        self.limit_action(-ones, ones)

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command("change of the tool's target, m", self.scale, names=list(self.axes))

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        robot, size = self.env.robot, self.action_dim
        assert self.part is not None
        target = self._target.clone()
        target[:, :size, 3] = torch.clamp(target[:, :size, 3] + self.scale * action, self._low, self._high)
        self._target = target
        seed = robot.get_qpos_target(self.part)
        success, qpos = robot.compute_ik(target, seed, self.part, iterations=_SHIFT_IK_ITERATIONS)
        return {"qpos": qpos, "ik_success": success}

    @override
    def reset(self, env_ids: Tensor) -> None:
        assert self.part is not None
        self._target = self._target.index_copy(0, env_ids, self.env.robot.get_eef_pose(self.part)[env_ids])


class EefPlaneTerm(_EefShiftTerm):
    """Shifts the tool centre point's target along x and y of the environment's frame; height and orientation stay.

    The target begins each episode where the tool is. Actions are in [-1, 1].
    """

    axes = "xy"


class EefPositionTerm(_EefShiftTerm):
    """Shifts the tool centre point's target along x, y and z of the environment's frame; the orientation stays.

    The target begins each episode where the tool is. Actions are in [-1, 1].
    """

    axes = "xyz"


class ActuatorTerm(ActionTerm):
    """Actions are controls of actuators that the file describes, as MuJoCo's ``ctrl``: thrust, tension and so on.

    In an assembled scene they are the robot's actuators that drive no single joint: rotors at sites, adhesion,
    tendons and muscles. In the scene of a file they are all actuators. Actions are within ``ctrlrange``, and
    unbounded without one.

    Args:
        actuators: names, or regular expressions, of the actuators; None: all.
    """

    kind = "ctrl"

    @override
    def choose_joints(self, part_name: str | None) -> None:
        self.part, self.joint_ids = None, []

    @override
    def configure(self, actuators: list[str] | None = None) -> None:
        known, robot = own_actuators(self.env), self.env.cfg.robot
        if not known:
            place = "the scene's file" if robot is None else f"robot '{robot.uid}', less its drives,"
            raise ConfigError(f"func: {place} has no actuator, so that there is nothing to act with")
        chosen = match_names(actuators or [".*"], list(known), "params.actuators", "actuator")
        self._chosen = {name: known[name] for name in chosen}
        model, ids = self.env.sim.model, list(self.actuators.values())
        low, high = torch.tensor(model.actuator_ctrlrange[ids], dtype=torch.float32, device=self.device).unbind(1)
        limited = torch.tensor(model.actuator_ctrllimited[ids], dtype=torch.bool, device=self.device)
        self.limit_action(torch.where(limited, low, -torch.inf), torch.where(limited, high, torch.inf))

    @property
    @override
    def actuators(self) -> dict[str, int]:
        return self._chosen

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command(CONTROL, 1.0, 0.0, *self.action_limits, list(self.actuators))

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"ctrl": action}


class JointPositionTerm(ActionTerm):
    """Targets are the initial joint positions plus ``scale`` times the action; the drives are PD controllers.

    Targets may lie outside the joint limits, since a drive's effort follows from the distance to its target.

    Args:
        scale: rad or m of an action of 1.
        limit: actions are clipped to [-limit, limit].
        delay: ``[lowest, highest]`` control steps until an action reaches the drives, drawn for each episode. Before
            its first action does, the targets are the initial positions.
    """

    kind = "qpos"

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.25,
        limit: PositiveFloat = 10.0,
        part_name: types.Part | None = None,
        delay: types.Delay = (0, 0),
    ) -> None:
        self.choose_joints(part_name)
        self._scale, self._delay = scale, delay
        ends = torch.full((len(self.joint_ids),), limit, device=self.device)
        self.limit_action(-ends, ends)
        self._default = self.env.robot.body_data.default_qpos[0, self.joint_ids]
        self._sent = torch.zeros(self.num_envs, 1 + delay[1], len(self.joint_ids), device=self.device)  # [N, K, J]
        self._lag = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command(POSITION, self._scale, self._default)

    @override
    def reset(self, env_ids: Tensor) -> None:
        if self._delay[1]:
            self._sent = self._sent.index_fill(0, env_ids, 0.0)
            self._lag = self._lag.index_copy(0, env_ids, draw_delay(self.env.random, env_ids, self._delay))

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        if self._delay[1]:
            self._sent = push(self._sent, action)
            action = read(self._sent, self._lag)
        return {"qpos": torch.add(self._default, action, alpha=self._scale)}
