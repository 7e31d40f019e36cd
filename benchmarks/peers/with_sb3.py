"""Stable-Baselines3's PPO on our own wrapper for it, with its logger on console and TensorBoard."""

from __future__ import annotations

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.ext.gymnasium.sb3 import SB3VecEnv
from embodichain.lab.gym.envs import EmbodiedEnv


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    vec_env: VecEnv = SB3VecEnv(env)
    normalize = VecNormalize(vec_env, norm_reward=False) if setting.normalize_obs else None
    rate = setting.learning_rate
    hidden = list(setting.hidden_sizes)
    model = PPO(
        "MlpPolicy",
        normalize or vec_env,
        learning_rate=(lambda left: left * rate) if setting.anneals else rate,
        n_steps=setting.num_steps,
        batch_size=setting.batch_size,
        n_epochs=setting.num_epochs,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        clip_range=setting.clip,
        ent_coef=setting.entropy_coef,
        vf_coef=setting.value_coef,
        max_grad_norm=setting.max_grad_norm,
        policy_kwargs={
            "net_arch": {"pi": hidden, "vf": hidden},
            "activation_fn": setting.activation_class,
            "ortho_init": setting.orthogonal_init,
            "log_std_init": setting.init_log_std,
        },
        tensorboard_log="sb3",
        verbose=1,
        seed=setting.seed,
        device="cpu",
    )

    def act(flat: torch.Tensor) -> torch.Tensor:
        obs = flat.numpy() if normalize is None else normalize.normalize_obs(flat.numpy())
        return torch.as_tensor(model.predict(obs, deterministic=True)[0])

    clock.act = act
    clock.count_as_update(model.rollout_buffer, "compute_returns_and_advantage")
    clock.count_as_update(model, "train", is_last=True)
    model.learn(iterations * setting.iteration_steps)
