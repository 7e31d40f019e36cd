"""Stable-Baselines3's PPO on our own wrapper for it, with its logger on console and TensorBoard."""

from __future__ import annotations

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from benchmarks.sb3_learners import greedy, make_ppo, normalized
from embodichain.ext.gymnasium.sb3 import SB3VecEnv
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import to_dict


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    policy, cfg = setting.run.resolved["policy"], to_dict(setting.run.algorithm)
    logs = {"tensorboard_log": "sb3", "verbose": 1}
    model = make_ppo(normalized(SB3VecEnv(env), policy), policy, cfg, setting.num_steps, setting.seed, **logs)
    clock.act = greedy(model)
    clock.count_as_update(model.rollout_buffer, "compute_returns_and_advantage")
    clock.count_as_update(model, "train", is_last=True)
    model.learn(iterations * setting.iteration_steps)
