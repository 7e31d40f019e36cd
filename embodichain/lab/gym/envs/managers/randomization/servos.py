"""Random servos. Shapes: N environments, n in ``env_ids``, J joints."""

from pydantic import NonNegativeFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.randomization.physics import draw
from embodichain.lab.sim.backend import ServoBatchBackend
from embodichain.lab.sim.servos import HISTORY
from embodichain.utils import ConfigError

__all__ = ["randomize_servos"]


def randomize_servos(
    env: TermEnv,
    env_ids: Tensor,
    voltage_range: types.PositiveRange | None = None,
    sag_range: types.Range1 = (0.0, 0.0),
    lowest_voltage: NonNegativeFloat = 0.0,
    friction_range: types.PositiveRange = (1.0, 1.0),
    delay: types.Delay = (0, 0),
) -> None:
    """Draw the supply, dry friction and latency of the servos (``robot.drive_pros.servo``), one for all of a robot's.

    Args:
        voltage_range: ``[lowest, highest]`` supply, V; None: the servo's nominal one.
        sag_range: ``[lowest, highest]`` drop of the supply per torque of all servos, V/Nm.
        lowest_voltage: supply below which it does not sag, V.
        friction_range: ``[lowest, highest]`` factor of the dry friction; the viscous one stays.
        delay: ``[lowest, highest]`` physics substeps until a target reaches the servos.
    """
    backend, robot = env.sim.backend, env.robot
    if not isinstance(backend, ServoBatchBackend):
        raise ConfigError("randomize_servos: the robot has none; needed is robot.drive_pros.servo")
    longest = (HISTORY - 1) * env.cfg.sim_steps_per_control
    if delay[1] > longest:
        raise ConfigError(f"randomize_servos: params.delay: at most {longest} substeps, got {list(delay)}")
    nominal = backend.servos.nominal_voltage
    ranges = (voltage_range or (nominal, nominal), sag_range, friction_range, (delay[0], delay[1] + 1.0))
    low, high = zip(*ranges, strict=True)
    drawn = draw(env, env_ids, (low, high), 4)
    strength = (drawn[:, :1] / nominal).expand(-1, robot.dof)
    robot.drives.set_strength(strength, list(range(robot.dof)), env_ids)
    rows, servos = env_ids.numpy(), backend.servos
    servos.lowest_voltage = lowest_voltage
    servos.voltage[rows], servos.sag[rows], servos.friction[rows], late = drawn.numpy().T
    servos.delay[rows] = late.astype(int).clip(max=delay[1])
    servos.reset(rows)
