"""Policies by name: the built-in ones and users' own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from gymnasium import spaces
from torch import nn

from embodichain.agents.rl.models.actor_critic import (
    ActorCritic,
    ActorCriticCfg,
    ActorOnly,
    ActorOnlyCfg,
    build_actor_critic,
)
from embodichain.agents.rl.models.block import PolicySpaces, check_action_dim, space_size
from embodichain.agents.rl.models.checks import check_policy_class
from embodichain.agents.rl.models.policy import Policy
from embodichain.agents.rl.models.recurrent import (
    ActorCriticRecurrent,
    ActorCriticRecurrentCfg,
    build_actor_critic_recurrent,
)
from embodichain.agents.rl.models.soft_actor_critic import (
    SoftActorCritic,
    SoftActorCriticCfg,
    build_soft_actor_critic,
)
from embodichain.utils import ConfigError, configclass
from embodichain.utils.configclass import to_dict
from embodichain.utils.doors import POLICIES, entries, load
from embodichain.utils.errors import placed, unknown_name
from embodichain.utils.module_utils import check_admitted, check_free
from embodichain.utils.validation import from_dict

P = TypeVar("P", bound=type)


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

    Raises:
        ConfigError: (a ValueError) on decorating a class that is no ``Policy``, lacks a method of it, or has one that
            cannot be called in the same way; or the name is another class's and ``override`` is false.
    """

    def register(policy_class: P) -> P:
        check_policy_class(policy_class)
        if not override:
            if name in entries(POLICIES):
                get_policy_class(name)  # known from now on
            check_free(_POLICIES, name, policy_class, "policy")
        _POLICIES[name] = policy_class
        return policy_class

    return register


def get_registered_policy_names() -> list[str]:
    """Return the names that ``build_policy`` knows, sorted."""
    return sorted({*_POLICIES, *entries(POLICIES)})


def get_policy_class(name: str) -> type[Policy]:
    """Return the class of a registered name, or of a dotted path into an imported module.

    Raises:
        ConfigError: the name is unknown.
    """
    if name in _POLICIES:
        registered: type[Policy] = _POLICIES[name]
        return registered
    if (entered := load(POLICIES, name)) is not None:
        return register_policy(name, override=True)(entered)
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ConfigError(unknown_name("policy", name, get_registered_policy_names()))
    if module not in sys.modules:
        raise ConfigError(
            f"policy '{name}': module '{module}' is not imported: list it in trainer.import_modules, pass --import, or "
            f"import it in Python. Registered: {', '.join(get_registered_policy_names())}"
        )
    found = getattr(sys.modules[module], attribute, None)
    if not (inspect.isclass(found) and issubclass(found, Policy)):
        raise ConfigError(f"policy '{name}': module '{module}' has no Policy class '{attribute}'")
    check_policy_class(found)
    return found


def typed_policy(name: str) -> TypedPolicy | None:
    """Return the typed block of a registered policy, or None for a policy without one.

    Raises:
        ConfigError: the name is unknown.
    """
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

    Raises:
        ConfigError: (a ValueError) the name is missing, unknown or not allowed, or a built-in policy's block has
            unknown keys, invalid values or missing networks.
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
    with placed("policy: "):
        _require_networks(cfg, typed, given)
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
        actor: built-in policies' network on the whole observation, instead of the block's.
        critic: network for the value, likewise.
        observation_space: one environment's structured observation space; blocks that name entries need it.

    Raises:
        ConfigError: (a ValueError) the name is unknown, a built-in policy's block is invalid or does not fit the
            spaces, or a user's ``__init__`` requires another argument.
    """
    networks = {name: net for name, net in (("actor", actor), ("critic", critic)) if net is not None}
    cfg = parse_policy_block(block, None, networks) if isinstance(block, Mapping) else block
    config = policy_data(cfg)
    policy_class = get_policy_class(cfg.name)
    given = PolicySpaces(space_size(obs_space), space_size(action_space), action_space, observation_space)
    check_action_dim(config.get("action_dim"), given)
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
        policy = _build_by_signature(policy_class, offered)
    if config.get("scale_actions", False) is None:  # null's meaning to a policy that a script has built
        config["scale_actions"] = False
    policy.block = config
    return policy


def _require_networks(cfg: PolicyBlock, typed: TypedPolicy, given: Collection[str]) -> None:
    """Check that a policy has its networks, in its block or ``given``."""
    networks = typed.networks
    if missing := [name for name in networks if name not in given and getattr(cfg, name) is None]:
        needed = " and ".join(f"{'an' if name == 'actor' else 'a'} '{name}'" for name in networks)
        lacking = " and ".join(f"'{name}'" for name in missing)
        raise ConfigError(f"policy '{cfg.name}' needs {needed} network; the block has no {lacking}")


def _build_by_signature(policy_class: Any, offered: Mapping[str, Any]) -> Any:
    parameters = inspect.signature(policy_class).parameters.values()
    unmet = [
        p.name
        for p in parameters
        if p.name not in offered and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if unmet:
        raise ConfigError(
            f"{policy_class.__name__}.__init__ requires {', '.join(unmet)}; a policy is given what it asks for among "
            f"{', '.join(offered)}"
        )
    return policy_class(**{p.name: offered[p.name] for p in parameters if p.name in offered})
