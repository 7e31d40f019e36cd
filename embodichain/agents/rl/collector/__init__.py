"""Collectors: they run the policy in the environments and fill rollouts."""

from typing import TYPE_CHECKING

from embodichain.agents.rl.collector.sync_collector import BaseCollector, StepCallback, SyncCollector
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.asynchronous.async_collector import AsyncCollector as AsyncCollector
    from embodichain.ext.asynchronous.inference import InferencePolicy as InferencePolicy
    from embodichain.ext.asynchronous.inference import PolicyPublisher as PolicyPublisher
    from embodichain.ext.asynchronous.inference import PolicySnapshot as PolicySnapshot

__all__ = [
    "AsyncCollector",
    "BaseCollector",
    "InferencePolicy",
    "PolicyPublisher",
    "PolicySnapshot",
    "StepCallback",
    "SyncCollector",
]

_INFERENCE = "embodichain.ext.asynchronous.inference"

__getattr__ = face(
    __name__,
    {
        "AsyncCollector": "embodichain.ext.asynchronous.async_collector",
        "InferencePolicy": _INFERENCE,
        "PolicyPublisher": _INFERENCE,
        "PolicySnapshot": _INFERENCE,
    },
)
