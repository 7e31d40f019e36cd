"""Policies by name, the built-in ones and users' own, and checks of users' classes.

Legend: M rows of a probe, L sequence length.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.buffer import learning_batch
from embodichain.agents.rl.models.actor_critic import (
    ActorCritic,
    ActorCriticCfg,
    ActorCriticRecurrent,
    ActorCriticRecurrentCfg,
    ActorOnly,
    ActorOnlyCfg,
    build_actor_critic,
    build_actor_critic_recurrent,
)
from embodichain.agents.rl.models.block import PolicySpaces, space_size
from embodichain.agents.rl.models.policy import EVALUATED, Policy, action_log_prob, allocate_for
from embodichain.agents.rl.models.soft_actor_critic import SoftActorCritic, SoftActorCriticCfg, build_soft_actor_critic
from embodichain.utils import ConfigError, configclass, doors, placed, to_dict, unknown_name
from embodichain.utils.device import keeping_modes
from embodichain.utils.module_utils import check_admitted, check_free, takes
from embodichain.utils.observations import entry_spaces, zero_entries
from embodichain.utils.state import generators_state, load_generators_state
from embodichain.utils.validation import from_dict

P = TypeVar("P", bound=type)

_ROWS = 2  # M; with one, [M, 1] broadcasts to [M, M] as if it were right
_TOLERANCE = 1e-2  # of log-probabilities, absolute and relative: rounding of inverted actions and bfloat16
# How the methods are declared, and with how many arguments, `self` included, they are called.
_METHODS = {
    "forward": ("forward(td, deterministic=False)", 3),
    "get_action": ("get_action(td, deterministic=False)", 3),
    "get_value": ("get_value(td)", 2),
    "evaluate_actions": ("evaluate_actions(td)", 2),
}


@configclass
class UserPolicyCfg:
    """The ``policy`` block of a user's policy, which may have any keys."""

    name: str
    """A registered name, or the dotted path of a class."""
    block: dict[str, Any] = {}
    """The whole block."""


PolicyBlock = Any
"""A checked ``policy`` block: an instance of a policy's config class, or a ``UserPolicyCfg``."""


class TypedPolicy(NamedTuple):
    """The typed config block of a policy, as the policy class's own attribute ``typed``.

    Attributes:
        cfg_class: the block, with a field ``name``.
        build: ``build(cfg, spaces, device, networks)``; ``networks`` replace the block's.
        networks: fields of the block that are required, unless they are given.
        check: ``check(cfg, admitted)`` refuses names in the block outside the prefixes of modules that are admitted.
        chunk_length: number of actions of a choice, as far as the block says it.
    """

    cfg_class: type
    build: Callable[[Any, PolicySpaces, torch.device | str, Mapping[str, nn.Module]], Policy]
    networks: tuple[str, ...] = ()
    check: Callable[[Any, Sequence[str]], None] = lambda cfg, admitted: None
    chunk_length: Callable[[Any], int] = lambda cfg: getattr(cfg, "chunk_length", 1)


_BUILT_IN: dict[Any, TypedPolicy] = {
    ActorCritic: TypedPolicy(ActorCriticCfg, build_actor_critic, ("actor", "critic")),
    ActorCriticRecurrent: TypedPolicy(ActorCriticRecurrentCfg, build_actor_critic_recurrent, ("actor", "critic")),
    ActorOnly: TypedPolicy(ActorOnlyCfg, build_actor_critic, ("actor",)),
    SoftActorCritic: TypedPolicy(SoftActorCriticCfg, build_soft_actor_critic, ("actor", "critic")),
}

_OURS = "embodichain.agents.rl.models"

_POLICIES: dict[str, Any] = {
    "actor_critic": ActorCritic,
    "actor_critic_recurrent": ActorCriticRecurrent,
    "actor_only": ActorOnly,
    "soft_actor_critic": SoftActorCritic,
}


def register_policy(name: str, override: bool = False) -> Callable[[P], P]:
    """Register the decorated class for ``policy.name``.

    Args:
        override: replace another class of this name.
    """

    def register(policy_class: P) -> P:
        check_policy_class(policy_class)
        if not override:
            if name in doors.entries(doors.POLICIES):
                get_policy_class(name)  # known from now on
            check_free(_POLICIES, name, policy_class, "policy")
        _POLICIES[name] = policy_class
        return policy_class

    return register


def get_registered_policy_names() -> list[str]:
    """Return the names that ``build_policy`` knows, sorted."""
    return sorted({*_POLICIES, *doors.entries(doors.POLICIES)})


def get_policy_class(name: str) -> type[Policy]:
    """Return the class of a registered name, or of a dotted path into an imported module."""
    if name in _POLICIES:
        registered: type[Policy] = _POLICIES[name]
        return registered
    if (entered := doors.load(doors.POLICIES, name)) is not None:
        return register_policy(name, override=True)(entered)
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ConfigError(unknown_name("policy", name, get_registered_policy_names()))
    if module not in sys.modules:
        raise ConfigError(
            f"policy '{name}': '{module}' is not imported: list it in trainer.import_modules, or --import"
        )
    found: Any = getattr(sys.modules[module], attribute, name)
    check_policy_class(found)
    policy_class: type[Policy] = found
    return policy_class


def typed_policy(name: str) -> TypedPolicy | None:
    """Return the typed block of a registered policy, or None for a policy without one."""
    policy_class = get_policy_class(name)
    return _BUILT_IN.get(policy_class) or vars(policy_class).get("typed")


def get_policy_cfg_class(name: str) -> type | None:
    """Return the config class of a registered policy, or None for a policy without one; see :func:`typed_policy`."""
    typed = typed_policy(name)
    return None if typed is None else typed.cfg_class


def parse_policy_block(
    block: Mapping[str, Any], allowed_imports: Sequence[str] | None = (), given: Collection[str] = ()
) -> PolicyBlock:
    """Return a config's ``policy`` block in its typed form, checked before anything is built.

    Args:
        allowed_imports: prefixes of modules, except ours, in which a dotted path may name a policy; None: all
            imported ones.
        given: networks that the block need not have.
    """
    if "name" not in block:
        raise ConfigError(f"policy.name: required, but missing. Known: {', '.join(get_registered_policy_names())}")
    name = block["name"]
    if not isinstance(name, str):
        raise ConfigError(f"policy.name: Input should be a valid string, got {name!r}")
    if allowed_imports is not None and name not in _POLICIES and "." in name:
        check_admitted(name, [_OURS, *allowed_imports], "policy.name")
    with placed("policy: "):
        typed = typed_policy(name)
    if typed is None:
        return UserPolicyCfg(name, dict(block))
    cfg: Any = from_dict(typed.cfg_class, dict(block), "policy")
    if missing := [name for name in typed.networks if name not in given and getattr(cfg, name) is None]:
        needed = " and ".join(f"{'an' if network == 'actor' else 'a'} '{network}'" for network in typed.networks)
        raise ConfigError(f"policy: policy '{name}' needs {needed} network; the block has no '{missing[0]}'")
    if allowed_imports is not None:
        typed.check(cfg, [_OURS, *allowed_imports])
    return cfg


def policy_data(cfg: PolicyBlock) -> dict[str, Any]:
    """Return the ``policy`` block with all defaults, as plain data for ``build_policy``."""
    return dict(cfg.block) if isinstance(cfg, UserPolicyCfg) else to_dict(cfg)


def chunk_length_of(cfg: PolicyBlock) -> int:
    """Return the number of actions of a choice as far as the block says it; 1: it is known once the policy is built."""
    typed = typed_policy(cfg.name)
    return 1 if typed is None else typed.chunk_length(cfg)


def build_policy(
    block: PolicyBlock | Mapping[str, Any],
    obs_space: spaces.Space[Any] | int,
    action_space: spaces.Space[Any] | int,
    device: torch.device | str,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    *,
    observation_space: spaces.Dict | None = None,
) -> Policy:
    """Build the policy that a config block names.

    A user's class is built with the arguments among ``obs_dim``, ``action_dim``, ``obs_space``, ``action_space``,
    ``observation_space``, ``device`` and ``config`` (the block as plain data) that its ``__init__`` asks for by name.

    Args:
        block: the config's ``policy`` block, with a registered name, or the dotted path of a ``Policy`` in an imported
            module. Names from config files go through ``parse_policy_block`` first.
        obs_space: flattened observation space, or its size.
        action_space: one environment's action space, or its size.
        actor, critic: built-in policies' networks on the whole observation, instead of the block's.
        observation_space: one environment's structured observation space; blocks that name entries need it.
    """
    networks = {name: net for name, net in (("actor", actor), ("critic", critic)) if net is not None}
    cfg = parse_policy_block(block, None, networks) if isinstance(block, Mapping) else block
    config = policy_data(cfg)
    policy_class = get_policy_class(cfg.name)
    given = PolicySpaces(space_size(obs_space), space_size(action_space), action_space, observation_space)
    if config.get("action_dim") not in (None, given.action_dim):
        sizes = f"{config['action_dim']}, the environment's action size is {given.action_dim}"
        raise ConfigError(f"policy.action_dim is {sizes}")
    if (typed := typed_policy(cfg.name)) is not None:
        policy = typed.build(cfg, given, device, networks)
    else:
        offered = {
            "obs_dim": given.obs_dim,
            "action_dim": given.action_dim,
            "obs_space": obs_space,
            "action_space": action_space,
            "observation_space": observation_space,
            "device": device,
            "config": config,
        }
        asked = inspect.signature(policy_class).parameters
        policy = policy_class(**{name: value for name, value in offered.items() if name in asked})
    if config.get("scale_actions", False) is None:  # null's meaning to a policy that a script has built
        config["scale_actions"] = False
    policy.block = config
    return policy


def check_policy_class(policy_class: Any) -> None:
    """Check that a class is a policy with methods that can be called as ``Policy`` declares them."""
    name = getattr(policy_class, "__name__", repr(policy_class))
    if not (inspect.isclass(policy_class) and issubclass(policy_class, Policy)):
        raise ConfigError(f"policy {name}: is no subclass of embodichain.agents.rl.models.Policy")
    if missing := [text for method, (text, _) in _METHODS.items() if method in policy_class.__abstractmethods__]:
        raise ConfigError(f"policy {name}: lacks {', '.join(missing)}")
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

    Log-probabilities are compared in evaluation mode, without dropout. Built-in policies are not checked. Random
    generators and the policy's buffers are restored.

    Args:
        observation_space: one environment's structured observation space; without it, a policy that reads its entries
            is not called.
        evaluated: entries of ``evaluate_actions`` that the algorithm reads.
    """
    if type(policy) in _BUILT_IN or "typed" in vars(type(policy)):
        return
    check_policy_class(type(policy))
    entries = None
    if policy.obs_keys:
        if observation_space is None:
            return
        known, name = entry_spaces(observation_space), type(policy).__name__
        for key in policy.obs_keys:
            if key not in known:
                raise ConfigError(f"policy {name}: obs_keys: {unknown_name('entry of the observation', key, known)}")
        entries = zero_entries(observation_space, policy.obs_keys, _ROWS)
    num_decisions, sizes = policy.sequence_length or 2, (space_size(obs_space), space_size(action_space))
    rollout = allocate_for(policy, _ROWS, num_decisions, *sizes, device, entries)
    with _restored(policy), torch.no_grad():
        policy.eval()
        _check_calls(policy, rollout, evaluated)


@contextmanager
def _restored(policy: Policy) -> Iterator[None]:
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


def _check_calls(policy: Policy, rollout: TensorDict, evaluated: Sequence[str]) -> None:
    """Check the entries that each method returns, and that sampled actions keep their log-probability."""
    # A copy, since policies write into it.
    given = rollout[:, 0].select("obs", "entries", "state", strict=False).clone()
    written = {name: rollout[name].shape[2:] for name in ("action", "sample_log_prob", "value")}
    written |= {name: torch.Size([width]) for name, width in policy.extra_fields}
    state = {"next_state": torch.Size([policy.state_size])} if policy.state_size else {}
    choose = "forward" if type(policy).get_action is Policy.get_action else "get_action"
    chosen = _called(policy, choose, given.clone(), written | state)
    for name in written:
        rollout[name].copy_(chosen[name].unsqueeze(1).expand_as(rollout[name]))
    _called(policy, "get_value", given, {"value": torch.Size()}, may_return_nothing=True)

    batch = learning_batch(rollout, policy)
    if "sample_log_prob" not in policy.evaluation_fields:  # a copy of the batch would have it, whatever was written
        batch = batch.exclude("sample_log_prob")
    before, of_action = set(batch.keys()), rollout["sample_log_prob"].shape[2:]
    shapes = {name: torch.Size() if name == "value" else of_action for name in evaluated}
    first, again = (action_log_prob(_called(policy, "evaluate_actions", batch, shapes)) for _ in range(2))
    place = f"policy {type(policy).__name__}:"
    if "sample_log_prob" in set(batch.keys()) - before:
        raise ConfigError(
            f"{place} evaluate_actions writes 'sample_log_prob' into the TensorDict that it is given, in the place of "
            "the rollout's. Expected is a new TensorDict"
        )
    if not torch.equal(first, again):  # a noisy estimate: nothing to compare
        return
    # Of the first step: later ones may have another state.
    sampled, now = chosen["sample_log_prob"], first.reshape(rollout["sample_log_prob"][:, :-1].shape)[:, 0]
    differs = ~torch.isclose(sampled, now, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
    if differs.any():
        raise ConfigError(
            f"{place} forward wrote, and evaluate_actions gives, the log-probabilities "
            f"{float(sampled[differs][0]):.4g} and {float(now[differs][0]):.4g} for the same observation and action. "
            "Both need the same terms (such as that of tanh)"
        )


def _called(
    policy: Policy, method: str, td: TensorDict, shapes: Mapping[str, torch.Size], may_return_nothing: bool = False
) -> TensorDict:
    """Call a method, check that it returns the entries ``shapes`` (without batch dimensions), and return them.

    With ``may_return_nothing`` it may write into ``td`` instead.
    """
    out = getattr(policy, method)(td)
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
        if value is None or list(value.shape) != shape:
            got = f"no '{name}'" if value is None else f"'{name}' of shape {list(value.shape)}"
            raise ConfigError(f"{place} returned {got}; {what}")
    return out
