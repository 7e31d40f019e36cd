"""Shared and per-rank state in checkpoints, and metrics merged over the ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.utils import logger

# Entries of a checkpoint that each rank has for itself.
OWN = ("generators", "statistics", "collector", "env", "stores")


def with_all_parts(content: dict[str, Any], process_group: ProcessGroup, is_together: bool) -> dict[str, Any]:
    """Return a checkpoint's content with the other ranks' parts: complete on rank 0.

    Args:
        is_together: all ranks call this; else the others' parts are missing, and a resume begins new episodes.
    """
    own = {name: content[name] for name in OWN if name in content}
    parts = process_group.gather_data(own, only_to_main=True) if is_together else [own]
    return content | {"world_size": process_group.world_size, "other_ranks": parts[1:]}


def own_part(content: dict[str, Any], process_group: ProcessGroup) -> dict[str, Any] | None:
    """Return this rank's own entries of a checkpoint; None, with one warning, if it cannot continue from them."""
    others, world_size = content.get("other_ranks", []), content.get("world_size", 1)
    if process_group.world_size == world_size == 1 + len(others):
        return (
            {name: content[name] for name in OWN if name in content}
            if process_group.is_main
            else others[process_group.rank - 1]
        )
    if process_group.is_main:
        why = (
            f"the run had {world_size} processes and now has {process_group.world_size}"
            if process_group.world_size != world_size
            else "a process had failed when the checkpoint was written"
        )
        empty = ", and the replay buffers begin empty" if content.get("stores") else ""
        logger.log_warning(
            f"{why}: policy, optimiser, normaliser and counters continue, the environments begin new episodes{empty}; "
            "the resumed training is not bit-identical"
        )
    return None


def mean_over_ranks(scalars: dict[str, float], process_group: ProcessGroup) -> dict[str, float]:
    """Return the means of metrics over the ranks; all have the same names, in the same order."""
    if process_group.world_size == 1:
        return scalars
    means = process_group.mean(torch.tensor(list(scalars.values()), dtype=torch.float64))
    return dict(zip(scalars, means.tolist(), strict=True))


def check_in_step(policy: nn.Module, process_group: ProcessGroup) -> None:
    """Check that all ranks have the same parameters and buffers; a RuntimeError on all ranks if not."""
    names = process_group.differing(policy.state_dict())
    if names:
        raise RuntimeError(
            f"the processes' policies have parted: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}. An "
            "algorithm must average its gradients before each step, by gradient_step or "
            "get_process_group().average_gradients; a policy's own statistics must be merged by "
            "get_process_group().gather (see docs/distributed.md)"
        )
