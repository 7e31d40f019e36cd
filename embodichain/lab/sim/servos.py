"""Servos by BAM's model M6, and play of gears, in each physics substep. NumPy and a compiled model alone.

M6 (Duclusaud and Passault, "Extended friction models for the physics simulation of servo actuators", 2025; numbers of
Rhoban/bam) is a DC motor behind a position controller whose output is a voltage, with Coulomb, Stribeck and
load-dependent friction. The engine's own drives and dampers hold the controller, the limit of the voltage, the back-EMF
and the viscous friction; dry friction, which depends on the load, is written before each substep, as are late commands,
the sag of the supply and the controller's view of a joint with play.

`embodichain export` copies this file next to the script that runs a policy in plain MuJoCo.
Shapes: N copies of a model, n in ``rows``, J servos.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

HISTORY = 5
"""Number of commands that are remembered: a command may be late by up to four of them."""
_PLAY = "_play"  # end of the name of a joint that is the play of another
_MARK = 4096.5  # first of the user's numbers of an actuator that is a servo, and of a joint that is a play


@dataclass(frozen=True)
class Friction:
    """Friction of a servo: torques in Nm, load coefficients without unit, quadratic ones in 1/Nm, speeds in rad/s."""

    base: float
    stribeck: float
    motor: float
    external: float
    motor_stribeck: float
    external_stribeck: float
    motor_quadratic: float
    external_quadratic: float
    stribeck_speed: float
    stribeck_exponent: float

    def limit(self, motor: Any, external: Any, speed: Any) -> Any:
        """Return the largest dry friction, Nm, at a motor's torque, the load's torque (Nm) and a speed (rad/s)."""
        # In float32, whose powers are several times as fast.
        ratio = np.abs(np.float32(speed / self.stribeck_speed))
        slow = np.exp(-(ratio ** np.float32(self.stribeck_exponent)))  # 1 at rest, 0 when fast
        load = np.abs(external * self.external - motor * self.motor)
        load_slow = np.abs(external * self.external_stribeck - motor * self.motor_stribeck)
        strong, weak = motor * motor, external * external
        squared = np.where(strong > weak, self.external_quadratic * weak, self.motor_quadratic * strong)
        # Only where motor and load push against each other.
        squared = np.where((np.sign(motor) != np.sign(external)) & (strong != weak), squared, 0.0)
        return self.base + load + slow * (self.stribeck + load_slow + squared)


@dataclass(frozen=True)
class Servo:
    """Numbers of a servo.

    Attributes:
        torque_constant: Nm/A, or V s/rad.
        resistance: ohm.
        armature: kg m^2, at the joint.
        duty_gain: duty cycle per rad of error and unit of the controller's gain.
        gain: position gain of the controller, in its register's unit.
        max_duty: largest duty cycle, 0 to 1.
        voltage: nominal supply, V.
        max_speed: largest speed of the controller's own goal, rad/s.
        viscous: viscous friction, Nm s/rad.
    """

    torque_constant: float
    resistance: float
    armature: float
    duty_gain: float
    gain: float
    max_duty: float
    voltage: float
    max_speed: float
    viscous: float
    friction: Friction

    @property
    def torque_per_volt(self) -> float:
        """Torque of the motor at rest, Nm/V."""
        return self.torque_constant / self.resistance

    @property
    def back_emf(self) -> float:
        """Damping by the voltage that the turning motor induces, Nm s/rad."""
        return self.torque_per_volt * self.torque_constant

    def put(self, actuator: Any, joint: Any, gain: float | None) -> None:
        """Make a position actuator of a spec and its joint this servo.

        Args:
            gain: position gain in the register's unit; None: the servo's own.
        """
        stall = self.voltage * self.torque_per_volt
        stiffness = (self.gain if gain is None else gain) * self.duty_gain * stall
        actuator.gainprm[0], actuator.biasprm[:3] = stiffness, [0.0, -stiffness, 0.0]
        actuator.forcerange = [-self.max_duty * stall, self.max_duty * stall]
        joint.actfrclimited, joint.armature = 0, self.armature
        joint.damping[0], joint.frictionloss = self.viscous + self.back_emf, self.friction.limit(0.0, 0.0, 0.0)
        # Dry friction as stiff as the substeps allow: by the engine's default a joint creeps under its load.
        joint.solref_friction, joint.solimp_friction = [0.01, 1.0], [0.99, 0.9999, 0.001, 0.5, 2.0]
        own = [getattr(self.friction, field.name) for field in fields(Friction)]
        actuator.userdata = [_MARK, self.back_emf, self.voltage, self.max_speed, *own]


SERVOS = {
    "xl330": Servo(
        torque_constant=0.366013,
        resistance=2.811392,
        armature=0.001807743,
        duty_gain=4096 / (2 * math.pi) / (256 * 885),
        gain=400.0,
        max_duty=1.0,
        voltage=7.5,
        max_speed=1e9,
        viscous=0.005359668,
        friction=Friction(
            *(0.004771183, 0.004676346, 0.2667861, 8.515872e-06, 1.072292e-05),
            *(0.08077929, 0.009972471, 0.004902566, 2.890372, 8.68326),
        ),
    ),
    "sts3215": Servo(
        torque_constant=1.27532,
        resistance=2.753421,
        armature=0.02156429,
        duty_gain=0.166 * 1.161698,
        gain=32.0,
        max_duty=0.97,
        voltage=7.4,
        max_speed=5.095754,
        viscous=0.02816054,
        friction=Friction(
            *(0.05331348, 4.257322e-05, 0.04491201, 0.2435548, 0.0001244898),
            *(0.1422906, 0.007594943, 0.003404087, 0.3711368, 9.930949),
        ),
    ),
}
"""Dynamixel XL330 and Feetech STS3215 (7.4 V), by the names of their identified parameters in Rhoban/bam."""


def add_play(joint: Any, size: float) -> None:
    """Put a joint of ``size`` (rad or m; degrees in a spec of degrees) to both sides in series: the play of gears."""
    play = joint.parent.add_joint(name=f"{joint.name}{_PLAY}", type=joint.type, pos=joint.pos, axis=joint.axis)
    play.limited, play.range, play.armature, play.damping[0] = 1, [-size, size], 1e-4, 0.0
    play.frictionloss, play.stiffness[0], play.ref, play.springref = 0.0, 0.0, 0.0, 0.0
    play.solref_limit, play.solimp_limit, play.userdata = [0.01, 1.0], [0.95, 0.99, 0.001, 0.5, 2.0], [_MARK]


def has_servos(model: Any) -> bool:
    """Return whether a compiled model has servos or joints with play."""
    return any(user.size and (user[:, 0] == _MARK).any() for user in (model.actuator_user, model.jnt_user))


class Servos:
    """The drives of N copies of a model that has servos or joints with play.

    Attributes:
        nominal_voltage: V.
        voltage: [N] supply, V; the drives' gains and limits are in proportion to it.
        sag: [N] drop of the supply per torque of all servos, V/Nm.
        lowest_voltage: V, below which the supply does not sag.
        friction: [N] factor of the dry friction.
        delay: [N] int64, substeps until a command reaches the servos.
        seen: addresses of joints and of their plays, by field of the data: an encoder sees the sum.
    """

    state_names = ("voltage", "sag", "lowest_voltage", "friction", "delay", "_commands", "_goal", "_load", "_begins")

    def __init__(self, model: Any, num: int, read: Callable[[str], np.ndarray], own: Callable[[str], np.ndarray]):
        """Start at rest.

        Args:
            read: function from the name of a field of the data to its array [N, ...], which stays current.
            own: the same of a field of the model, to be written.
        """
        user = model.actuator_user if model.actuator_user.size else np.zeros((model.nu, 1))
        plays = np.flatnonzero(model.jnt_user[:, 0] == _MARK) if model.jnt_user.size else np.zeros(0, int)
        driven = [model.joint(model.joint(play).name.removesuffix(_PLAY)).id for play in plays]
        of_joint = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu) if model.actuator_trntype[a] == 0}
        servos = np.flatnonzero(user[:, 0] == _MARK)
        self.seen = {
            "qpos": (model.jnt_qposadr[driven], model.jnt_qposadr[plays]),
            "qvel": (model.jnt_dofadr[driven], model.jnt_dofadr[plays]),
        }
        playing = np.array([of_joint[joint] for joint in driven], dtype=np.int64)
        changed = np.union1d(servos, playing).astype(np.int64)  # actuators whose targets are changed
        self._playing, self._servos = (_columns(np.searchsorted(changed, each)) for each in (playing, servos))
        self._changed, self._actuators = _columns(changed), _columns(servos)
        self._joints = _columns(model.jnt_qposadr[model.actuator_trnid[changed, 0]])
        dofs = model.jnt_dofadr[model.actuator_trnid[servos, 0]]
        self._dofs = _columns(dofs)
        numbers = user[servos, 1:].T if len(servos) else np.zeros((13, 0))
        back_emf, voltage, max_speed, *friction = numbers  # [J] each
        self._back_emf, self._max_speed, self._friction = back_emf, max_speed, Friction(*friction)
        self._rest = self._friction.limit(0.0, 0.0, np.zeros(len(servos)))
        # Force of the engine's friction constraint: clip(-D (acceleration + B speed), -limit, limit).
        self._dt = float(model.opt.timestep)
        imp = model.dof_solimp[dofs]
        self._efc_d = imp[:, 0] / (1.0 - imp[:, 0])  # divided by the present inverse weight
        # The engine takes no time constant below two time steps.
        self._efc_b = 2.0 / (imp[:, 1] * np.maximum(model.dof_solref[dofs, 0], 2.0 * self._dt))
        names = ("qpos", "qvel", "ctrl", "qacc", "qfrc_actuator", "qfrc_bias", "qfrc_constraint")
        self._data = {name: read(name) for name in names}
        self._limits, self._inverse_weight = own("dof_frictionloss"), own("dof_invweight0")
        self._supplied = [own(name) for name in ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange")]
        if len({*voltage}) > 1:
            raise ValueError("the scene's servos have different nominal supplies")
        self.nominal_voltage = float(voltage[0]) if len(voltage) else 1.0
        self.voltage = np.full(num, self.nominal_voltage)
        self.sag, self.friction, self.delay = np.zeros(num), np.ones(num), np.zeros(num, dtype=np.int64)
        self.lowest_voltage = 0.0
        self._commands = np.zeros((num, HISTORY, len(changed)))  # oldest first
        self._goal = np.zeros((num, len(changed)))
        self._load = np.zeros(num)  # Nm, of all servos in the last substep
        self._begins = np.ones(num, dtype=bool)  # with the next step
        self.reset(np.arange(num))

    def reset(self, rows: np.ndarray) -> None:
        """Let rows [n] begin at rest with the next step, holding the pose that they have then."""
        self._begins[rows] = True
        self._load[rows] = 0.0
        self._limits[_at(rows, self._dofs)] = self.friction[rows, None] * self._rest

    def step(self, rows: np.ndarray | slice, substeps: int, advance: Callable[[], None]) -> None:
        """Let a control step pass in rows [n].

        Args:
            advance: let a substep of these rows pass.
        """
        ctrl, at = self._data["ctrl"], _at(rows, self._changed)
        if self._begins.any():
            self._begin(np.arange(len(self._begins))[rows])
        target = ctrl[at].copy()
        self._commands[rows, :-1] = self._commands[rows, 1:]
        self._commands[rows, -1] = target
        places = [*_at(rows, self._actuators)]
        supplied = [(each, (*places, number)) for each, number in zip(self._supplied, (0, 1, slice(2)), strict=True)]
        full = [each[place].copy() for each, place in supplied] if self.sag.any() else []
        for substep in range(substeps):
            ctrl[at] = self._targets(rows, substep, substeps)
            voltage = self.voltage[rows]
            sagged = voltage - self.sag[rows] * self._load[rows]
            share = np.maximum(sagged, np.minimum(self.lowest_voltage, voltage)) / voltage
            for (each, place), values in zip(supplied, full, strict=False):
                each[place] = values * share.reshape(-1, *[1] * (values.ndim - 1))
            speed = self._data["qvel"][_at(rows, self._dofs)].copy()
            advance()
            self._update_friction(rows, speed)
        ctrl[at] = target
        for (each, place), values in zip(supplied, full, strict=False):
            each[place] = values

    def _begin(self, rows: np.ndarray) -> None:
        """Make the present poses all earlier commands where an episode begins, of rows [n]."""
        rows = rows[self._begins[rows]]
        qpos = self._data["qpos"]
        self._goal[rows] = qpos[_at(rows, self._joints)]
        self._goal[_at(rows, self._playing)] += qpos[_at(rows, self.seen["qpos"][1])]
        self._commands[rows] = self._goal[rows, None]
        self._begins[rows] = False

    def _targets(self, rows: np.ndarray | slice, substep: int, substeps: int) -> np.ndarray:
        """Return the controllers' targets in a substep, less the play that their encoders see behind the joint."""
        late = -((substep - self.delay[rows]) // substeps)  # commands ago, rounded up
        numbers = np.arange(len(self._commands))[rows]
        goal = self._commands[numbers, HISTORY - 1 - np.clip(late, 0, HISTORY - 1)]
        step, before = self._max_speed * self._dt, self._goal[rows][:, self._servos]
        goal[:, self._servos] = np.clip(goal[:, self._servos], before - step, before + step)
        self._goal[rows] = goal
        goal[:, self._playing] -= self._data["qpos"][rows][:, self.seen["qpos"][1]]
        return goal

    def _update_friction(self, rows: np.ndarray | slice, speed: np.ndarray) -> None:
        """Write the dry friction of the next substep from the torques of the last one, which began at ``speed``."""
        at = _at(rows, self._dofs)
        force, acceleration, bias, constraint, now = (
            self._data[name][at] for name in ("qfrc_actuator", "qacc", "qfrc_bias", "qfrc_constraint", "qvel")
        )
        limit = self._limits[at]
        efc_d = self._efc_d / self._inverse_weight[at]
        friction = np.clip(-efc_d * (acceleration + self._efc_b * speed), -limit, limit)
        motor = force - self._back_emf * speed
        drawn = self._friction.limit(motor, constraint - bias - friction, now)
        self._limits[at] = self.friction[rows, None] * drawn
        self._load[rows] = np.abs(motor).sum(axis=1)


def _columns(numbers: np.ndarray) -> np.ndarray | slice:
    """Return numbers of equal distances as a slice, which is faster to read and to write."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    if len(numbers) and step > 0 and (np.diff(numbers) == step).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1, step)
    return numbers.astype(np.int64)


def _at(rows: np.ndarray | slice, columns: np.ndarray | slice) -> tuple[Any, Any]:
    """Return the index of a table's rows and columns."""
    is_list = isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray)
    return (rows[:, None] if is_list else rows), columns  # type: ignore[index]
