"""Action terms of legged robots. Shapes: N environments, J joints of the term, K actions on their way, oldest first."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.lab.gym.envs.managers.delay_line import Delay, draw_delay, push, read

__all__ = ["JointPositionTerm"]


class JointPositionTerm(ActionTerm):
    """Targets are the initial joint positions plus ``scale`` times the action; the drives are PD controllers.

    Targets may lie outside the joint limits, since a drive's effort follows from the distance to its target.

    Args:
        scale: rad or m of an action of 1.
        limit: actions are clipped to [-limit, limit].
        part_name: the control part; None: the environment's active joints.
        delay: ``[lowest, highest]`` control steps until an action reaches the drives, drawn for each episode. Before
            its first action does, the targets are the initial positions.
    """

    kind = "qpos"

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.25,
        limit: PositiveFloat = 10.0,
        part_name: str | None = None,
        delay: Delay = (0, 0),
    ) -> None:
        self.choose_joints(part_name)
        self._scale, self._limit, self._delay = scale, limit, delay
        self._default = self.env.robot.body_data.default_qpos[0, self.joint_ids]
        self._sent = torch.zeros(self.num_envs, 1 + delay[1], len(self.joint_ids), device=self.device)  # [N, K, J]
        self._lag = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)

    @property
    @override
    def action_limits(self) -> tuple[Tensor, Tensor]:
        limit = torch.full((len(self.joint_ids),), self._limit, device=self.device)
        return -limit, limit

    @override
    def command_map(self) -> CommandMap:
        return self.joint_command("joint position, rad or m", self._scale, self._default)

    @override
    def reset(self, env_ids: Tensor) -> None:
        if self._delay[1]:
            self._sent = self._sent.index_fill(0, env_ids, 0.0)
            self._lag = self._lag.index_copy(0, env_ids, draw_delay(self.env.random, env_ids, self._delay))

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        if self._delay[1]:
            self._sent = push(self._sent, action)
            action = read(self._sent, self._lag)
        return {"qpos": torch.add(self._default, action, alpha=self._scale)}
