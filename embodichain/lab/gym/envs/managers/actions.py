"""Action terms. Shapes: N environments, J active joints."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import ActionTerm

__all__ = ["DeltaQposTerm", "QposTerm"]


class DeltaQposTerm(ActionTerm):
    """Targets are the present joint positions plus ``scale`` times the action, within the joint limits.

    Actions are in [-1, 1]; ``scale`` is in rad (or m) a control step.
    """

    @override
    def configure(self, scale: PositiveFloat = 1.0) -> None:
        self._scale = scale
        self._part = self.env.active_part
        limits = self.env.robot.body_data.qpos_limits[0, self.env.active_joint_ids]
        self._low, self._high = limits.unbind(dim=1)

    @property
    @override
    def action_dim(self) -> int:
        return len(self.env.active_joint_ids)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        target = torch.add(self.env.robot.get_qpos(self._part), action, alpha=self._scale)
        return {"qpos": torch.clamp(target, self._low, self._high)}


class QposTerm(ActionTerm):
    """Targets are ``scale`` times the action, within the joint limits."""

    @override
    def configure(self, scale: PositiveFloat = 1.0) -> None:
        self._scale = scale
        limits = self.env.robot.body_data.qpos_limits[0, self.env.active_joint_ids]
        self._low, self._high = limits.unbind(dim=1)

    @property
    @override
    def action_dim(self) -> int:
        return len(self.env.active_joint_ids)

    @property
    @override
    def action_limits(self) -> tuple[Tensor, Tensor]:
        return self._low / self._scale, self._high / self._scale

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"qpos": torch.clamp(action * self._scale, self._low, self._high)}
