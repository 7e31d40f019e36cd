"""Rollouts: their fields, their storage, and minibatches of them."""

from typing import TYPE_CHECKING

from embodichain.agents.rl.buffer.layout import ROLLOUT_FIELDS, RolloutField, RolloutOrigin, allocate_rollout
from embodichain.agents.rl.buffer.replay import (
    EXPERT,
    Demonstrations,
    ReplayBuffer,
    check_digest,
    check_finite,
    check_share,
)
from embodichain.agents.rl.buffer.rollout_buffer import (
    RolloutBuffer,
    check_rollout,
    check_sequences,
    iterate_minibatches,
    learning_batch,
    num_env_steps,
    transition_view,
)
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.asynchronous.vla_buffer import BufferClosedError, VLABuffer

__all__ = [
    "EXPERT",
    "ROLLOUT_FIELDS",
    "BufferClosedError",
    "Demonstrations",
    "ReplayBuffer",
    "RolloutBuffer",
    "RolloutField",
    "RolloutOrigin",
    "VLABuffer",
    "allocate_rollout",
    "check_digest",
    "check_finite",
    "check_rollout",
    "check_sequences",
    "check_share",
    "iterate_minibatches",
    "learning_batch",
    "num_env_steps",
    "transition_view",
]

_WAITING = "embodichain.ext.asynchronous.vla_buffer"

__getattr__ = face(__name__, {"BufferClosedError": _WAITING, "VLABuffer": _WAITING})
