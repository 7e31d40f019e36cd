"""Runs an exported policy on its robot in plain MuJoCo. It needs MuJoCo, NumPy and ONNX Runtime, and nothing else.

    python mujoco_robot.py --command 0.5 0 0 --seconds 10 --viewer

`embodichain export` writes it next to the policy, with `scene.mjb`: the compiled model with the drives' gains, whose
keyframe 0 is the training's initial state. J joints that act.
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
    """

    def __init__(self, model: Any, spec: dict[str, Any]) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.data.qpos[:] = spec["mujoco"]["start"]
        self._substeps = round(spec["control_period_s"] / model.opt.timestep)
        prefix = spec["mujoco"]["prefix"]
        joints = [model.joint(f"{prefix}{drive['name']}") for drive in spec["drives"]]
        self._qpos, self._qvel = [int(j.qposadr[0]) for j in joints], [int(j.dofadr[0]) for j in joints]
        actuator_of = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu)}
        self._actuators = [actuator_of[model.joint(f"{prefix}{part['name']}").id] for part in spec["command"]]
        self._free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)[:1]

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
        for _ in range(self._substeps):
            mujoco.mj_step(self.model, self.data)


def main() -> None:
    """Let the policy control the robot, and print how it moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=float, nargs="+", help="of the policy; default: that of the export")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--viewer", action="store_true", help="show MuJoCo's viewer, at the robot's pace")
    args = parser.parse_args()
    here = Path(__file__).parent
    policy = PolicyRunner(next(here.glob("*.onnx")))
    period = policy.spec["control_period_s"]
    robot = Robot(mujoco.MjModel.from_binary_path(str(here / "scene.mjb")), policy.spec)
    commands = {name: np.array(args.command or value) for name, value in policy.spec["mujoco"]["commands"].items()}
    viewer = mujoco.viewer.launch_passive(robot.model, robot.data) if args.viewer else None
    rows = []
    for _ in range(round(args.seconds / period)):
        robot.apply(policy.act(robot.measure() | commands)["command"])
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
