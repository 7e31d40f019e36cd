"""Servos by BAM's model M6, and play of gears, in each physics substep. NumPy and a compiled model alone.

M6 (Duclusaud and Passault, "Extended friction models for the physics simulation of servo actuators", 2025; numbers of
Rhoban/bam) is a DC motor behind a position controller whose output is a voltage, with Coulomb, Stribeck and
load-dependent friction. The engine's own drives and dampers hold the controller, the back-EMF and the viscous friction;
dry friction, and targets with latency, the present supply and the encoder's view, are written before each substep.

`embodichain export` copies this file next to the script that runs a policy in plain MuJoCo.
Shapes: N copies of a model, n in ``rows``, J servos.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

HISTORY = 5
"""Number of commands that are remembered: a command may be late by up to four of them."""
_MOTOR = "_motor"  # end of the name of a joint that is the motor of another
_MARK = 4096.5  # first of the user's numbers of an actuator that is a servo, and of a joint that is a motor
_TIME, _IMPEDANCE = 0.01, (0.99, 0.9999)  # of the engine's constraint that is the dry friction: s, lowest and highest


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
        ratio = np.abs(np.float32(speed / self.stribeck_speed))  # float32, whose powers are several times as fast
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
    def back_emf(self) -> float:
        """Damping by the voltage that the turning motor induces, Nm s/rad."""
        return self.torque_constant**2 / self.resistance

    def put(self, actuator: Any, joint: Any, gain: float | None) -> None:
        """Make a position actuator and its joint this servo; ``gain`` in the register's unit, None: the servo's own."""
        stall = self.voltage * self.torque_constant / self.resistance
        stiffness = (self.gain if gain is None else gain) * self.duty_gain * stall
        actuator.gainprm[0], actuator.biasprm[:3] = stiffness, [0.0, -stiffness, 0.0]
        actuator.forcerange = [-self.max_duty * stall, self.max_duty * stall]
        joint.actfrclimited, joint.armature = 0, self.armature
        joint.damping[0], joint.frictionloss = self.viscous + self.back_emf, self.friction.limit(0.0, 0.0, 0.0)
        # Dry friction as stiff as the substeps allow: by the engine's default a joint creeps under its load.
        joint.solref_friction, joint.solimp_friction = [_TIME, 1.0], [*_IMPEDANCE, 0.001, 0.5, 2.0]
        actuator.userdata = [_MARK, list(SERVOS.values()).index(self)]


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


def add_play(spec: Any, name: str, size: float) -> Any:
    """Give a joint a motor that moves it through play (``size`` to each side, rad or m); return the motor's joint.

    The motor is coupled to the joint by the limits of their difference alone, as teeth of gears are. It takes over
    armature, damping, dry friction and the limit of the drive's effort.
    """
    joint = spec.joint(name)
    body = joint.parent.add_body(name=f"{name}{_MOTOR}", mass=1e-6, inertia=[1e-9] * 3, explicitinertial=True)
    motor = body.add_joint(name=body.name, type=joint.type, axis=joint.axis, userdata=[_MARK])
    for key in ("ref", "armature", "damping", "frictionloss", "actfrcrange", "actfrclimited"):
        setattr(motor, key, getattr(joint, key))
    joint.armature, joint.frictionloss, joint.damping = 0.0, 0.0, [0.0, 0.0, 0.0]
    # With an inertia of its own, kg m^2 or kg: light links would cross the play within a substep.
    gears = spec.add_tendon(name=motor.name, limited=1, range=[-size, size], armature=1e-4)
    gears.solref_limit, gears.solimp_limit = [0.01, 1.0], [0.95, 0.99, 0.001, 0.5, 2.0]
    gears.wrap_joint(name, 1.0)
    gears.wrap_joint(motor.name, -1.0)
    return motor


def joint_of(model: Any, joint: int) -> int:
    """Return the joint that a motor with play moves, or the joint itself."""
    return model.joint(model.joint(joint).name.removesuffix(_MOTOR)).id if _marked(model.jnt_user)[joint] else joint


def has_servos(model: Any) -> bool:
    """Return whether a compiled model has servos or joints with play."""
    return any(_marked(user).any() for user in (model.actuator_user, model.jnt_user))


class Servos:
    """The drives of N copies of a model that has servos or joints with play.

    Attributes:
        servo: the servo, one for the whole model.
        is_servo: [J] whether a drive is a servo; the others have play alone.
        voltage: [N] supply, V.
        sag: [N] drop of the supply per torque of all servos, V/Nm.
        lowest_voltage: V, below which the supply does not sag.
        friction: [N] factor of the dry friction.
        delay: [N] int64, substeps until a command reaches the servos.
    """

    state_names = (
        *("voltage", "sag", "lowest_voltage", "friction", "delay"),
        *("_commands", "_goal", "_load", "_begins", "_last_joints"),
    )

    def __init__(self, model: Any, num: int, read: Callable[[str], np.ndarray], own: Callable[[str], np.ndarray]):
        """Start at rest; ``read(name)`` is a field of the data [N, ...], always current, ``own(name)`` of the model."""
        is_servo, moved = _marked(model.actuator_user), model.actuator_trnid[:, 0]
        has_play = np.isin(moved, np.flatnonzero(_marked(model.jnt_user))) & (model.actuator_trntype == 0)
        self._drives = np.flatnonzero(is_servo | has_play)
        self.is_servo, motors = is_servo[self._drives], moved[self._drives]
        self._motors, self._dofs = model.jnt_qposadr[motors], model.jnt_dofadr[motors[self.is_servo]]
        moving = [joint_of(model, motor) for motor in motors]
        self._joints = model.jnt_qposadr[moving]
        self._speeds = model.jnt_dofadr[moving], model.jnt_dofadr[motors]  # of joints and motors
        kinds = {int(model.actuator_user[a, 1]) for a in np.flatnonzero(is_servo)}
        if len(kinds) > 1:
            raise ValueError("the scene's servos are of different kinds")
        self.servo = list(SERVOS.values())[next(iter(kinds), 0)]
        dt = float(model.opt.timestep)
        self._stride = np.where(self.is_servo, self.servo.max_speed * dt, np.inf)  # rad, of a goal in a substep
        # Force of the engine's friction constraint: clip(-D (acceleration + B speed), -limit, limit).
        self._efc_d = _IMPEDANCE[0] / (1.0 - _IMPEDANCE[0])  # divided by the present inverse weight
        self._efc_b = 2.0 / (_IMPEDANCE[1] * max(_TIME, 2.0 * dt))  # the engine takes no time below two time steps
        names = ("qpos", "qvel", "ctrl", "qacc", "qfrc_actuator", "qfrc_bias", "qfrc_constraint")
        self._data = {name: read(name) for name in names}
        self._limits, self._inverse_weight = own("dof_frictionloss"), own("dof_invweight0")
        self._gains, self._efforts = own("actuator_gainprm"), own("actuator_forcerange")
        own("actuator_forcelimited")[:, np.flatnonzero(is_servo)] = False  # the present supply is the limit
        self.voltage = np.full(num, self.servo.voltage)
        self.sag, self.friction, self.delay = np.zeros(num), np.ones(num), np.zeros(num, dtype=np.int64)
        self.lowest_voltage = 0.0
        self._commands = np.zeros((num, HISTORY, len(motors)))  # oldest first
        self._goal = np.zeros((num, len(motors)))
        self._load = np.zeros(num)  # Nm, of all servos in the last substep
        self._begins = np.ones(num, dtype=bool)  # with the next step
        self._last_joints = np.zeros((num, len(motors)))  # rad or m, after the last step
        self.reset(np.arange(num))

    def reset(self, rows: np.ndarray) -> None:
        """Let rows [n] begin at rest with the next step, holding the pose that they have then."""
        self._begins[rows] = True
        self._load[rows] = 0.0
        self._limits[_at(rows, self._dofs)] = self.friction[rows, None] * self.servo.friction.limit(0.0, 0.0, 0.0)

    def set_friction(self, rows: np.ndarray, factor: np.ndarray) -> None:
        """Set the factor [n] of the dry friction in rows [n], from the next substep on."""
        self._limits[_at(rows, self._dofs)] *= (factor / self.friction[rows])[:, None]
        self.friction[rows] = factor

    def step(self, rows: np.ndarray | slice, substeps: int, advance: Callable[[], None]) -> None:
        """Let a control step pass in rows [n]; ``advance`` lets a substep of them pass."""
        numbers = np.arange(len(self._begins))[rows]
        new = numbers[self._begins[rows]]
        qpos, encoders, motors = self._data["qpos"], _at(rows, self._joints), _at(rows, self._motors)
        # A joint that a reset or an event has set takes its motor along.
        is_set = (qpos[encoders] != self._last_joints[rows]) | self._begins[rows][:, None]
        qpos[motors] = np.where(is_set, qpos[encoders], qpos[motors])
        qvel, (speeds, turning) = self._data["qvel"], (_at(rows, dofs) for dofs in self._speeds)
        qvel[turning] = np.where(is_set, qvel[speeds], qvel[turning])
        if len(new):  # the present poses are all earlier commands
            self._goal[new] = qpos[_at(new, self._joints)]
            self._commands[new], self._begins[new] = self._goal[new, None], False
        ctrl, at = self._data["ctrl"], _at(rows, self._drives)
        target = ctrl[at].copy()
        self._commands[rows] = np.concatenate((self._commands[rows, 1:], target[:, None]), axis=1)
        # The error, rad, from which on the motor has the full voltage.
        window = np.where(self.is_servo, self._efforts[(*at, 1)] / self._gains[(*at, 0)], np.inf)
        for substep in range(substeps):
            late = -((substep - self.delay[rows]) // substeps)  # commands ago, rounded up
            goal = self._commands[numbers, HISTORY - 1 - np.clip(late, 0, HISTORY - 1)]
            self._goal[rows] = np.clip(goal, self._goal[rows] - self._stride, self._goal[rows] + self._stride)
            error = np.clip(self._goal[rows] - qpos[encoders], -window, window)
            ctrl[at] = qpos[motors] + self._supply(rows) * error  # the engine's drive sees the motor, and no supply
            speed = self._data["qvel"][_at(rows, self._dofs)].copy()
            advance()
            self._update_friction(rows, speed)
        ctrl[at], self._last_joints[rows] = target, qpos[encoders]

    def _supply(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the present supply as a share of the nominal one, [n, J]; 1 for drives that are no servos."""
        voltage = self.voltage[rows]
        sagged = voltage - self.sag[rows] * self._load[rows]
        present = np.maximum(sagged, np.minimum(self.lowest_voltage, voltage))
        return np.where(self.is_servo, present[:, None] / self.servo.voltage, 1.0)

    def _update_friction(self, rows: np.ndarray | slice, speed: np.ndarray) -> None:
        """Write the dry friction of the next substep from the torques of the last one, which began at ``speed``."""
        at = _at(rows, self._dofs)
        force, acceleration, bias, constraint, now = (
            self._data[name][at] for name in ("qfrc_actuator", "qacc", "qfrc_bias", "qfrc_constraint", "qvel")
        )
        limit, efc_d = self._limits[at], self._efc_d / self._inverse_weight[at]
        friction = np.clip(-efc_d * (acceleration + self._efc_b * speed), -limit, limit)
        motor = force - self.servo.back_emf * speed
        drawn = self.servo.friction.limit(motor, constraint - bias - friction, now)
        self._limits[at] = self.friction[rows, None] * drawn
        self._load[rows] = np.abs(motor).sum(axis=1)


def _marked(user: np.ndarray) -> np.ndarray:
    """Return where the first of the user's numbers [n, k] is the mark, [n]."""
    return (user == _MARK)[:, :1].any(axis=1)


def _at(rows: np.ndarray | slice, columns: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the index of a table's rows and columns."""
    return (rows if isinstance(rows, slice) else rows[:, None]), columns
