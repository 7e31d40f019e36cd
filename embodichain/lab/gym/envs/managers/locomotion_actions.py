"""Action terms of legged robots. Shapes: N environments, J joints of the term."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap

__all__ = ["JointPositionTerm"]


class JointPositionTerm(ActionTerm):
    """Targets are the initial joint positions plus ``scale`` times the action; the drives are PD controllers.

    Targets may lie outside the joint limits, since a drive's effort follows from the distance to its target.

    Args:
        scale: rad or m of an action of 1.
        limit: actions are clipped to [-limit, limit].
        part_name: the control part; None: the environment's active joints.
    """

    kind = "qpos"

    @override
    def configure(self, scale: PositiveFloat = 0.25, limit: PositiveFloat = 10.0, part_name: str | None = None) -> None:
        self.choose_joints(part_name)
        self._scale, self._limit = scale, limit
        self._default = self.env.robot.body_data.default_qpos[0, self.joint_ids]

    @property
    @override
    def action_limits(self) -> tuple[Tensor, Tensor]:
        limit = torch.full((len(self.joint_ids),), self._limit, device=self.device)
        return -limit, limit

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command("joint position, rad or m", self._scale, self._default)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"qpos": torch.add(self._default, action, alpha=self._scale)}
