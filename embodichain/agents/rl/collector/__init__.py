"""Collectors: what runs the policy in the environments and fills rollouts."""

from embodichain.agents.rl.collector.asynchronous.async_collector import AsyncCollector
from embodichain.agents.rl.collector.asynchronous.inference import InferencePolicy, PolicyPublisher, PolicySnapshot
from embodichain.agents.rl.collector.base import BaseCollector, StepCallback
from embodichain.agents.rl.collector.sync_collector import SyncCollector

__all__ = [
    "AsyncCollector",
    "BaseCollector",
    "InferencePolicy",
    "PolicyPublisher",
    "PolicySnapshot",
    "StepCallback",
    "SyncCollector",
]
