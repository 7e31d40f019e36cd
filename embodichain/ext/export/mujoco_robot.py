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


class Robot:
    """The robot of a compiled model, driven by ``mj_step`` alone.

    Args:
        spec: specification of the exported policy.

    Attributes:
        model, data: of MuJoCo.
        longest_delay: control steps that a target of servos may be late.
    """

    def __init__(self, model: Any, spec: dict[str, Any]) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.data.qpos[:] = spec["mujoco"]["start"]
        self.data.ctrl[:] = spec["mujoco"]["targets"]
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
            data, own = self.data, model
            self.servos = Servos(
                model, 1, lambda name: getattr(data, name)[None], lambda name: getattr(own, name)[None]
            )

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


class FlatPolicy:
    """A policy of one flat input in place of the exported one: MicroDuck's, or another one with the same inputs."""

    def __init__(self, path: str, exported: PolicyRunner) -> None:
        import onnxruntime  # noqa: PLC0415

        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._exported = exported
        self._map = [[part[key] for part in exported.spec["command"]] for key in ("offset", "factor")]

    def act(self, measurements: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``command`` for raw measurements of one robot."""
        builder = self._exported.builder
        inputs = builder({name: np.asarray(value, np.float32)[None] for name, value in measurements.items()})
        obs = np.concatenate([*inputs.values()], axis=1)
        (action,) = self._session.run(None, {self._session.get_inputs()[0].name: obs})
        builder.last_action = action
        offset, factor = np.array(self._map)
        return {"command": offset + factor * action[0]}


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
    parser.add_argument("--viewer", action="store_true", help="show MuJoCo's viewer, at the robot's pace")
    args = parser.parse_args()
    here = Path(__file__).parent
    policy = PolicyRunner(next(here.glob("*.onnx")))
    period = policy.spec["control_period_s"]
    model = mujoco.MjModel.from_binary_path(str(here / "scene.mjb"))
    model.opt.timestep = args.timestep or model.opt.timestep
    robot = Robot(model, policy.spec)
    if robot.servos:
        if args.late > robot.longest_delay * period:
            parser.error(f"--late: at most {robot.longest_delay * period} s")
        robot.servos.voltage[:] = args.voltage or robot.servos.servo.voltage
        robot.servos.delay[:] = round(args.late / model.opt.timestep)
    commands = {name: np.array(value) for name, value in policy.spec["mujoco"]["commands"].items()}
    commands |= {name: np.array(args.command) for name in [*commands][:1] if args.command}
    policies = [FlatPolicy(path, policy) for path in args.policies] if args.policies else [policy]
    viewer = mujoco.viewer.launch_passive(robot.model, robot.data) if args.viewer else None
    rows = [robot.measure()]
    steps = round(args.seconds / period)
    for step in range(steps):
        late = {name: rows[-2:][0][name] for name in args.lag}
        robot.apply(policies[step * len(policies) // steps].act(rows[-1] | late | commands)["command"])
        rows.append(robot.measure())
        if viewer is not None:
            viewer.sync()
            time.sleep(period)
    for name, value in commands.items():
        print(f"{name}: {value.tolist()}")
    for name in rows[0]:
        print(f"{name}: {np.mean([row[name] for row in rows], axis=0).round(3).tolist()} on average")


if __name__ == "__main__":
    main()
