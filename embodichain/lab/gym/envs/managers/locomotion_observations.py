"""Observations of a robot with a free base: ``func(env, **params)``.

Shapes: N environments, J joints, F feet, P points.
"""

from functools import lru_cache

import torch
from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers import state_values, types
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.measurements import Measurement, Recipe, deployed_as, measured, raw
from embodichain.utils.device import constant


def _joint_names(env: TermEnv) -> list[str]:
    return [env.robot.joint_names[joint] for joint in env.robot.get_joint_ids(env.active_part)]


def _joint_pos_recipe(env: TermEnv) -> Recipe:
    part = env.active_part
    default = env.robot.body_data.default_qpos[0, env.robot.get_joint_ids(part)]
    pos = Measurement("joint_pos", "joint positions, rad or m", lambda: env.robot.get_qpos(part), _joint_names(env))
    return Recipe([{"measurement": pos.name}, {"subtract": default.tolist()}], [pos])


def _command(env: TermEnv, name: str) -> Measurement:
    return Measurement(name, f"the command '{name}'", lambda: env.command_manager.get_command(name))


def _gait_recipe(env: TermEnv, frequency: float, command: str) -> Recipe:
    clock = {
        "command": command,
        "cycles_per_step": env.step_dt * frequency,
        "standing_below": state_values.STANDING_COMMAND,
    }
    return Recipe([{"gait_clock": clock}], [_command(env, command)])


def _contact_recipe(env: TermEnv, sensor: str) -> Recipe:
    links = env.sim.get_contact_sensor(sensor).names
    meaning = "1 where the link is in contact, else 0"
    return raw(Measurement(sensor, meaning, lambda: feet_contact(env, sensor), list(links)))


@measured("linear velocity of the base in its own frame, m/s")
def base_lin_vel(env: TermEnv) -> Tensor:
    """Return the base's linear velocity in the base's frame, [N, 3], m/s."""
    return env.robot.base.linear_velocity()


@measured("angular velocity of the base in its own frame, rad/s")
def base_ang_vel(env: TermEnv) -> Tensor:
    """Return the base's angular velocity in the base's frame, [N, 3], rad/s, as a gyroscope measures it."""
    return env.robot.base.angular_velocity()


@measured("unit vector downwards in the base's frame")
def projected_gravity(env: TermEnv) -> Tensor:
    """Return the unit vector downwards in the base's frame, [N, 3]; (0, 0, -1) while the base is level."""
    return env.robot.base.projected_gravity()


@deployed_as(_joint_pos_recipe)
def joint_pos_rel(env: TermEnv) -> Tensor:
    """Return the positions of the environment's active joints, less their initial ones, [N, J], rad or m."""
    part = env.active_part
    ids = constant(tuple(env.robot.get_joint_ids(part)), env.device)
    return env.robot.get_qpos(part) - env.robot.body_data.default_qpos[:, ids]


@measured("joint velocities, rad/s or m/s", _joint_names)
def joint_vel(env: TermEnv) -> Tensor:
    """Return the velocities of the environment's active joints, [N, J], rad/s or m/s."""
    return env.robot.get_qvel(env.active_part)


@deployed_as(lambda env: Recipe([{"last_action": True}]))
def last_action(env: TermEnv) -> Tensor:
    """Return the last action, [N, A]; 0 where an episode begins."""
    has_acted = env.elapsed_steps > 0
    return torch.where(has_acted[:, None], env.last_action, 0.0)


@deployed_as(lambda env, command: raw(_command(env, command)))
def generated_command(env: TermEnv, command: types.CommandName = types.BASE_VELOCITY) -> Tensor:
    """Return the command that the next action is to follow, [N, C]."""
    return env.command_manager.get_command(command)


@deployed_as(_gait_recipe)
def gait_phase(
    env: TermEnv, frequency: PositiveFloat = 2.0, command: types.CommandName = types.BASE_VELOCITY
) -> Tensor:
    """Return sine and cosine of the clock of a gait, [N, 2]; 0 where the command is to stand still.

    The clock starts at 0 with the episode; ``feet_gait`` rewards feet that keep its time.

    Args:
        frequency: strides in a second, 1/s.
    """
    phase = state_values.gait_clock(env, frequency)
    moving = state_values.is_moving(env.command_manager.get_command(command))
    return torch.stack((torch.sin(phase), torch.cos(phase)), dim=1) * moving[:, None]


@measured("height of the base's origin above the ground, m")
def base_height(env: TermEnv) -> Tensor:
    """Return the height of the base's origin above the ground, [N, 1], m."""
    return state_values.height_above_ground(env, env.robot.base.get()[:, :3])[:, None]


@deployed_as(_contact_recipe)
def feet_contact(env: TermEnv, sensor: types.SensorName) -> Tensor:
    """Return 1 where the force on a link of a contact sensor is above its ``force_threshold``, else 0: [N, F]."""
    return env.sim.get_contact_sensor(sensor).in_contact.float()


@measured("heights of the ground below a grid of points around the robot, relative to its base, m")
def height_scan(
    env: TermEnv,
    size: tuple[PositiveFloat, PositiveFloat] = (1.6, 1.0),
    resolution: PositiveFloat = 0.1,
    clip: PositiveFloat = 1.0,
) -> Tensor:
    """Return the heights of the ground below a grid of points around the robot, relative to its base, [N, P], m.

    The grid turns with the robot about the vertical axis. Point ``i * Py + j`` is the i-th along the robot's x, from
    behind it, and the j-th along y, from its right, of Px times Py points.

    Args:
        size: size of the grid along x and y, m.
        resolution: distance between neighbouring points, m.
        clip: largest height above or below the base, m.
    """
    row = env.robot.get_local_pose()
    xy = row[:, None, :2] + _turned(_grid(tuple(size), resolution, env.device), env.robot.base.rotation()[:, :2, 0])
    return torch.clamp(state_values.ground_height(env, xy) - row[:, 2:3], -clip, clip)


def _turned(points: Tensor, ahead: Tensor) -> Tensor:
    """Return points [P, 2] turned to x axes seen from above [N, 2]: [N, P, 2]; points where an axis is one."""
    cos, sin = torch.nn.functional.normalize(ahead, dim=-1)[:, :, None].unbind(1)
    px, py = points.unbind(-1)
    return torch.stack((cos * px - sin * py, sin * px + cos * py), dim=-1)


@lru_cache
def _grid(size: tuple[float, float], resolution: float, device: torch.device) -> Tensor:
    """Return the points of a grid around the origin, [P, 2], m; y changes fastest."""
    along = [resolution * (torch.arange(n) - (n - 1) / 2) for n in (round(edge / resolution) + 1 for edge in size)]
    return torch.cartesian_prod(*along).to(device)
