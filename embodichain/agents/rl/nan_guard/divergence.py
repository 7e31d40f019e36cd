"""Episodes that ended because the physics became invalid: how many, where, and after what.

Legend: N envs, T rollout steps, n diverged envs.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

__all__ = ["MAX_DIVERGENCE_RATE", "WINDOW", "find_divergences"]

MAX_DIVERGENCE_RATE = 1e-3  # divergences per environment step of an iteration above which a run warns
WINDOW = 10  # steps before a divergence that are recorded


def find_divergences(rollout: TensorDict) -> tuple[int, dict[str, Tensor]]:
    """Return what a rollout [N, T+1] says of divergences.

    Returns:
        How many there were, and of the n diverged environments ``env_ids`` [n] (numbered through the env sets),
        ``count`` [n], the ``slot`` [n] of the rollout in which each diverged last, what the environment told of its
        state before that step, [n, ...] by name, and ``obs`` [n, WINDOW, O] and ``action`` [n, WINDOW, ...] of the
        steps up to that one, of which the last ``window`` [n] are of this rollout and the others 0.
    """
    diverged = rollout.get(("info", "diverged"), None)
    if diverged is None:
        return 0, {}
    diverged = diverged[:, :-1]
    count = diverged.sum(dim=1)
    total = int(count.sum())
    if not total:
        return 0, {}
    rows = count.nonzero().squeeze(1)
    steps = torch.arange(diverged.shape[1], device=diverged.device)
    slot = torch.where(diverged, steps, -1).amax(dim=1)[rows]
    states = rollout.get("state_before", None)
    record = {"env_ids": rows, "count": count[rows], "slot": slot}
    record |= {} if states is None else {str(name): value[rows, 0] for name, value in states.items()}
    record["window"] = (slot + 1).clamp(max=WINDOW)
    slots = slot.unsqueeze(1) - torch.arange(WINDOW - 1, -1, -1, device=rows.device)  # [n, WINDOW]
    for name in ("obs", "action"):
        values = rollout[name][rows.unsqueeze(1), slots.clamp(min=0)]
        before = (slots < 0).reshape(*slots.shape, *[1] * (values.dim() - slots.dim()))
        record[name] = values.masked_fill(before, 0.0)
    if "origin" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
        record["env_ids"] = rows + rollout["origin"].env_set * rollout.batch_size[0]
    return total, record
