"""Policies, which choose actions and value states."""

import warnings
from typing import Any

from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorCriticCfg, ActorOnly, ActorOnlyCfg
from embodichain.agents.rl.models.block import ObsGroupsCfg, PolicyCfg
from embodichain.agents.rl.models.checks import check_policy
from embodichain.agents.rl.models.cnn import CNN, CNNCfg, CNNNetworkCfg
from embodichain.agents.rl.models.distributions import TanhSquash
from embodichain.agents.rl.models.mlp import MLP, MLPCfg, NetworkCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.networks import get_registered_network_names, register_network
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import (
    EVALUATED,
    Actor,
    Policy,
    action_log_prob,
    load_policy_state,
    policy_input,
    valued,
)
from embodichain.agents.rl.models.recurrent import ActorCriticRecurrent, ActorCriticRecurrentCfg
from embodichain.agents.rl.models.registry import (
    build_policy,
    get_registered_policy_names,
    register_policy,
)
from embodichain.agents.rl.models.soft_actor_critic import SoftActorCritic, SoftActorCriticCfg
from embodichain.agents.rl.models.vla.loading import load_vla_model, save_vla_model
from embodichain.agents.rl.models.vla.policy import LoRACfg, VLAConfig, VLAPolicy, VLAPolicyCfg
from embodichain.agents.rl.models.vla.smolvla import SmolVLA
from embodichain.agents.rl.models.vla.smolvla_config import SmolVLACfg
from embodichain.agents.rl.models.vla.tiny_vla import TinyVLA, TinyVLACfg

__all__ = [
    "CNN",
    "EVALUATED",
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
    "LoRACfg",
    "MLPCfg",
    "NetworkCfg",
    "ObsGroupsCfg",
    "Policy",
    "PolicyCfg",
    "RunningNormalizer",
    "SmolVLA",
    "SmolVLACfg",
    "SoftActorCritic",
    "SoftActorCriticCfg",
    "TanhSquash",
    "TinyVLA",
    "TinyVLACfg",
    "VLAConfig",
    "VLAPolicy",
    "VLAPolicyCfg",
    "action_log_prob",
    "build_mlp_from_cfg",
    "build_policy",
    "check_policy",
    "get_registered_network_names",
    "get_registered_policy_names",
    "load_policy_state",
    "load_vla_model",
    "policy_input",
    "register_network",
    "register_policy",
    "save_vla_model",
    "valued",
]


def __getattr__(name: str) -> Any:
    if name != "VLAPlaceholderPolicy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("VLAPlaceholderPolicy is named VLAPolicy now", DeprecationWarning, stacklevel=2)
    return VLAPolicy
