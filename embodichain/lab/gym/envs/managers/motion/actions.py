"""Actions around the reference."""

from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.actions import JointPositionTerm
from embodichain.lab.gym.envs.managers.base import CommandMap
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.utils.device import constant


class MotionPositionTerm(JointPositionTerm):
    """Targets are the reference's joints at the next frame plus ``scale`` times the action.

    With the reference's positions and velocities q and qd they are q + damping / stiffness qd, so that the drives damp
    the difference to qd rather than all motion. Arguments are ``JointPositionTerm``'s.
    """

    @override
    def command_map(self) -> CommandMap | None:  # type: ignore[override]
        return None  # the offset depends on the frame

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        change = super().process_action(action)["qpos"] - self._default
        robot, joints = self.env.robot, constant(tuple(self.joint_ids), self.device)
        stiffness, damping = robot.drives.configured_gains
        pos, vel = motion_of(self.env).joints(1).split(robot.dof, dim=1)
        return {"qpos": (pos + damping / stiffness * vel)[:, joints] + change}
