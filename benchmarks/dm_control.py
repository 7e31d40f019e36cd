"""DM Control tasks after 100,000 environment steps: shipped configs and published results.

    pip install "envpool>=1.2.5"
    python -m benchmarks.dm_control quadruped_walk walker_run fish_swim --seeds 1 2 3
    python -m benchmarks.dm_control

Each training is a separate process, as ``embodichain train`` starts it, with one thread. Then ten episodes are played
without exploration, in DM Control's own control steps, each action for two of them: the return is the sum of 1,000
rewards, as published. In a training EnvPool simulates both as one step, with the second's reward. A row for
each seed is appended to ``benchmarks/results/dm_control.jsonl``, with a digest of the config. In the end the rows of
the present configs are printed next to the published means.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.seeds import Row, add_rows, current_rows, run
from embodichain.agents.rl.config.named import find_config
from embodichain.ext.gymnasium.envpool_env import EnvPoolCfg, EnvPoolEnv
from embodichain.tools.policy import TrainedPolicy, load_policy
from embodichain.utils.utility import load_json

RESULTS = Path(__file__).resolve().parent / "results/dm_control.jsonl"
ACTION_REPEAT = 2
EVAL_SEED = 1_000_004
# Means of 10 seeds at 100,000 environment steps: SAC and SimBa, of results/sac.csv and results/sac_simba.csv in
# https://github.com/SonyResearch/simba (commit 7d0358b).
PUBLISHED = {
    "cheetah_run": (329, 559),
    "fish_swim": (86, 466),
    "hopper_hop": (1, 86),
    "quadruped_run": (103, 572),
    "quadruped_walk": (76, 666),
    "walker_run": (261, 517),
    "walker_walk": (783, 951),
}


def published_return(policy: TrainedPolicy, env_id: str, episodes: int) -> list[float]:
    """Return the return of each episode in DM Control's own control steps, with actions that are repeated."""
    env = EnvPoolEnv(EnvPoolCfg(env_id, num_envs=episodes, num_threads=1))
    obs, _ = env.reset(seed=EVAL_SEED)
    total, over = torch.zeros(episodes), torch.zeros(episodes, dtype=torch.bool)
    while not over.all():
        action = policy.act(obs)
        for _ in range(ACTION_REPEAT):
            obs, reward, terminated, truncated, _ = env.step(action)
            total += reward * ~over
            over |= terminated | truncated
    env.close()
    return total.tolist()


def train_and_evaluate(name: str, seed: int, episodes: int) -> Row:
    """Train with one seed, and return the row's numbers."""
    with TemporaryDirectory() as folder:
        run(folder, "train", name, f"trainer.seed={seed}")
        (summary,) = Path(folder).glob("outputs/*/summary.json")
        trained = load_json(summary)
        policy = load_policy(str(summary.parent))
    returns = published_return(policy, load_json(find_config(name))["trainer"]["gym_config"]["id"], episodes)
    return {
        "return": round(statistics.mean(returns), 1),
        "returns": [round(value, 1) for value in returns],
        "env_steps": ACTION_REPEAT * trained["env_steps"],
        "train_seconds": round(trained["train_seconds"], 1),
    }


def table_of(rows: dict[str, list[Row]]) -> str:
    """Return the table of the tasks' rows in Markdown."""
    lines = [
        "| task | SAC, published | SimBa, published | ours | seeds | training, median |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for task, found in rows.items():
        returns = [row["return"] for row in found]
        ours = f"{statistics.mean(returns):.0f} ({min(returns):.0f} to {max(returns):.0f})"
        seconds = statistics.median(row["train_seconds"] for row in found)
        sac, simba = PUBLISHED[task]
        lines.append(f"| {task} | {sac} | {simba} | {ours} | {len(found)} | {seconds:,.0f} s |")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", help="names of shipped configs, such as walker_run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    parser.add_argument("--episodes", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.configs:
        add_rows(RESULTS, name, args.seeds, lambda name, seed: train_and_evaluate(name, seed, args.episodes))
    print(table_of(current_rows(RESULTS)))


if __name__ == "__main__":
    main()
