"""Action terms that shift a tool. Shapes: N environments, J joints of the term, D coordinates that are shifted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

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


class _EefShiftTerm(ActionTerm):
    """Shifts the tool centre point's target along the first D axes; everything else of its pose stays."""

    kind = "qpos"
    axes: ClassVar[str]
    """Names of the D coordinates."""

    def __init__(self, cfg: ActionTermCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        assert self.part is not None
        self._target = env.robot.get_eef_pose(self.part).clone()  # [N, 4, 4]

    def _set_shift(self, scale: float, low: Sequence[float], high: Sequence[float], part_name: str | None) -> None:
        self.choose_joints(part_name)
        if self.part is None:
            raise ConfigError(f"params.part_name: {type(self).__name__} needs a control part with a tool")
        if not all(a < b for a, b in zip(low, high, strict=True)):
            names = f"{', '.join(self.axes[:-1])} and {self.axes[-1]}"
            raise ConfigError(f"params.low: must be below 'high' in {names}, got {list(low)} and {list(high)}")
        self._scale = scale
        self._low, self._high = (torch.tensor(ends, device=self.env.device) for ends in (low, high))

    @property
    def scale(self) -> float:
        """Largest shift in a control step, m."""
        return self._scale

    @property
    @override
    def action_dim(self) -> int:
        return len(self.axes)

    @override
    def command_map(self) -> CommandMap:
        factor = torch.full((self.action_dim,), self._scale)
        endless = torch.full_like(factor, float("inf"))
        return CommandMap(
            "change of the tool's target: m", list(self.axes), torch.zeros_like(factor), factor, -endless, endless
        )

    @override
    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        robot, size = self.env.robot, self.action_dim
        assert self.part is not None
        target = self._target.clone()
        target[:, :size, 3] = torch.clamp(target[:, :size, 3] + self._scale * action, self._low, self._high)
        self._target = target
        seed = robot.get_qpos_target(self.part)
        success, qpos = robot.compute_ik(target, seed, self.part, iterations=_IK_ITERATIONS)
        return {"qpos": qpos, "ik_success": success}

    @override
    def reset(self, env_ids: Tensor) -> None:
        assert self.part is not None
        self._target = self._target.index_copy(0, env_ids, self.env.robot.get_eef_pose(self.part)[env_ids])


class EefPlaneTerm(_EefShiftTerm):
    """Shifts the tool centre point's target along x and y of the environment's frame; height and orientation stay.

    The target begins each episode where the tool is. Actions are in [-1, 1].

    Args:
        scale: largest shift in a control step, m.
        low: lowest x and y of the target, m.
        high: highest x and y of the target, m.
        part_name: the control part; None: the environment's active joints.
    """

    axes = "xy"

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.02,
        low: tuple[float, float] = (-math.inf, -math.inf),
        high: tuple[float, float] = (math.inf, math.inf),
        part_name: str | None = None,
    ) -> None:
        self._set_shift(scale, low, high, part_name)


class EefPositionTerm(_EefShiftTerm):
    """Shifts the tool centre point's target along x, y and z of the environment's frame; the orientation stays.

    The target begins each episode where the tool is. Actions are in [-1, 1].

    Args:
        scale: largest shift along each axis in a control step, m.
        low: lowest x, y and z of the target, m.
        high: highest x, y and z of the target, m.
        part_name: the control part; None: the environment's active joints.
    """

    axes = "xyz"

    @override
    def configure(
        self,
        scale: PositiveFloat = 0.02,
        low: tuple[float, float, float] = (-math.inf, -math.inf, -math.inf),
        high: tuple[float, float, float] = (math.inf, math.inf, math.inf),
        part_name: str | None = None,
    ) -> None:
        self._set_shift(scale, low, high, part_name)
