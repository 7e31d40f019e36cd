"""The action term that moves a tool in a horizontal plane. Shapes: N environments, J joints of the term."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError

# Of inverse kinematics in one step. The target moves by centimetres, and each search starts from the last one's end.
_IK_ITERATIONS = 3


class EefPlaneTerm(ActionTerm):
    """Shifts the tool centre point's target along x and y of the environment's frame; height and orientation stay.

    The target begins each episode where the tool is. Actions are in [-1, 1].

    Args:
        scale: largest shift in a control step, m.
        low: lowest x and y of the target, m.
        high: highest x and y of the target, m.
        part_name: the control part; None: the environment's active joints.
    """

    kind = "qpos"

    def __init__(self, cfg: ActionTermCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        assert self.part is not None
        self._target = env.robot.get_eef_pose(self.part).clone()  # [N, 4, 4]

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.02,
        low: tuple[float, float] = (-float("inf"), -float("inf")),
        high: tuple[float, float] = (float("inf"), float("inf")),
        part_name: str | None = None,
    ) -> None:
        self.choose_joints(part_name)
        if self.part is None:
            raise ConfigError("params.part_name: EefPlaneTerm needs a control part with a tool")
        if not all(a < b for a, b in zip(low, high, strict=True)):
            raise ConfigError(f"params.low: must be below 'high' in x and y, got {list(low)} and {list(high)}")
        self._scale = scale
        self._low, self._high = (torch.tensor(ends, device=self.env.device) for ends in (low, high))

    @property
    @override
    def action_dim(self) -> int:
        return 2

    @override
    def command_map(self) -> CommandMap:
        factor = torch.full((2,), self._scale)
        endless = torch.full_like(factor, float("inf"))
        return CommandMap(
            "change of the tool's target: m", ["x", "y"], torch.zeros_like(factor), factor, -endless, endless
        )

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        robot = self.env.robot
        assert self.part is not None
        target = self._target.clone()
        target[:, :2, 3] = torch.clamp(target[:, :2, 3] + self._scale * action, self._low, self._high)
        self._target = target
        seed = robot.get_qpos_target(self.part)
        success, qpos = robot.compute_ik(target, seed, self.part, iterations=_IK_ITERATIONS)
        return {"qpos": qpos, "ik_success": success}

    @override
    def reset(self, env_ids: Tensor) -> None:
        assert self.part is not None
        self._target = self._target.index_copy(0, env_ids, self.env.robot.get_eef_pose(self.part)[env_ids])
