"""Whether a policy has what collectors and algorithms need of it, found out before anything is trained.

Legend: M rows of the probe, L sequence length, A action size, H actions of a chunk, A' log-probabilities of an action.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout, learning_batch
from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorOnly
from embodichain.agents.rl.models.block import space_size
from embodichain.agents.rl.models.policy import EVALUATED, Policy
from embodichain.agents.rl.models.recurrent import ActorCriticRecurrent
from embodichain.agents.rl.models.vla.policy import VLAPolicy
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name
from embodichain.utils.module_utils import takes
from embodichain.utils.observations import entry_spaces
from embodichain.utils.state import generators_state, load_generators_state

__all__ = ["check_policy", "check_policy_class"]

_ROWS = 2  # M; with one, [M, 1] broadcasts to [M, M] as if it were right
_BUILT_IN = (ActorCritic, ActorCriticRecurrent, ActorOnly, VLAPolicy)
# How the methods are declared, and with how many arguments, `self` included, they are called.
_METHODS = {
    "forward": ("forward(td, deterministic=False)", 3),
    "get_action": ("get_action(td, deterministic=False)", 3),
    "get_value": ("get_value(td)", 2),
    "evaluate_actions": ("evaluate_actions(td)", 2),
}
_INTERFACE = (
    "forward(td, deterministic=False), get_value(td) and evaluate_actions(td), which read and write a TensorDict"
)


def check_policy_class(policy_class: Any) -> None:
    """Check that a class is a policy whose methods can be called as ``Policy`` declares them.

    Raises:
        ConfigError: it is none; one line that says what is missing or different.
    """
    name = getattr(policy_class, "__name__", repr(policy_class))
    if not (inspect.isclass(policy_class) and issubclass(policy_class, Policy)):
        raise ConfigError(f"policy {name}: is no subclass of embodichain.agents.rl.models.Policy")
    if takes(policy_class.evaluate_actions, 3) and not takes(policy_class.evaluate_actions, 2):
        raise ConfigError(
            f"policy {name}: has the interface of older versions, get_action(obs) -> (action, log_prob, value) and "
            f"evaluate_actions(obs, actions). Expected are {_INTERFACE}: see docs/coming_from.md"
        )
    missing = [text for method, (text, _) in _METHODS.items() if method in policy_class.__abstractmethods__]
    if missing:
        raise ConfigError(f"policy {name}: lacks {', '.join(missing)}. Expected are {_INTERFACE}")
    for method, (text, count) in _METHODS.items():
        function = getattr(policy_class, method)
        if not takes(function, count):
            raise ConfigError(f"policy {name}: expected is {text}, got {method}{inspect.signature(function)}")


def check_policy(
    policy: Policy,
    obs_space: spaces.Space[Any] | int,
    action_space: spaces.Space[Any] | int,
    device: torch.device | str,
    *,
    observation_space: spaces.Dict | None = None,
    evaluated: Sequence[str] = EVALUATED,
) -> None:
    """Call a policy as a collector and an algorithm will, on observations of zeros, and check what it writes.

    The built-in policies are taken as they are. Random generators and the policy's buffers are left as they were.

    Args:
        policy: the policy.
        obs_space: flattened observation space, or its size.
        action_space: the action space, whose last dimension is A, or A.
        device: where the policy is.
        observation_space: one environment's structured observation space; a policy that reads entries of it is only
            called where it is given.
        evaluated: what the algorithm reads of ``evaluate_actions``.

    Raises:
        ConfigError: one line with the policy's class, the method, and what is missing or of another shape.
    """
    if type(policy) in _BUILT_IN:
        return
    check_policy_class(type(policy))
    if policy.obs_keys and observation_space is None:
        return
    entries = None if observation_space is None else _zero_entries(policy, observation_space)
    rollout = allocate_rollout(
        _ROWS,
        policy.sequence_length or 2,
        space_size(obs_space),
        space_size(action_space),
        device,
        extra_fields=policy.extra_fields,
        state_size=policy.state_size,
        entries=entries,
        chunk_length=policy.chunk_length,
        log_prob_size=policy.log_prob_size,
    )
    with _as_it_was(policy), torch.no_grad():
        _check_choice(policy, rollout)
        _check_evaluation(policy, rollout, evaluated)


def _zero_entries(policy: Policy, space: spaces.Dict) -> TensorDict | None:
    """Return the entries that a policy reads, [M]; None where it reads none."""
    known = entry_spaces(space)
    for key in policy.obs_keys:
        if key not in known:
            place = f"policy {type(policy).__name__}: obs_keys"
            raise ConfigError(f"{place}: {unknown_name('entry of the observation', key, known)}")
    if not policy.obs_keys:
        return None
    zeros = {key: np.zeros((_ROWS, *known[key].shape), known[key].dtype) for key in policy.obs_keys}
    return TensorDict({key: torch.from_numpy(array) for key, array in zeros.items()}, batch_size=[_ROWS])


@contextmanager
def _as_it_was(policy: Policy) -> Iterator[None]:
    """Undo what calling a policy does to it and to the random generators: trainings must not depend on the probe."""
    generators = generators_state()
    buffers = {buffer: buffer.clone() for buffer in policy.buffers()}
    try:
        yield
    finally:
        load_generators_state(generators)
        for buffer, before in buffers.items():
            buffer.data.copy_(before)


def _check_choice(policy: Policy, rollout: TensorDict) -> None:
    """Check what is written when actions are chosen and states valued, and put it into all slots of the rollout."""
    shapes = {name: rollout[name].shape[2:] for name in ("action", "sample_log_prob", "value")}
    shapes |= {name: torch.Size([width]) for name, width in policy.extra_fields}
    inputs = [name for name in ("obs", "entries", "state") if name in rollout.keys()]  # noqa: SIM118 (a TensorDict)
    given = rollout[:, 0].select(*inputs).clone()
    expected = shapes | ({"next_state": torch.Size([policy.state_size])} if policy.state_size else {})
    chosen = _called(policy, "forward", given.clone(), expected)
    if type(policy).get_action is not Policy.get_action:
        chosen = _called(policy, "get_action", given.clone(), expected)
    for name in shapes:
        rollout[name].copy_(chosen[name].unsqueeze(1).expand_as(rollout[name]))
    _called(policy, "get_value", given, {"value": torch.Size()}, may_return_nothing=True)


def _check_evaluation(policy: Policy, rollout: TensorDict, evaluated: Sequence[str]) -> None:
    batch = learning_batch(rollout, policy)
    if "sample_log_prob" not in policy.evaluation_fields:
        batch = batch.exclude("sample_log_prob")  # which a copy of the batch would have, whatever was written into it
    per_action = rollout["sample_log_prob"].shape[2:]
    shapes = {name: torch.Size() if name == "value" else per_action for name in evaluated}
    before = set(batch.keys())
    _called(policy, "evaluate_actions", batch, shapes)
    if "sample_log_prob" in set(batch.keys()) - before:
        raise ConfigError(
            f"policy {type(policy).__name__}: evaluate_actions writes 'sample_log_prob' into the TensorDict that it is "
            "given, in the place of the rollout's. Expected is a new TensorDict"
        )


def _called(
    policy: Policy, method: str, td: TensorDict, shapes: Mapping[str, torch.Size], may_return_nothing: bool = False
) -> TensorDict:
    """Call a method, and return what it returned.

    Args:
        policy: the policy.
        method: its name.
        td: what it is given.
        shapes: what is to be in what it returns, by name: the shapes without the batch dimensions of ``td``.
        may_return_nothing: what it wrote into ``td`` is as good.
    """
    try:
        out = getattr(policy, method)(td)
    except BaseException as error:
        error.add_note(f"raised where {type(policy).__name__}.{method} was tried on observations of zeros")
        raise
    if out is None and may_return_nothing:
        out = td
    wanted = {name: [*td.batch_size, *shape] for name, shape in shapes.items()}
    what = f"expected is a TensorDict with {', '.join(f'{name!r} {shape}' for name, shape in wanted.items())}"
    place = f"policy {type(policy).__name__}: {method}"
    if not isinstance(out, TensorDict):
        raise ConfigError(f"{place} returned {'None' if out is None else type(out).__name__}; {what}")
    for name, shape in wanted.items():
        value = out.get(name, None)
        if value is None and name == "log_prob":
            value = out.get("sample_log_prob", None)
        if value is None:
            raise ConfigError(f"{place} returned no '{name}'; {what}")
        if list(value.shape) != shape:
            raise ConfigError(f"{place} returned '{name}' of shape {list(value.shape)}; {what}")
    return out
