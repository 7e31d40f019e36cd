"""What the environments say of each step, kept with the rollout that it belongs to.

Legend: N envs, T rollout steps, K figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict

__all__ = ["RolloutOrigin", "StepFigures"]


@dataclass(frozen=True)
class RolloutOrigin:
    """Where a rollout comes from.

    Attributes:
        group: the environments that it was collected in, 0 where there is one group.
        number: how many rollouts the group had begun before.
        continues: nothing is missing between the group's rollout that was handed out before and this one.
        divergences: what ``Divergences.take`` says of it; environments are numbered through the groups.
        state: of the environments and their collector after its last step, for a checkpoint; None: they keep none.
    """

    group: int
    number: int
    continues: bool
    divergences: tuple[int, dict[str, torch.Tensor]] = field(default_factory=lambda: (0, {}))
    state: dict[str, Any] | None = None


class StepFigures:
    """Records reward terms, metrics and successes of the steps of one rollout; the host reads nothing."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._steps: list[torch.Tensor] = []

    def on_step(self, step: TensorDict, info: dict[str, Any]) -> None:
        """Take in one step."""
        named = {f"{kind}/{name}": value for kind in ("rewards", "metrics") for name, value in info[kind].items()}
        named["success"] = info["success"]
        self._names = list(named)
        # Of a chunk of actions, [N, H], the sum over the steps that were executed: the others are 0.
        totals = [value if value.dim() == 1 else value.sum(1) for value in named.values()]
        self._steps.append(torch.stack(totals).to(torch.float32))

    def take(self) -> TensorDict:
        """Return the figures by name, float32 [N, T+1] each, 0 in slot T; and begin anew.

        Of a chunk of actions they are sums over its steps, but for ``success``. The names are ``rewards/<term>``,
        ``metrics/<name>`` and ``success``.
        """
        steps = torch.stack([*self._steps, torch.zeros_like(self._steps[0])])  # [T+1, K, N]
        self._steps.clear()
        columns = dict(zip(self._names, steps.permute(1, 2, 0).unbind(0), strict=True))
        return TensorDict(columns, batch_size=[steps.shape[2], steps.shape[0]])

    def clear(self) -> None:
        """Forget the steps of an unfinished rollout."""
        self._steps.clear()
