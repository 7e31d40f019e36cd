"""The fields of a rollout, all of them declared here.

Legend: N envs, T rollout steps, O flattened observation size, A action size, S state size, H actions of a chunk, A'
log-probabilities of an action of a chunk.

A rollout is a TensorDict of batch size [N, T+1]. Slot t < T is the t-th transition. Slot T is the observation after the
last one and its value (the bootstrap); in every other field it is padding.

For a policy of chunks of H actions, a step is a decision; ``done``, ``terminated`` and ``truncated`` are
the chunk's. Otherwise H and A' are no dimensions.

A policy may write further fields, its ``extra_fields``: [N, T+1, width] float32 each, padding in slot T.

PPO needs a truncated step's ``final_value`` only. An algorithm with ``reads_final_obs`` also gets ``final``, the
policy's whole input at the end of the episode: a field of fixed size, written without waiting for a device. It doubles
the memory of ``obs``, ``entries`` and ``state`` (PushCube's quickstart: 2.7 MB become 4.9 MB), so other algorithms do
not have it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

Dimension = Literal["O", "A", "S", "H", "A'", "..."]


@dataclass(frozen=True)
class RolloutField:
    """One field of a rollout, [N, T+1, *shape]."""

    name: str  # its key
    writer: Literal["collector", "env"]  # the only component that writes it
    shape: tuple[Dimension, ...] = ()  # its dimensions behind [N, T+1]; "...": the environment's
    dtype: torch.dtype | None = torch.float32  # None: each entry has another
    exists: str = "always"  # the condition under which a rollout has it
    is_nested: bool = False  # a TensorDict of tensors by name
    is_real_at_the_end: bool = False  # slot T is real


# In the order in which a step makes them.
ROLLOUT_FIELDS = (
    RolloutField("obs", "collector", ("O",), is_real_at_the_end=True),  # or float64, see Policy.has_normalizer
    # Entries of the structured observation by name, each in its own dtype.
    RolloutField("entries", "collector", ("...",), None, "Policy.obs_keys", is_nested=True, is_real_at_the_end=True),
    # The recurrent state before the step.
    RolloutField("state", "collector", ("S",), exists="Policy.state_size", is_real_at_the_end=True),
    RolloutField("value", "collector", is_real_at_the_end=True),
    # As sampled: the env clips, the log-prob does not.
    RolloutField("action", "collector", ("H", "A")),
    RolloutField("sample_log_prob", "collector", ("H", "A'")),
    # Which of a chunk's actions were executed: all up to the end of an episode.
    RolloutField("executed", "env", ("H",), torch.bool, "Policy.chunk_length > 1"),
    RolloutField("reward", "env", ("H",)),
    RolloutField("done", "env", dtype=torch.bool),  # terminated | truncated
    RolloutField("terminated", "env", dtype=torch.bool),
    RolloutField("truncated", "env", dtype=torch.bool),
    # V(final observation) where truncated and not terminated, elsewhere 0.
    RolloutField("final_value", "collector"),
    # There, the policy's whole input: obs, and entries and state if it reads them. Elsewhere 0.
    RolloutField("final", "collector", ("...",), None, "BaseAlgorithm.reads_final_obs", is_nested=True),
    # From the step's info: "rewards/<term>" and "metrics/<name>" float32 (of a chunk the sum over its steps), "success"
    # and "diverged" bool.
    RolloutField("info", "collector", (), None, "the environment's info has it", is_nested=True),
    # Asynchronous collection: the version of the policy that chose the action (in slot T: the value), and the
    # number of versions that the learner's policy was ahead when it got the rollout.
    RolloutField("policy_version", "collector", (), torch.int64, "asynchronous", is_real_at_the_end=True),
    RolloutField("lag", "collector", (), torch.int64, "asynchronous, once handed out", is_real_at_the_end=True),
    RolloutField("origin", "collector", (), None, "asynchronous"),  # a RolloutOrigin, no tensor
)


@dataclass(frozen=True)
class RolloutOrigin:
    """The origin of a rollout."""

    env_set: int = 0  # index of the set of environments
    number: int = 0  # number of the set's rollouts begun before
    continues: bool = True  # no rollout was dropped between the set's previous one and this one
    state: dict[str, Any] | None = None  # of environments and collector after the last step, for a checkpoint


def allocate_rollout(
    num_envs: int,
    rollout_len: int,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    *,
    extra_fields: Sequence[tuple[str, int]] = (),
    state_size: int = 0,
    entries: TensorDict | None = None,
    chunk_length: int = 1,
    log_prob_size: int | None = None,
    obs_dtype: torch.dtype = torch.float32,
    has_final: bool = False,
    is_versioned: bool = False,
) -> TensorDict:
    """Return a zero-filled rollout of batch size [N, T+1].

    The storage is time-major ([T+1, N, ...], shown transposed): the data of one step, and of one iteration of the
    backward recursion of GAE, are contiguous.

    Args:
        extra_fields: names and widths of the policy's further fields.
        state_size: S; 0: no ``state``.
        entries: the policy's observation entries as the environment gives them, batch size [N]; None: no ``entries``.
        chunk_length: H; 1: single actions.
        log_prob_size: A', with chunks; None: A.
        obs_dtype: float32, or float64 of float64 observations that the policy normalises.
        has_final: has ``final``.
        is_versioned: has ``policy_version``.
    """
    slots = rollout_len + 1
    of_chunk, of_action = ((chunk_length,), (log_prob_size or action_dim,)) if chunk_length > 1 else ((), ())
    sizes = {"O": (obs_dim,), "A": (action_dim,), "S": (state_size,), "H": of_chunk, "A'": of_action}

    def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.zeros(slots, num_envs, *shape, dtype=dtype, device=device).transpose(0, 1)

    def nested(fields: dict[str, Any]) -> TensorDict:
        return TensorDict(fields, batch_size=[num_envs, slots], device=device)

    has = {
        "always": True,
        "Policy.state_size": state_size > 0,
        "Policy.chunk_length > 1": chunk_length > 1,
        "asynchronous": is_versioned,
    }
    fields: dict[str, Any] = {
        field.name: zeros(
            [n for dim in field.shape for n in sizes[dim]], obs_dtype if field.name == "obs" else field.dtype
        )
        for field in ROLLOUT_FIELDS
        if has.get(field.exists) and field.dtype is not None
    }
    fields |= {name: zeros([width], torch.float32) for name, width in extra_fields}
    if entries is not None:
        fields["entries"] = nested({str(name): zeros(x.shape[1:], x.dtype) for name, x in entries.items()})
    if has_final:
        inputs = [name for name in ("obs", "state", "entries") if name in fields]
        fields["final"] = nested({name: torch.zeros_like(fields[name]) for name in inputs})
    return nested(fields)


def env_steps(rollout: TensorDict) -> Tensor:
    """Return the number of environment steps of each step of a rollout [N, T+1], [N, T] int64: 1, or a chunk's."""
    if "executed" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
        return rollout["executed"][:, :-1].sum(2)
    num_envs, num_slots = rollout.batch_size
    return torch.ones(num_envs, num_slots - 1, dtype=torch.int64, device=rollout["reward"].device)


def num_env_steps(rollout: TensorDict) -> int:
    """Return the number of environment steps in a rollout [N, T+1]: N T; with chunks of actions, the executed ones."""
    return int(env_steps(rollout).sum())


def transition_view(rollout: TensorDict, flatten: bool) -> TensorDict:
    """Return the T transitions of a rollout [N, T+1], without the bootstrap slot.

    Args:
        flatten: join the two batch dimensions; row n*T + t is step t of environment n.

    Returns:
        A view of batch size [N, T], or a copy of batch size [N*T].
    """
    transitions = rollout[:, :-1]
    return transitions.reshape(-1) if flatten else transitions
