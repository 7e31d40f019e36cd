"""Runs an exported policy on its robot in plain MuJoCo. It needs MuJoCo, NumPy and ONNX Runtime, and nothing else.

    python mujoco_robot.py --command 0.5 0 0 --seconds 10 --viewer

`embodichain export` writes it next to the policy, with `scene.mjb`: the compiled model with the drives' gains, whose
keyframe 0 is the training's initial state, and with `servos.py` where the robot has servos. J joints that act.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import mujoco.viewer
import numpy as np
from policy_runner import PolicyRunner  # type: ignore[import-not-found] # the file next to this one

KEYS = {265: (0, 0.1), 264: (0, -0.1), 263: (2, 0.1), 262: (2, -0.1), 44: (1, 0.1), 46: (1, -0.1)}
"""Change of the command, m/s or rad/s, and its place, by the viewer's code of the arrows up, down, left and right, the
comma and the full stop."""
_FALLEN = -0.7  # z of the projected gravity beyond which a robot has fallen
_SPREAD = 0.05  # rad or m, of the joints' positions where several episodes begin


class Robot:
    """The robot of a compiled model, driven by ``mj_step`` alone.

    Args:
        spec: specification of the exported policy.

    Attributes:
        model, data: of MuJoCo.
        longest_delay: control steps that a target of servos may be late.
    """

    def __init__(self, model: Any, spec: dict[str, Any]) -> None:
        self.model, self.data, self._start = model, mujoco.MjData(model), spec["mujoco"]
        self._substeps = round(spec["control_period_s"] / model.opt.timestep)
        prefix = spec["mujoco"]["prefix"]
        joints = [model.joint(f"{prefix}{drive['name']}") for drive in spec["drives"]]
        self._qpos, self._qvel = [int(j.qposadr[0]) for j in joints], [int(j.dofadr[0]) for j in joints]
        self._actuators = [model.actuator(f"{prefix}{part['name']}").id for part in spec["command"]]
        self._free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)[:1]
        self.servos: Any = None
        if Path(__file__).with_name("servos.py").is_file():
            from servos import HISTORY, Servos  # type: ignore[import-not-found] # noqa: PLC0415 (the file next to this one)

            self.longest_delay = HISTORY - 1
            views = [lambda name, of=of: getattr(of, name)[None] for of in (self.data, model)]
            self.servos = Servos(model, 1, *views)
        self.reset()

    def reset(self, offsets: np.ndarray | float = 0.0) -> None:
        """Begin an episode as the exported one did, with the joints' positions ``offsets`` [J] away, rad or m."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.ctrl[:] = self._start["start"], self._start["targets"]
        self.data.qpos[self._qpos] += offsets
        if self.servos:
            self.servos.reset(np.zeros(1, int))

    def measure(self) -> dict[str, np.ndarray]:
        """Return raw measurements of the joints and, if it is free, the base."""
        pos, vel = self.data.qpos, self.data.qvel
        measured = {"joint_pos": pos[self._qpos], "joint_vel": vel[self._qvel]}
        for at, speed in zip(self.model.jnt_qposadr[self._free], self.model.jnt_dofadr[self._free], strict=True):
            rotation = np.zeros(9)
            mujoco.mju_quat2Mat(rotation, pos[at + 3 : at + 7])
            world_to_base = rotation.reshape(3, 3).T
            measured["base_lin_vel"] = world_to_base @ vel[speed : speed + 3]
            measured["base_ang_vel"] = vel[speed + 3 : speed + 6].copy()
            measured["projected_gravity"] = -world_to_base[:, 2]
        return measured

    def apply(self, targets: np.ndarray) -> None:
        """Set the drives' targets, and let a control step pass."""
        self.data.ctrl[self._actuators] = targets
        if self.servos:
            self.servos.step(np.zeros(1, int), self._substeps, lambda: mujoco.mj_step(self.model, self.data))
            return
        for _ in range(self._substeps):
            mujoco.mj_step(self.model, self.data)


def press(command: np.ndarray, key: int) -> None:
    """Let a key of the viewer change a velocity command."""
    if key in KEYS and len(command) == 3:
        number, change = KEYS[key]
        command[number] += change
        print(f"command: {command.round(3).tolist()}")


def main() -> None:
    """Let the policy control the robot, and print how it moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=float, nargs="+", help="the first of the policy's; default: the export's")
    parser.add_argument("--policies", nargs="+", help="files of one flat input, each for its part of the time")
    parser.add_argument("--lag", nargs="*", default=[], help="measurements that are a control step old: joint_vel")
    parser.add_argument("--timestep", type=float, help="s; default: the training's")
    parser.add_argument("--voltage", type=float, help="of servos, V; default: their nominal one")
    parser.add_argument("--late", type=float, default=0.0, help="s until a target reaches the servos")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--episodes", type=int, default=1, help="above 1: commands up to --command, starts that differ")
    parser.add_argument("--viewer", action="store_true", help="at the robot's pace; keys: arrows, comma, full stop")
    args = parser.parse_args()
    here = Path(__file__).parent
    policy = PolicyRunner(next(here.glob("*.onnx")))
    period = policy.spec["control_period_s"]
    model = mujoco.MjModel.from_binary_path(str(here / "scene.mjb"))
    model.opt.timestep = args.timestep or model.opt.timestep
    substeps = round(period / model.opt.timestep, 6)
    if substeps < 1 or substeps % 1:
        parser.error(f"--timestep: a whole number of time steps must be the control period of {period} s")
    robot = Robot(model, policy.spec)
    if args.voltage and not (robot.servos and robot.servos.is_servo.any()):
        parser.error("--voltage: no drive of the robot is a servo")
    if robot.servos:
        if args.late > robot.longest_delay * period:
            parser.error(f"--late: at most {robot.longest_delay * period} s")
        robot.servos.voltage[:] = args.voltage or robot.servos.servo.voltage
        robot.servos.delay[:] = round(args.late / model.opt.timestep)
    elif args.late:
        parser.error("--late: the robot has neither servos nor play")
    commands = {name: np.array(value) for name, value in policy.spec["mujoco"]["commands"].items()}
    commands |= {name: np.array(args.command) for name in [*commands][:1] if args.command}
    command = next(iter(commands.values()), np.zeros(0))
    policies = [PolicyRunner(path, policy.spec) for path in args.policies or ()] or [policy]
    for each in policies:
        each.builder = policy.builder  # with the last action, whichever policy took it
    offset, factor = (np.array([part[key] for part in policy.spec["command"]]) for key in ("offset", "factor"))
    viewer = None
    if args.viewer:
        viewer = mujoco.viewer.launch_passive(model, robot.data, key_callback=lambda key: press(command, key))
    random, largest, steps = np.random.default_rng(0), command.copy(), round(args.seconds / period)
    rows: list[dict[str, np.ndarray]] = []
    errors: list[float] = []
    falls = 0
    for _ in range(args.episodes):
        if args.episodes > 1:
            command[:] = largest * random.uniform(-1.0, 1.0, len(command))
            robot.reset(random.uniform(-_SPREAD, _SPREAD, len(policy.spec["drives"])))
        for each in policies:
            each.reset()
        now, stands = robot.measure(), True
        for step in range(steps):
            late = {name: (rows[-1] if step else now)[name] for name in args.lag}
            rows.append(now)
            out = policies[step * len(policies) // steps].act(now | late | commands)
            robot.apply(out["command"] if "command" in out else offset + factor * out["action"])
            now = robot.measure()
            if "base_lin_vel" in now and len(command) == 3:
                stands = stands and now["projected_gravity"][2] < _FALLEN
                errors += [float(np.linalg.norm(now["base_lin_vel"][:2] - command[:2]))] if stands else []
            if viewer is not None:
                viewer.sync()
                time.sleep(period)
        falls += not stands
    for name, value in commands.items():
        print(f"{name}: {value.tolist()}")
    for name in rows[0]:
        print(f"{name}: {np.mean([row[name] for row in rows], axis=0).round(3).tolist()} on average")
    if errors:
        print(f"velocity error {np.mean(errors):.3f} m/s until a fall, falls {falls} of {args.episodes}")


if __name__ == "__main__":
    main()
