"""Policies, which choose actions and value states."""

from typing import TYPE_CHECKING

from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorCriticRecurrent, ActorOnly
from embodichain.agents.rl.models.networks import MLP, build_mlp_from_cfg, register_network
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy, action_log_prob, check_policy, load_policy_state, policy_input
from embodichain.agents.rl.models.registry import build_policy, get_registered_policy_names, register_policy
from embodichain.agents.rl.models.soft_actor_critic import DeterministicActorCritic, SoftActorCritic
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.vla.loading import load_vla_model, save_vla_model
    from embodichain.ext.vla.policy import LoRACfg, VLAConfig, VLAPolicy, VLAPolicyCfg
    from embodichain.ext.vla.smolvla import SmolVLA, SmolVLACfg
    from embodichain.ext.vla.tiny_vla import TinyVLA, TinyVLACfg

__all__ = [
    "MLP",
    "ActorCritic",
    "ActorCriticRecurrent",
    "ActorOnly",
    "DeterministicActorCritic",
    "LoRACfg",
    "Policy",
    "RunningNormalizer",
    "SmolVLA",
    "SmolVLACfg",
    "SoftActorCritic",
    "TinyVLA",
    "TinyVLACfg",
    "VLAConfig",
    "VLAPolicy",
    "VLAPolicyCfg",
    "action_log_prob",
    "build_mlp_from_cfg",
    "build_policy",
    "check_policy",
    "get_registered_policy_names",
    "load_policy_state",
    "load_vla_model",
    "policy_input",
    "register_network",
    "register_policy",
    "save_vla_model",
]

_EXTENSION = {
    "embodichain.ext.vla.loading": ("load_vla_model", "save_vla_model"),
    "embodichain.ext.vla.policy": ("LoRACfg", "VLAConfig", "VLAPolicy", "VLAPolicyCfg", "VLAPlaceholderPolicy"),
    "embodichain.ext.vla.smolvla": ("SmolVLA", "SmolVLACfg"),
    "embodichain.ext.vla.tiny_vla": ("TinyVLA", "TinyVLACfg"),
}
__getattr__ = face(__name__, {name: module for module, names in _EXTENSION.items() for name in names})
