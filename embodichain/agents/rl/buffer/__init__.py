"""Rollouts: their fields, their storage, and minibatches of them."""

from typing import TYPE_CHECKING

from embodichain.agents.rl.buffer.layout import RolloutOrigin, allocate_rollout, transition_view
from embodichain.agents.rl.buffer.replay import EXPERT, Demonstrations, ReplayBuffer, check_finite
from embodichain.agents.rl.buffer.rollout_buffer import RolloutBuffer, iterate_minibatches, learning_batch
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.asynchronous.vla_buffer import BufferClosedError, VLABuffer

__all__ = [
    "EXPERT",
    "BufferClosedError",
    "Demonstrations",
    "ReplayBuffer",
    "RolloutBuffer",
    "RolloutOrigin",
    "VLABuffer",
    "allocate_rollout",
    "check_finite",
    "iterate_minibatches",
    "learning_batch",
    "transition_view",
]

_WAITING = "embodichain.ext.asynchronous.vla_buffer"

__getattr__ = face(__name__, {"BufferClosedError": _WAITING, "VLABuffer": _WAITING})
