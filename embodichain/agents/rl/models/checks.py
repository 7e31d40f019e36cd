"""Checks of a policy's interface before a training.

Legend: M rows of the probe, L sequence length, A action size, H actions of a chunk, A' log-probabilities of an action.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.buffer import learning_batch
from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorOnly
from embodichain.agents.rl.models.block import space_size
from embodichain.agents.rl.models.policy import EVALUATED, Policy, action_log_prob, allocate_for
from embodichain.agents.rl.models.recurrent import ActorCriticRecurrent
from embodichain.utils import ConfigError, logger
from embodichain.utils.device import keeping_modes
from embodichain.utils.errors import unknown_name
from embodichain.utils.module_utils import takes
from embodichain.utils.observations import entry_spaces, zero_entries
from embodichain.utils.state import generators_state, load_generators_state

_ROWS = 2  # M; with one, [M, 1] broadcasts to [M, M] as if it were right
_LOG_PROB_TOLERANCE = 1e-2  # absolute and relative: rounding of inverted actions and bfloat16
_ACTION_TOLERANCE = 1e-4  # likewise, of one computation that runs twice
_BUILT_IN = (ActorCritic, ActorCriticRecurrent, ActorOnly)
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
    """Check that a class is a policy with methods that can be called as ``Policy`` declares them.

    Raises:
        ConfigError: one line with the missing or different part.
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
    """Call a policy as a collector and an algorithm do, on observations of zeros, and check its results.

    Log-probabilities and deterministic actions are compared in evaluation mode, without dropout.
    Built-in policies are not checked. Random generators and the policy's buffers are restored.

    Args:
        policy: the policy, on ``device``.
        obs_space: flattened observation space, or its size.
        action_space: the action space with last dimension A, or A.
        observation_space: one environment's structured observation space; without it, a policy that reads its entries
            is not called.
        evaluated: entries of ``evaluate_actions`` that the algorithm reads.

    Raises:
        ConfigError: one line with the policy's class, the method, and the missing or misshapen entry, or the
            numbers that differ.
    """
    if type(policy) in _BUILT_IN or "typed" in vars(type(policy)):
        return
    check_policy_class(type(policy))
    if policy.obs_keys and observation_space is None:
        return
    entries = None if observation_space is None else _zero_entries(policy, observation_space)
    num_decisions, sizes = policy.sequence_length or 2, (space_size(obs_space), space_size(action_space))
    rollout = allocate_for(policy, _ROWS, num_decisions, *sizes, device, entries)
    with _as_it_was(policy), torch.no_grad():
        _check_choice(policy, rollout)
        _check_evaluation(policy, rollout, evaluated)
        policy.eval()
        _check_values(policy, rollout)


def _zero_entries(policy: Policy, space: spaces.Dict) -> TensorDict | None:
    """Return the entries that a policy reads, [M], or None."""
    known = entry_spaces(space)
    for key in policy.obs_keys:
        if key not in known:
            place = f"policy {type(policy).__name__}: obs_keys"
            raise ConfigError(f"{place}: {unknown_name('entry of the observation', key, known)}")
    return zero_entries(space, policy.obs_keys, _ROWS)


@contextmanager
def _as_it_was(policy: Policy) -> Iterator[None]:
    """Restore the policy's buffers and the random generators: trainings must not depend on the probe."""
    generators = generators_state()
    buffers = {buffer: buffer.clone() for buffer in policy.buffers()}
    try:
        with keeping_modes(policy):
            yield
    finally:
        load_generators_state(generators)
        for buffer, before in buffers.items():
            buffer.data.copy_(before)


def _check_choice(policy: Policy, rollout: TensorDict) -> None:
    """Check the fields written when actions are chosen and states valued, and put it into all slots of the rollout."""
    shapes = _written(policy, rollout)
    given = _first_inputs(rollout)
    expected = shapes | ({"next_state": torch.Size([policy.state_size])} if policy.state_size else {})
    chosen = _called(policy, "forward", given.clone(), expected)
    if type(policy).get_action is not Policy.get_action:
        chosen = _called(policy, "get_action", given.clone(), expected)
    _put_into_all_slots(chosen, rollout, shapes)
    _called(policy, "get_value", given, {"value": torch.Size()}, may_return_nothing=True)


def _written(policy: Policy, rollout: TensorDict) -> dict[str, torch.Size]:
    """Return a policy's fields written by ``forward`` for the rollout, name -> shape without the batch dimensions."""
    shapes = {name: rollout[name].shape[2:] for name in ("action", "sample_log_prob", "value")}
    return shapes | {name: torch.Size([width]) for name, width in policy.extra_fields}


def _first_inputs(rollout: TensorDict) -> TensorDict:
    """Return a policy's input at the rollout's first step, [M]; a copy, since policies write into it."""
    inputs = [name for name in ("obs", "entries", "state") if name in rollout.keys()]  # noqa: SIM118 (a TensorDict)
    return rollout[:, 0].select(*inputs).clone()


def _put_into_all_slots(chosen: TensorDict, rollout: TensorDict, names: Iterable[str]) -> None:
    for name in names:
        rollout[name].copy_(chosen[name].unsqueeze(1).expand_as(rollout[name]))


def _evaluation_batch(policy: Policy, rollout: TensorDict) -> TensorDict:
    """Return a batch without the rollout's ``sample_log_prob``, which a copy of it would have, whatever was written."""
    batch = learning_batch(rollout, policy)
    return batch if "sample_log_prob" in policy.evaluation_fields else batch.exclude("sample_log_prob")


def _check_values(policy: Policy, rollout: TensorDict) -> None:
    """Check that deterministic actions are all the same, and that actions keep their log-probability."""
    place, given = f"policy {type(policy).__name__}", _first_inputs(rollout)
    first, second = (policy.get_action(given.clone(), deterministic=True)["action"] for _ in range(2))
    if differing := _first_difference(first, second, _ACTION_TOLERANCE):
        logger.log_warning(
            f"{place}: get_action(td, deterministic=True) gives actions {differing} for the same observation; "
            "evaluations expect the most likely action, the same each time"
        )
    chosen = policy.get_action(given.clone())
    _put_into_all_slots(chosen, rollout, _written(policy, rollout))
    evaluated, again = (_first_log_prob(policy, rollout) for _ in range(2))
    differing = _first_difference(chosen["sample_log_prob"], evaluated, _LOG_PROB_TOLERANCE)
    if differing and torch.equal(evaluated, again):  # otherwise it is a noisy estimate: nothing to compare
        raise ConfigError(
            f"{place}: forward wrote, and evaluate_actions gives, the log-probabilities {differing} for the same "
            "observation and action. Both need the same terms (such as that of tanh)"
        )


def _first_log_prob(policy: Policy, rollout: TensorDict) -> torch.Tensor:
    """Return the evaluated log-probabilities of the rollout's first step: later ones may have another state."""
    log_prob = action_log_prob(policy.evaluate_actions(_evaluation_batch(policy, rollout)))
    return log_prob.reshape(rollout["sample_log_prob"][:, :-1].shape)[:, 0]


def _first_difference(first: torch.Tensor, second: torch.Tensor, tolerance: float) -> str:
    """Return the first two numbers that differ, as text; "" if none do."""
    differs = ~torch.isclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)
    return " and ".join(f"{float(tensor[differs][0]):.4g}" for tensor in (first, second)) if differs.any() else ""


def _check_evaluation(policy: Policy, rollout: TensorDict, evaluated: Sequence[str]) -> None:
    batch = _evaluation_batch(policy, rollout)
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
    """Call a method, check that it returns the entries ``shapes`` (without batch dimensions), and return them.

    With ``may_return_nothing`` it may write into ``td`` instead.
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
