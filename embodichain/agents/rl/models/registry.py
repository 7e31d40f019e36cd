"""Policies by name: the built-in ones and users' own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from gymnasium import spaces
from pydantic import PositiveInt
from torch import nn

from embodichain.agents.rl.models.actor_critic import ActorCritic
from embodichain.agents.rl.models.actor_only import ActorOnly
from embodichain.agents.rl.models.mlp import MLPCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.policy import Policy
from embodichain.utils import ConfigError, configclass
from embodichain.utils.errors import unknown_name
from embodichain.utils.validation import from_dict

__all__ = ["PolicyCfg", "build_policy", "check_policy_block", "get_registered_policy_names", "register_policy"]

P = TypeVar("P", bound=type)

_POLICIES: dict[str, Any] = {"actor_critic": ActorCritic, "actor_only": ActorOnly}


@configclass
class PolicyCfg:
    """The ``policy`` block of the training config, for the built-in policies."""

    name: str
    """A registered name, or the dotted path of a class."""
    action_dim: PositiveInt | None = None
    """Action size; inferred from the environment, and checked against it when given."""
    actor: MLPCfg | None = None
    """Network from the observation to the action's mean."""
    critic: MLPCfg | None = None
    """Network from the observation to the value."""
    normalize_obs: bool = False
    """Normalise observations by their running mean and deviation."""
    init_log_std: float = 0.0
    """Initial log-standard-deviation of the action."""


def register_policy(name: str) -> Callable[[P], P]:
    """Register the decorated class under a name for ``policy.name``; a name registered twice means the later class."""

    def register(policy_class: P) -> P:
        _POLICIES[name] = policy_class
        return policy_class

    return register


def get_registered_policy_names() -> list[str]:
    """Return the names that ``build_policy`` knows, sorted."""
    return sorted(_POLICIES)


def check_policy_block(block: Mapping[str, Any]) -> None:
    """Check a config's ``policy`` block before anything is built.

    Raises:
        ConfigError: (a ValueError) no name or an unknown one, or keys, values or networks that a built-in policy's
            block may not have or lacks.
    """
    if "name" not in block:
        raise ConfigError(f"policy.name: required, but missing. Known: {', '.join(get_registered_policy_names())}")
    policy_class = _find_policy_class(block["name"])
    if policy_class in (ActorCritic, ActorOnly):
        cfg = from_dict(PolicyCfg, dict(block), "policy")
        if policy_class is ActorCritic:
            _require_networks(cfg.actor, cfg.critic)
        else:
            _require_actor_alone(cfg.actor, cfg.critic)


def build_policy(
    block: PolicyCfg | Mapping[str, Any],
    obs_space: spaces.Space[Any] | int,
    action_space: spaces.Space[Any] | int,
    device: torch.device | str,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
) -> Policy:
    """Build the policy that a config block names.

    A user's class is built with those of ``obs_dim``, ``action_dim``, ``obs_space``, ``action_space``, ``device`` and
    ``config`` (the block as given here) that its ``__init__`` asks for by name.

    Args:
        block: the config's ``policy`` block. Its name is a registered one, or the dotted path of a ``Policy`` in a
            module that is already imported: names come from config files, which must not choose what code is run.
        obs_space: flattened observation space, or its size.
        action_space: one environment's action space, or its size.
        device: where the parameters go.
        actor: for ``actor_critic`` and ``actor_only``: used instead of the block's ``actor``.
        critic: for ``actor_critic``: used instead of the block's ``critic``.

    Raises:
        ConfigError: (a ValueError) the name is unknown, ``action_dim`` is not the environment's, a network is missing,
            or a user's ``__init__`` requires something else.
        pydantic.ValidationError: (a ValueError) keys or values of a built-in policy's block that are not allowed.
    """
    config = vars(block) if isinstance(block, PolicyCfg) else block
    if "name" not in config:
        raise ConfigError(f"the policy block has no 'name'. Known: {', '.join(get_registered_policy_names())}")
    policy_class = _find_policy_class(config["name"])
    obs_dim, action_dim = _size(obs_space), _size(action_space)
    if config.get("action_dim") not in (None, action_dim):
        raise ConfigError(f"policy.action_dim is {config['action_dim']}, the environment's action size is {action_dim}")
    if policy_class is ActorCritic:
        cfg = block if isinstance(block, PolicyCfg) else PolicyCfg(**block)
        return _build_actor_critic(cfg, obs_dim, action_dim, device, actor, critic)
    if policy_class is ActorOnly:
        cfg = block if isinstance(block, PolicyCfg) else PolicyCfg(**block)
        return _build_actor_only(cfg, obs_dim, action_dim, device, actor, critic)
    offered = {
        "obs_dim": obs_dim,
        "action_dim": action_dim,
        "obs_space": obs_space,
        "action_space": action_space,
        "device": device,
        "config": block,
    }
    return _build_by_signature(policy_class, offered)


def _find_policy_class(name: str) -> Any:
    if name in _POLICIES:
        return _POLICIES[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ConfigError(unknown_name("policy", name, _POLICIES))
    if module not in sys.modules:
        raise ConfigError(
            f"policy '{name}': module '{module}' is not imported. Import it first (in a training config: list it in "
            f"trainer.import_modules). Registered: {', '.join(get_registered_policy_names())}"
        )
    found = getattr(sys.modules[module], attribute, None)
    if not (inspect.isclass(found) and issubclass(found, Policy)):
        raise ConfigError(f"policy '{name}': module '{module}' has no Policy class '{attribute}'")
    return found


def _size(space: spaces.Space[Any] | int) -> int:
    if isinstance(space, int):
        return space
    if not space.shape:
        raise ConfigError(f"a policy needs spaces with at least one dimension, got {space}")
    return space.shape[-1]


def _build_actor_critic(
    cfg: PolicyCfg,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    actor: nn.Module | None,
    critic: nn.Module | None,
) -> ActorCritic:
    # Gains of the last layers where orthogonal_init is on: see MLP.
    if actor is None and cfg.actor is not None:
        actor = build_mlp_from_cfg(cfg.actor, obs_dim, action_dim, output_gain=0.01)
    if critic is None and cfg.critic is not None:
        critic = build_mlp_from_cfg(cfg.critic, obs_dim, 1, output_gain=1.0)
    _require_networks(actor, critic)
    assert actor is not None
    assert critic is not None
    return ActorCritic(obs_dim, action_dim, device, actor, critic, cfg.normalize_obs, cfg.init_log_std)


def _build_actor_only(
    cfg: PolicyCfg,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    actor: nn.Module | None,
    critic: nn.Module | None,
) -> ActorOnly:
    if actor is None and cfg.actor is not None:
        actor = build_mlp_from_cfg(cfg.actor, obs_dim, action_dim, output_gain=0.01)
    _require_actor_alone(actor, critic or cfg.critic)
    assert actor is not None
    return ActorOnly(obs_dim, action_dim, device, actor, cfg.normalize_obs, cfg.init_log_std)


def _require_actor_alone(actor: object | None, critic: object | None) -> None:
    if actor is None:
        raise ConfigError("policy 'actor_only' needs an 'actor' network; the block has none")
    if critic is not None:
        raise ConfigError("policy 'actor_only' has no critic: remove 'critic', or name the policy 'actor_critic'")


def _require_networks(actor: object | None, critic: object | None) -> None:
    missing = " and ".join(f"'{name}'" for name, net in (("actor", actor), ("critic", critic)) if net is None)
    if missing:
        raise ConfigError(f"policy 'actor_critic' needs an 'actor' and a 'critic' network; the block has no {missing}")


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
