"""Several processes that share one training. One process is the same with nothing to share."""

from embodichain.agents.rl.distributed.process_group import ProcessGroup, get_process_group, join_process_group

__all__ = ["ProcessGroup", "get_process_group", "join_process_group"]
