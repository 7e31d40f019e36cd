"""Train CartPoleRL with Stable-Baselines3's PPO through the adapter, and print the success rate.

    pip install 'embodichain-mujoco[sb3]'
    python examples/sb3_cart_pole.py

The hyperparameters are of ``configs/agents/rl/basic/cart_pole/train_config_quickstart.json``, but for a constant
learning rate and twice the steps.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.ext.gymnasium.sb3 import SB3VecEnv
from embodichain.lab.gym.utils.registration import make


def train(steps: int, seed: int) -> tuple[PPO, VecNormalize]:
    """Train a policy for ``steps`` environment steps; return it with its observation normalizer."""
    env = VecNormalize(SB3VecEnv(make("CartPoleRL", num_envs=64)), norm_reward=False)
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=7e-4,
        n_steps=64,
        batch_size=1024,
        n_epochs=10,
        gamma=0.98,
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh, "log_std_init": -0.5},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return model, env


def evaluate(model: PPO, normalizer: VecNormalize, episodes: int, seed: int) -> float:
    """Return the share of episodes whose pole is upright at their end, without exploration."""
    env = SB3VecEnv(make("CartPoleRL", num_envs=episodes))
    env.seed(seed)
    obs = env.reset()
    first: list[bool | None] = [None] * episodes  # of each environment, so that short episodes do not count double
    while None in first:
        actions, _ = model.predict(np.asarray(normalizer.normalize_obs(obs)), deterministic=True)
        obs, _, _, infos = env.step(actions)
        first = [info.get("is_success") if known is None else known for known, info in zip(first, infos, strict=True)]
    env.close()
    return float(np.mean(np.array(first, dtype=np.float64)))


def main() -> None:
    """Read the command line, train, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80 * 64 * 64, help="environment steps (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=200, help="of the evaluation (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    model, normalizer = train(args.steps, args.seed)
    seconds = time.perf_counter() - start
    rate = evaluate(model, normalizer, args.episodes, seed=1_000_003)
    print(f"{args.steps:,} steps in {seconds:.0f} s; success in {rate:.1%} of {args.episodes} episodes")


if __name__ == "__main__":
    main()
