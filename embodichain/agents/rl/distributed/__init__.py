"""Several processes that share one training. One process is the same with nothing to share."""

from embodichain.agents.rl.distributed.heartbeat import HungProcessError, LostProcessError
from embodichain.agents.rl.distributed.moments import merged_moments, moments
from embodichain.agents.rl.distributed.process_group import (
    ProcessRanks,
    Ranks,
    adopt_process_group,
    forget_process_group,
    get_ranks,
    join_ranks,
)
from embodichain.agents.rl.distributed.rendezvous import RENDEZVOUS

__all__ = [
    "RENDEZVOUS",
    "HungProcessError",
    "LostProcessError",
    "ProcessRanks",
    "Ranks",
    "adopt_process_group",
    "forget_process_group",
    "get_ranks",
    "join_ranks",
    "merged_moments",
    "moments",
]
