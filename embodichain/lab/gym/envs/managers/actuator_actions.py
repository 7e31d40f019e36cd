"""Actions for the actuators of a scene's file. Shapes: N environments, A actuators."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.utils import ConfigError

__all__ = ["ActuatorTerm"]


class ActuatorTerm(ActionTerm):
    """Actions are the controls of all actuators of the model, as MuJoCo's ``ctrl``: torques, targets and so on.

    Actions are within the actuators' ``ctrlrange``, and unbounded without one. It is the only term then.
    """

    kind = "ctrl"

    @override
    def choose_joints(self, part_name: str | None) -> None:
        self.part, self.joint_ids = None, []

    @override
    def configure(self) -> None:
        if not self.action_dim:
            raise ConfigError("the scene's file has no actuator, so that there is nothing to act with")

    @property
    @override
    def action_dim(self) -> int:
        return int(self.env.sim.model.nu)

    @property
    @override
    def action_limits(self) -> tuple[Tensor, Tensor]:
        model = self.env.sim.model
        ranges = torch.tensor(model.actuator_ctrlrange, dtype=torch.float32, device=self.device)
        limited = torch.tensor(model.actuator_ctrllimited, dtype=torch.bool, device=self.device)
        low, high = ranges.unbind(1)
        return torch.where(limited, low, -torch.inf), torch.where(limited, high, torch.inf)

    @override
    def command_map(self) -> CommandMap:
        model, (low, high) = self.env.sim.model, self.action_limits
        names = [model.actuator(i).name or f"actuator {i}" for i in range(model.nu)]
        return CommandMap("control of the actuator", names, torch.zeros_like(low), torch.ones_like(low), low, high)

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"ctrl": action}
