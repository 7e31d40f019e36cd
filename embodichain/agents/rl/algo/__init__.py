"""Algorithms, which improve a policy from experience."""

from embodichain.agents.rl.algo.advantages import compute_gae, explained_variance, normalize_advantages
from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.bc import BC, BCCfg
from embodichain.agents.rl.algo.grpo import GRPO, GRPOCfg
from embodichain.agents.rl.algo.off_policy import OffPolicyAlgorithm, OffPolicyCfg
from embodichain.agents.rl.algo.on_policy import AlgorithmCfg, clipped_surrogate
from embodichain.agents.rl.algo.optim import MetricMeans, gradient_step
from embodichain.agents.rl.algo.ppo import PPO, PPOCfg
from embodichain.agents.rl.algo.registry import build_algo, get_registered_algo_names, register_algo
from embodichain.agents.rl.algo.sac import SAC, SACCfg
from embodichain.agents.rl.algo.symmetry import SymmetryCfg
from embodichain.agents.rl.algo.td3 import TD3, TD3Cfg

__all__ = [
    "BC",
    "GRPO",
    "PPO",
    "SAC",
    "TD3",
    "AlgorithmCfg",
    "BCCfg",
    "BaseAlgorithm",
    "BaseAlgorithmCfg",
    "GRPOCfg",
    "MetricMeans",
    "OffPolicyAlgorithm",
    "OffPolicyCfg",
    "PPOCfg",
    "SACCfg",
    "SymmetryCfg",
    "TD3Cfg",
    "build_algo",
    "clipped_surrogate",
    "compute_gae",
    "explained_variance",
    "get_registered_algo_names",
    "gradient_step",
    "normalize_advantages",
    "register_algo",
]
