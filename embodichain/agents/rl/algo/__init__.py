"""Algorithms: what turns rollouts into better policies."""

from embodichain.agents.rl.algo.base import AlgorithmCfg, BaseAlgorithm
from embodichain.agents.rl.algo.common import (
    approx_kl,
    clipped_surrogate,
    compute_gae,
    explained_variance,
    gaussian_kl,
    normalize_advantages,
)
from embodichain.agents.rl.algo.grpo import GRPO, GRPOCfg
from embodichain.agents.rl.algo.ppo import PPO, PPOCfg
from embodichain.agents.rl.algo.registry import build_algo, get_registered_algo_names, register_algo
from embodichain.agents.rl.algo.updates import MetricMeans, gradient_step

__all__ = [
    "GRPO",
    "PPO",
    "AlgorithmCfg",
    "BaseAlgorithm",
    "GRPOCfg",
    "MetricMeans",
    "PPOCfg",
    "approx_kl",
    "build_algo",
    "clipped_surrogate",
    "compute_gae",
    "explained_variance",
    "gaussian_kl",
    "get_registered_algo_names",
    "gradient_step",
    "normalize_advantages",
    "register_algo",
]
