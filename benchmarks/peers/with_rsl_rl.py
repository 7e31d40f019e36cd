"""rsl_rl's PPO: its ``OnPolicyRunner`` on our environment, with TensorBoard."""

from __future__ import annotations

import math
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import flatten_dict_observation


class RslRlEnv(VecEnv):  # type: ignore[misc]
    """Our environment with rsl_rl's interface; it resets itself in the same step, as rsl_rl expects."""

    def __init__(self, env: EmbodiedEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.num_actions = env.single_action_space.shape[0]
        self.max_episode_length = env.cfg.max_episode_steps or 0
        self.device = env.device
        self.cfg: dict[str, Any] = {}
        self._obs = self._observation(env.reset()[0])

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Length of the episodes so far."""
        return self.env.elapsed_steps

    def get_observations(self) -> TensorDict:
        """Return the current observation."""
        return self._obs

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Step."""
        obs, reward, terminated, truncated, _ = self.env.step(actions)
        self._obs = self._observation(obs)
        return self._obs, reward, terminated | truncated, {"time_outs": truncated & ~terminated}

    def _observation(self, obs: TensorDict) -> TensorDict:
        return TensorDict({"policy": flatten_dict_observation(obs)}, batch_size=[self.num_envs])


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    network = {
        "class_name": "MLPModel",
        "hidden_dims": list(setting.hidden_sizes),
        "activation": setting.activation,
        "obs_normalization": setting.normalize_obs,
    }
    gaussian = {"class_name": "GaussianDistribution", "init_std": math.exp(setting.init_log_std), "std_type": "log"}
    config = {
        "num_steps_per_env": setting.num_steps,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": gaussian},
        "critic": dict(network),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": setting.num_epochs,
            "num_mini_batches": setting.num_minibatches,
            "clip_param": setting.clip,
            "gamma": setting.gamma,
            "lam": setting.gae_lambda,
            "value_loss_coef": setting.value_coef,
            "entropy_coef": setting.entropy_coef,
            "learning_rate": setting.learning_rate,
            "max_grad_norm": setting.max_grad_norm,
            "use_clipped_value_loss": False,
            "schedule": "fixed",
            "rnd_cfg": None,
            "symmetry_cfg": None,
        },
    }
    runner = OnPolicyRunner(RslRlEnv(env), config, log_dir="rsl_rl", device="cpu")
    clock.count_as_update(runner.alg, "compute_returns")
    clock.count_as_update(runner.alg, "update", is_last=True)
    runner.learn(iterations)
