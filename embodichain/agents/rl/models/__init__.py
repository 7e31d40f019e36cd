"""Policies: what chooses the actions and values the states."""

from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorCriticCfg
from embodichain.agents.rl.models.actor_critic_recurrent import ActorCriticRecurrent, ActorCriticRecurrentCfg
from embodichain.agents.rl.models.actor_only import ActorOnly, ActorOnlyCfg
from embodichain.agents.rl.models.block import ObsGroupsCfg, PolicyCfg
from embodichain.agents.rl.models.cnn import CNN, CNNCfg, CNNNetworkCfg
from embodichain.agents.rl.models.gaussian import TanhSquash
from embodichain.agents.rl.models.mlp import MLP, MLPCfg, NetworkCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Actor, Policy, policy_input
from embodichain.agents.rl.models.registry import (
    build_policy,
    get_registered_policy_names,
    register_policy,
)

__all__ = [
    "CNN",
    "MLP",
    "Actor",
    "ActorCritic",
    "ActorCriticCfg",
    "ActorCriticRecurrent",
    "ActorCriticRecurrentCfg",
    "ActorOnly",
    "ActorOnlyCfg",
    "CNNCfg",
    "CNNNetworkCfg",
    "MLPCfg",
    "NetworkCfg",
    "ObsGroupsCfg",
    "Policy",
    "PolicyCfg",
    "RunningNormalizer",
    "TanhSquash",
    "build_mlp_from_cfg",
    "build_policy",
    "get_registered_policy_names",
    "policy_input",
    "register_policy",
]
