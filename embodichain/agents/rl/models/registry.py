"""Policies by name, the built-in ones and users' own: their config blocks, parsed and built."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from gymnasium import spaces
from torch import nn

from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorCriticRecurrent, ActorOnly
from embodichain.agents.rl.models.policy import (
    Policy,
    PolicyBlock,
    PolicySpaces,
    TypedPolicy,
    check_policy_class,
    space_size,
)
from embodichain.agents.rl.models.soft_actor_critic import DeterministicActorCritic, SoftActorCritic
from embodichain.utils import ConfigError, configclass, doors, from_dict, placed, to_dict, unknown_name
from embodichain.utils.module_utils import check_admitted, check_free

P = TypeVar("P", bound=type)


@configclass
class UserPolicyCfg:
    """The ``policy`` block of a user's policy, which may have any keys.

    ``init_from``, ``teacher`` and ``obs_groups`` mean what they mean in other policies' blocks.
    """

    name: str
    """A registered name, or the dotted path of a class."""
    block: dict[str, Any] = {}
    """The whole block."""


_OURS = "embodichain.agents.rl.models"

_POLICIES: dict[str, Any] = {
    "actor_critic": ActorCritic,
    "actor_critic_recurrent": ActorCriticRecurrent,
    "actor_only": ActorOnly,
    "deterministic_actor_critic": DeterministicActorCritic,
    "soft_actor_critic": SoftActorCritic,
}


def register_policy(name: str, override: bool = False) -> Callable[[P], P]:
    """Register the decorated class for ``policy.name``; ``override``: in place of another class of this name."""

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


def setting_of(block: PolicyBlock, key: str) -> Any:
    """Return a setting that not every policy's block has, such as ``init_from``; None without it."""
    return block.block.get(key) if isinstance(block, UserPolicyCfg) else getattr(block, key, None)


def typed_policy(name: str) -> TypedPolicy | None:
    """Return the typed block of a registered policy, or None for a policy without one."""
    return vars(get_policy_class(name)).get("typed")


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
