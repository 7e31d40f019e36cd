"""Rewards of locomotion: ``func(env, **params)``, some with ``obs, action, info`` after ``env``.

Shapes: N environments, J joints, F feet. Rewards named ``..._l2`` return a sum of squares: give them a negative weight.
"""

import math
from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import state_values, types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg
from embodichain.lab.sim.model.drives import match_names
from embodichain.utils import ConfigError
from embodichain.utils.device import constant


def _velocity(env: TermEnv, command: str) -> Tensor:
    """Return the commanded velocity, [N, 3 or more]; ConfigError if the command is none."""
    wanted = env.command_manager.get_tracked(command)
    if wanted.shape[1] < 3:
        raise ConfigError(f"params.command: '{command}' is no velocity (x, y, yaw): it has {wanted.shape[1]} numbers")
    return wanted


def track_lin_vel_xy_exp(
    env: TermEnv, std: PositiveFloat = 0.5, command: types.CommandName = types.BASE_VELOCITY
) -> Tensor:
    """Return exp(-|v - c|^2 / std^2) of the base's velocity v and the commanded one c, forwards and to the left.

    Args:
        std: error at which the reward is 1 / e, m/s.
    """
    error = env.robot.base.linear_velocity()[:, :2] - _velocity(env, command)[:, :2]
    return torch.exp(error.square().sum(dim=1) * (-1.0 / std**2))


def track_lin_vel_xy_linear(
    env: TermEnv, least: PositiveFloat = 0.1, command: types.CommandName = types.BASE_VELOCITY
) -> Tensor:
    """Return max(0, 1 - |v - c| / |c|) of the base's velocity v and the commanded one c.

    It is 0 for a robot that stands instead, and not less for a larger error: standing would be better than a step in a
    wrong direction. Unlike a bell of the error it has a slope where a robot is slow.

    Args:
        least: smallest divisor, m/s: for commands to stand, and slow ones.
    """
    wanted = _velocity(env, command)[:, :2]
    error = torch.linalg.vector_norm(env.robot.base.linear_velocity()[:, :2] - wanted, dim=1)
    return (1.0 - error / torch.linalg.vector_norm(wanted, dim=1).clamp(min=least)).clamp(min=0.0)


class track_ang_vel_z_linear(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return max(0, 1 - |w - c| / |c|) of the base's mean yaw rate w and the commanded one c.

    The mean is exponential and begins at 0 in each episode. At any instant a trunk that swings with the steps has a
    large error, whether the robot turns or not; the mean's error is small only if it turns.

    Args:
        least: smallest divisor, rad/s: for commands not to turn, and slow ones.
        time_constant: time constant of the mean, s: about a stride.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._mean = torch.zeros(env.num_envs, device=env.device)

    @override
    def reset(self, env_ids: Tensor) -> None:
        self._mean = self._mean.index_fill(0, env_ids, 0.0)

    @override
    def __call__(
        self,
        env: TermEnv,
        least: PositiveFloat = 0.3,
        time_constant: PositiveFloat = 0.4,
        command: types.CommandName = types.BASE_VELOCITY,
    ) -> Tensor:
        share = 1.0 - math.exp(-env.step_dt / time_constant)
        self._mean = torch.lerp(self._mean, env.robot.base.angular_velocity()[:, 2], share)
        wanted = _velocity(env, command)[:, 2]
        return (1.0 - (self._mean - wanted).abs() / wanted.abs().clamp(min=least)).clamp(min=0.0)


def track_ang_vel_z_exp(
    env: TermEnv, std: PositiveFloat = 0.5, command: types.CommandName = types.BASE_VELOCITY
) -> Tensor:
    """Return exp(-(w - c)^2 / std^2) of the base's yaw rate w and the commanded one c.

    Args:
        std: error at which the reward is 1 / e, rad/s.
    """
    error = env.robot.base.angular_velocity()[:, 2] - _velocity(env, command)[:, 2]
    return torch.exp(error.square() * (-1.0 / std**2))


def lin_vel_z_l2(env: TermEnv) -> Tensor:
    """Return the square of the base's velocity along its own z axis, (m/s)^2."""
    return env.robot.base.linear_velocity()[:, 2].square()


def ang_vel_xy_l2(env: TermEnv) -> Tensor:
    """Return the sum of the squares of the base's roll and pitch rates, (rad/s)^2."""
    return env.robot.base.angular_velocity()[:, :2].square().sum(dim=1)


def flat_orientation_l2(env: TermEnv) -> Tensor:
    """Return the square of the sine of the base's lean: |projected gravity's x and y|^2."""
    return env.robot.base.projected_gravity()[:, :2].square().sum(dim=1)


def base_height_l2(env: TermEnv, target_height: PositiveFloat) -> Tensor:
    """Return the square of the difference of the base's height above the ground to a target, m^2.

    Args:
        target_height: m.
    """
    return (state_values.height_above_ground(env, env.robot.base.get()[:, :3]) - target_height).square()


def upright(env: TermEnv) -> Tensor:
    """Return how upright the base is, [0, 1]: (1 + cosine of its lean) / 2."""
    return 0.5 - 0.5 * env.robot.base.projected_gravity()[:, 2]


class action_rate_l2(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return the sum of the squares of the change of the action since the step before; 0 in an episode's first step."""

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._before = torch.zeros(env.num_envs, env.action_manager.total_action_dim, device=env.device)

    @override
    def __call__(self, env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        change = (action - self._before).square().sum(dim=1)
        self._before = action
        return torch.where(env.elapsed_steps > 1, change, 0.0)


def joint_torques_l2(env: TermEnv) -> Tensor:
    """Return the sum of the squares of the drives' efforts at the end of the step, (Nm)^2 or N^2."""
    return env.robot.get_qf().square().sum(dim=1)


def joint_vel_l2(env: TermEnv) -> Tensor:
    """Return the sum of the squares of the joints' velocities, (rad/s)^2 or (m/s)^2."""
    return env.robot.get_qvel().square().sum(dim=1)


class joint_acc_l2(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return the sum of the squares of the joints' mean accelerations in the step, (rad/s^2)^2 or (m/s^2)^2."""

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._before = torch.zeros(env.num_envs, env.robot.dof, device=env.device)

    @override
    def begin_step(self) -> None:
        self._before = self.env.robot.get_qvel()

    @override
    def __call__(self, env: TermEnv) -> Tensor:
        acceleration = (env.robot.get_qvel() - self._before) / env.step_dt
        return acceleration.square().sum(dim=1)


def joint_pos_limits(env: TermEnv, soft_share: types.PositiveShare = 0.95) -> Tensor:
    """Return how far the joints are outside the middle part of their ranges, summed, rad or m.

    Args:
        soft_share: the part of each range, about its middle, that is free.
    """
    low, high = env.robot.body_data.qpos_limits[0].unbind(dim=1)
    spare = (high - low) * (0.5 * (1.0 - soft_share))  # infinite without limits: nothing is outside
    qpos = env.robot.get_qpos()
    outside = torch.maximum(low + spare - qpos, qpos - (high - spare))
    return outside.nan_to_num(nan=0.0, neginf=0.0).clamp(min=0.0).sum(dim=1)


def joint_torque_limits(env: TermEnv, soft_share: types.PositiveShare = 0.8) -> Tensor:
    """Return how far the drives' efforts are beyond a part of their limits, summed, Nm or N.

    Args:
        soft_share: the part of each limit that is free.
    """
    low, high = soft_share * (env.robot.drives.strength * env.robot.effort_limits[:, None])
    qf = env.robot.get_qf()
    return (torch.relu(low - qf) + torch.relu(qf - high)).sum(dim=1)


class posture(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Return exp(-mean over joints of ((q - default) / std)^2), for the joints that ``std`` names.

    Args:
        std: deviation from the initial position, rad or m: for all joints, or by names or regular expressions.
    """

    is_stateful = False

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        std = cfg.params.get("std", 0.5)
        names = env.robot.joint_names
        by_joint: dict[str, float] = {}
        for pattern, value in (std if isinstance(std, dict) else {".*": std}).items():
            by_joint |= dict.fromkeys(match_names([pattern], names, "params.std"), value)
        self._joints = [names.index(name) for name in by_joint]
        self._factor = torch.tensor([-1.0 / (len(by_joint) * value**2) for value in by_joint.values()]).to(env.device)
        self._default = env.robot.body_data.default_qpos[:, self._joints]

    @override
    def __call__(self, env: TermEnv, std: PositiveFloat | dict[types.JointName, PositiveFloat] = 0.5) -> Tensor:
        qpos = env.robot.get_qpos()[:, constant(tuple(self._joints), env.device)]
        return torch.exp((qpos - self._default).square() @ self._factor)


def track_joints_linear(
    env: TermEnv, joint_names: list[types.JointName], command: types.CommandName, scale: PositiveFloat = 0.5
) -> Tensor:
    """Return 1 - the mean over joints of |q - default - c| / scale, [-1, 1], with a command c of their positions.

    Args:
        joint_names: the command's joints, in its order.
        command: command's name in ``env.commands``: differences to the initial positions, rad or m.
        scale: error that earns 0, rad or m.
    """
    ids = constant(tuple(env.robot.joint_names.index(name) for name in joint_names), env.device)
    change = env.command_manager.get_tracked(command)
    if change.shape[1] != len(joint_names):
        raise ConfigError(f"joint_names: {len(joint_names)} for the {change.shape[1]} numbers of command '{command}'")
    wanted = env.robot.body_data.default_qpos[:, ids] + change
    return (1.0 - (env.robot.get_qpos()[:, ids] - wanted).abs().mean(dim=1) / scale).clamp(min=-1.0)


def feet_step(
    env: TermEnv,
    sensor: types.FeetSensor,
    shortest: PositiveFloat = 0.1,
    longest: PositiveFloat = 0.3,
    command: types.CommandName = types.BASE_VELOCITY,
) -> Tensor:
    """Return how well a biped steps without a clock, [0, 1]: one foot on the ground, and the other in the air.

    It grows with the time in the air up to ``shortest``, and is 0 beyond ``longest``, where the foot is to land. Where
    the command is to stand still, it is 0.

    Args:
        shortest: time in the air that earns 1, s.
        longest: time in the air beyond which nothing is earned, s.
    """
    feet = env.sim.get_contact_sensor(sensor)
    flown = feet.air_time.amax(dim=1)
    is_step = (feet.in_contact.sum(dim=1) == 1) & (flown <= longest)
    is_moving = state_values.is_moving(env.command_manager.get_tracked(command))
    return (flown / shortest).clamp(max=1.0) * (is_step & is_moving)


def feet_air_time(
    env: TermEnv,
    sensor: types.FeetSensor,
    threshold: PositiveFloat = 0.5,
    command: types.CommandName = types.BASE_VELOCITY,
) -> Tensor:
    """Return the sum over the feet that land of (time in the air - threshold), s; 0 where the command is to stand.

    As in Rudin et al., "Learning to walk in minutes using massively parallel deep reinforcement learning", 2021.

    Args:
        threshold: s.
    """
    feet = env.sim.get_contact_sensor(sensor)
    gained = ((feet.last_air_time - threshold) * feet.first_contact).sum(dim=1)
    return gained * state_values.is_moving(env.command_manager.get_tracked(command))


def feet_slide(env: TermEnv, sensor: types.FeetSensor) -> Tensor:
    """Return the sum of the horizontal speeds of the feet in contact, m/s."""
    feet = env.sim.get_contact_sensor(sensor)
    return (torch.linalg.vector_norm(feet.vel[:, :, :2], dim=2) * feet.in_contact).sum(dim=1)


def feet_clearance(env: TermEnv, sensor: types.FeetSensor, target_height: PositiveFloat = 0.08) -> Tensor:
    """Return the sum over the feet of (height - target)^2 times their horizontal speed, m^3/s.

    Args:
        target_height: height of a foot's origin above the ground, m.
    """
    feet = env.sim.get_contact_sensor(sensor)
    error = (state_values.height_above_ground(env, feet.pos) - target_height).square()
    return (error * torch.linalg.vector_norm(feet.vel[:, :, :2], dim=2)).sum(dim=1)


def feet_impact(env: TermEnv, sensor: types.FeetSensor, max_force: PositiveFloat) -> Tensor:
    """Return the sum of the contact forces on the feet beyond a bound, N.

    Args:
        max_force: N, on one foot.
    """
    force = torch.linalg.vector_norm(env.sim.get_contact_sensor(sensor).force, dim=2)
    return (force - max_force).clamp(min=0.0).sum(dim=1)


def feet_gait(
    env: TermEnv,
    sensor: types.FeetSensor,
    offsets: types.PerLink,
    frequency: PositiveFloat = 2.0,
    swing_height: PositiveFloat = 0.06,
    foot_radius: PositiveFloat = 0.022,
    command: types.CommandName = types.BASE_VELOCITY,
) -> Tensor:
    """Return how well the feet keep the time of a gait, [0, 1]: the mean over the feet.

    A clock tells each foot by s = sin(2 pi (frequency t + offset)) to stand where s < 0 and to swing, at a height of
    ``swing_height`` s, where s > 0. A standing foot earns 1 for contact without sliding, a swinging one for being
    without contact at that height; in between, for |s| < 0.5, both count. Where the command is to stand still, all feet
    are to stand. Rewards of this kind go back to Siekmann et al., "Sim-to-real learning of all common bipedal gaits via
    periodic reward composition", 2021.

    Args:
        offsets: phase of each foot in the sensor's order, the robot's, in strides; [0.5, 0, 0, 0.5] of FL, FR, RL, RR
            is a trot.
        frequency: strides in a second, 1/s.
        swing_height: height of a foot above its height in contact, m.
        foot_radius: height of a foot's origin in contact, m.
    """
    feet = env.sim.get_contact_sensor(sensor)
    phase = constant(tuple(offsets), env.device, torch.float32) * (2 * math.pi)
    moving = state_values.is_moving(env.command_manager.get_tracked(command))[:, None]
    s = torch.sin(state_values.gait_clock(env, frequency)[:, None] + phase) * moving
    swings = torch.where(moving, (0.5 + s).clamp(0.0, 1.0), 0.0)
    height = state_values.height_above_ground(env, feet.pos) - foot_radius
    error = height - swing_height * s.clamp(min=0.0)
    in_air = torch.exp(error.square() * (-1.0 / (0.5 * swing_height) ** 2)) * ~feet.in_contact
    slide = feet.vel[:, :, :2].square().sum(dim=2)
    on_ground = torch.exp(slide * (-1.0 / _SLIDE_STD**2)) * feet.in_contact
    return (swings * in_air + (1.0 - swings) * on_ground).mean(dim=1)


_SLIDE_STD = 0.2  # speed at which a foot in contact earns 1 / e, m/s


def undesired_contacts(env: TermEnv, sensor: types.SensorName) -> Tensor:
    """Return how many links of a contact sensor touch something in the step's last physics substep."""
    return env.sim.get_contact_sensor(sensor).in_contact.float().sum(dim=1)


def is_alive(env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
    """Return 1 where the episode has not failed, else 0."""
    return 1.0 - info["fail"].float()


def is_terminated(env: TermEnv, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
    """Return 1 where the episode fails in this step, else 0."""
    return info["fail"].float()
