"""Rollouts: their fields, their storage, and minibatches of them."""

from embodichain.agents.rl.buffer.batches import check_sequences, iterate_minibatches, learning_batch
from embodichain.agents.rl.buffer.demonstrations import Demonstrations, check_share
from embodichain.agents.rl.buffer.layout import (
    ROLLOUT_FIELDS,
    RolloutField,
    RolloutOrigin,
    allocate_rollout,
)
from embodichain.agents.rl.buffer.replay import ReplayBuffer
from embodichain.agents.rl.buffer.rollout_buffer import RolloutBuffer, check_rollout, num_env_steps, transition_view
from embodichain.agents.rl.buffer.vla_buffer import BufferClosedError, VLABuffer

__all__ = [
    "ROLLOUT_FIELDS",
    "BufferClosedError",
    "Demonstrations",
    "ReplayBuffer",
    "RolloutBuffer",
    "RolloutField",
    "RolloutOrigin",
    "VLABuffer",
    "allocate_rollout",
    "check_rollout",
    "check_sequences",
    "check_share",
    "iterate_minibatches",
    "learning_batch",
    "num_env_steps",
    "transition_view",
]
