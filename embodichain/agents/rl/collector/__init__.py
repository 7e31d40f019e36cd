"""Collectors: what runs the policy in the environments and fills rollouts."""

from embodichain.agents.rl.collector.base import BaseCollector, StepCallback
from embodichain.agents.rl.collector.sync_collector import SyncCollector

__all__ = ["BaseCollector", "StepCallback", "SyncCollector"]
