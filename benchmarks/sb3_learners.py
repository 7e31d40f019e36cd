"""Stable-Baselines3's learners with the hyperparameters of our configs, and its policies for our evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import nn

from benchmarks.curves import Acting, Curve
from embodichain.agents.rl.models.networks import NetworkCfg
from embodichain.agents.rl.run_config import RunConfig
from embodichain.ext.gymnasium.gymnasium_env import PREFIX
from embodichain.ext.gymnasium.sb3 import SB3VecEnv
from embodichain.utils import to_dict

ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}
TRANSLATED = {"hidden_sizes", "activation", "orthogonal_init"}
"""Options of ``network_cfg``."""

EPSILON = SquashedDiagGaussianDistribution(1).epsilon
"""Its ``slope_floor``."""


def normalized(venv: VecEnv, policy: Mapping[str, Any]) -> VecEnv:
    """Return the environments with normalised observations if the block ``policy`` has ``normalize_obs``."""
    return VecNormalize(venv, norm_reward=False) if policy.get("normalize_obs") else venv


def make_ppo(
    venv: VecEnv, policy: Mapping[str, Any], cfg: Mapping[str, Any], num_steps: int, seed: int, **options: Any
) -> PPO:
    """Return PPO on the CPU.

    Args:
        policy: a block ``policy`` of the name ``actor_critic``, with equal networks.
        cfg: all of ``algorithm.cfg``.
        num_steps: T.
        options: further arguments of PPO.
    """
    highest = cfg["learning_rate"]
    rates = {"constant": lambda _: highest, "linear": lambda remaining: remaining * highest}
    return PPO(
        "MlpPolicy",
        venv,
        learning_rate=rates[cfg["lr_schedule"]],
        n_steps=num_steps,
        batch_size=cfg["batch_size"],
        n_epochs=cfg["n_epochs"],
        gamma=cfg["gamma"],
        gae_lambda=cfg["gae_lambda"],
        clip_range=cfg["clip_coef"],
        ent_coef=cfg["ent_coef"],
        vf_coef=cfg["vf_coef"] / 2,  # our value loss has the factor 1/2, theirs does not
        max_grad_norm=cfg["max_grad_norm"],
        policy_kwargs=_networks(policy, "vf") | {"log_std_init": policy.get("init_log_std", 0.0)},
        seed=seed,
        device="cpu",
        **options,
    )


def make_sac(venv: VecEnv, policy: Mapping[str, Any], cfg: Mapping[str, Any], num_steps: int, seed: int) -> SAC:
    """Return SAC on the CPU; arguments as of ``make_ppo``, of the policy ``soft_actor_critic``."""
    networks = _networks(policy, "qf")
    assert not networks.pop("ortho_init"), "Stable-Baselines3's SAC has PyTorch's initialisation"
    assert policy["slope_floor"] == EPSILON
    return SAC(
        "MlpPolicy",
        venv,
        learning_rate=cfg["learning_rate"],
        buffer_size=cfg["replay_capacity"],
        learning_starts=cfg["learning_starts"],
        batch_size=cfg["batch_size"],
        tau=cfg["tau"],
        gamma=cfg["gamma"],
        train_freq=num_steps,
        gradient_steps=round(cfg["updates_per_step"] * num_steps * venv.num_envs),
        policy_kwargs=networks,
        seed=seed,
        device="cpu",
    )


def _networks(policy: Mapping[str, Any], critic: str) -> dict[str, Any]:
    network = policy["actor"]["network_cfg"]
    assert policy["critic"]["network_cfg"] == network, "Stable-Baselines3 gets one activation for both"
    defaults = to_dict(NetworkCfg())
    others = set(network) - TRANSLATED
    assert all(network[name] == defaults[name] for name in others), f"not translated: {others}"
    hidden = network["hidden_sizes"]
    return {
        "net_arch": {"pi": hidden, critic: hidden},
        "activation_fn": ACTIVATIONS[network["activation"]],
        "ortho_init": network.get("orthogonal_init", False),
    }


def train(run: RunConfig, env: Any, curve: Curve, every: int) -> None:
    """Train at a run's hyperparameters, and evaluate after ``every`` iterations.

    Args:
        env: our environments; for a Gymnasium task Stable-Baselines3 has its own.
    """
    cfg, policy, num_envs = run.trainer, run.resolved["policy"], run.env.num_envs
    is_theirs = run.env_id.startswith(PREFIX)
    venv = make_vec_env(run.env_id.removeprefix(PREFIX), num_envs, cfg.seed) if is_theirs else SB3VecEnv(env)
    make = {"ppo": make_ppo, "sac": make_sac}[run.algorithm_name]
    model = make(normalized(venv, policy), policy, to_dict(run.algorithm), cfg.buffer_size, cfg.seed)
    size = cfg.buffer_size * num_envs

    def after(iteration: int, policy: Any) -> None:
        if iteration % every == 0:
            curve.run(policy, f"step_{iteration * size}")

    model.learn(cfg.iterations * size, callback=AfterIteration(after))


def greedy(model: PPO | SAC) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function from flat observations [N, O] to the model's most likely actions [N, A]."""
    normalizer = model.get_vec_normalize_env()

    def act(flat: torch.Tensor) -> torch.Tensor:
        obs = flat.numpy() if normalizer is None else normalizer.normalize_obs(flat.numpy())
        action, _ = model.predict(obs, deterministic=True)
        return torch.as_tensor(action).reshape(len(obs), -1)  # of discrete actions: the indices

    return act


class AfterIteration(BaseCallback):
    """Calls ``after`` with the iteration's number, from 1, and the policy after each iteration's update.

    That is at the start of the next rollout, and at the end of the training.
    """

    def __init__(self, after: Callable[[int, Any], None]) -> None:
        super().__init__()
        self._after = after
        self._iteration = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self._iteration:
            self._after(self._iteration, Acting(greedy(self.model)))
        self._iteration += 1

    def _on_training_end(self) -> None:
        self._after(self._iteration, Acting(greedy(self.model)))
