"""What the ranks of a training have in common and what each has for itself, in its checkpoints and figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.utils import logger

# Of a checkpoint's entries, what each rank has for itself.
OWN = ("generators", "statistics", "collector", "env", "stores")


def with_all_parts(content: dict[str, Any], process_group: ProcessGroup, is_together: bool) -> dict[str, Any]:
    """Return a checkpoint's content with what the other ranks have: complete on rank 0.

    Args:
        is_together: all ranks do this; else the others' parts stay out, and environments will begin new episodes.
    """
    own = {name: content[name] for name in OWN if name in content}
    parts = process_group.gather_data(own, only_to_main=True) if is_together else [own]
    return content | {"world_size": process_group.world_size, "other_ranks": parts[1:]}


def own_part(content: dict[str, Any], process_group: ProcessGroup) -> dict[str, Any] | None:
    """Return what this rank had for itself, or None, with one warning, where it cannot go on from there."""
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
        logger.log_warning(
            f"{why}: policy, optimiser, normaliser and counters go on, and the environments begin new episodes; the "
            "training does not go on bit for bit"
        )
    return None


def bundle_folder(run: Path, process_group: ProcessGroup) -> Path:
    """Return where a rank keeps bundles: what is not finite has come from the samples of one of them."""
    folder = run / "bundles"
    return folder if process_group.world_size == 1 else folder / f"rank_{process_group.rank}"


def mean_over_ranks(scalars: Mapping[str, float | torch.Tensor], process_group: ProcessGroup) -> dict[str, float]:
    """Return the means of metrics over the ranks, numbers or scalars; all have the same names, in the same order."""
    values = [value.item() if isinstance(value, torch.Tensor) else float(value) for value in scalars.values()]
    if process_group.world_size == 1:
        return dict(zip(scalars, values, strict=True))
    means = process_group.mean(torch.tensor(values, dtype=torch.float64))
    return dict(zip(scalars, means.tolist(), strict=True))


def check_in_step(policy: nn.Module, process_group: ProcessGroup) -> None:
    """Check that all ranks have the same parameters and buffers.

    Raises:
        RuntimeError: they have not, on all ranks.
    """
    names = process_group.differing(policy.state_dict())
    if names:
        raise RuntimeError(
            f"the processes' policies have parted: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}. An "
            "algorithm must average its gradients before each step, by gradient_step or "
            "get_process_group().average_gradients; a policy's own statistics must be merged by "
            "get_process_group().gather (see docs/distributed.md)"
        )
