"""Actions around the reference."""

from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.actions import JointPositionTerm
from embodichain.lab.gym.envs.managers.base import CommandMap
from embodichain.lab.gym.envs.managers.motion.commands import motion_of

__all__ = ["MotionPositionTerm"]


class MotionPositionTerm(JointPositionTerm):
    """Targets are the reference's joint positions at the next frame plus ``scale`` times the action.

    Zero actions follow the reference as far as the drives can. Arguments are ``JointPositionTerm``'s.
    """

    @override
    def command_map(self) -> CommandMap | None:  # type: ignore[override]
        return None  # the offset depends on the frame

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        change = super().process_action(action)["qpos"] - self._default
        return {"qpos": motion_of(self.env).joints(1)[:, self.joint_ids] + change}
