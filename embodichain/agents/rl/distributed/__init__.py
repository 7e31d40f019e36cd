"""Several processes that share one training. One process is the same with nothing to share."""

from embodichain.agents.rl.distributed.placement import RENDEZVOUS
from embodichain.agents.rl.distributed.process_group import (
    LostProcessError,
    ProcessGroup,
    TorchProcessGroup,
    adopt_process_group,
    forget_process_group,
    get_process_group,
    join_process_group,
    merged_moments,
    moments,
)

__all__ = [
    "RENDEZVOUS",
    "LostProcessError",
    "ProcessGroup",
    "TorchProcessGroup",
    "adopt_process_group",
    "forget_process_group",
    "get_process_group",
    "join_process_group",
    "merged_moments",
    "moments",
]
