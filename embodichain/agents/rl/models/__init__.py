"""Policies: what chooses the actions and values the states."""

from embodichain.agents.rl.models.actor_critic import ActorCritic
from embodichain.agents.rl.models.mlp import MLP, MLPCfg, NetworkCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy, policy_input
from embodichain.agents.rl.models.registry import (
    PolicyCfg,
    build_policy,
    get_registered_policy_names,
    register_policy,
)

__all__ = [
    "MLP",
    "ActorCritic",
    "MLPCfg",
    "NetworkCfg",
    "Policy",
    "PolicyCfg",
    "RunningNormalizer",
    "build_mlp_from_cfg",
    "build_policy",
    "get_registered_policy_names",
    "policy_input",
    "register_policy",
]
