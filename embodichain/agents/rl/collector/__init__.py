"""Collectors: they run the policy in the environments and fill rollouts."""

from typing import TYPE_CHECKING

from embodichain.agents.rl.collector.sync_collector import BaseCollector, SyncCollector
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.asynchronous.collector import AsyncCollector, InferencePolicy, PolicyPublisher, PolicySnapshot

__all__ = ["AsyncCollector", "BaseCollector", "InferencePolicy", "PolicyPublisher", "PolicySnapshot", "SyncCollector"]

_EXTENSION = ("AsyncCollector", "InferencePolicy", "PolicyPublisher", "PolicySnapshot")

__getattr__ = face(__name__, dict.fromkeys(_EXTENSION, "embodichain.ext.asynchronous.collector"))
