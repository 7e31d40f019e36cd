"""Folders as runs leave them, without any training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NETWORK = {"type": "mlp", "network_cfg": {"hidden_sizes": [4], "activation": "tanh"}}


def write_run(
    folder: Path,
    success: Sequence[float | None],
    *,
    seed: int = 1,
    name: str = "tiny",
    algorithm: dict[str, Any] | None = None,
    rows: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write a run with an evaluation's success (None: none) and other figures in each iteration; return its folder."""
    (folder / "videos").mkdir(parents=True)
    config = {
        "trainer": {"exp_name": name, "seed": seed, "num_eval_episodes": 10, "iterations": len(success), "num_envs": 2},
        "policy": {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True},
        "algorithm": {"name": "ppo", "cfg": algorithm or {"gamma": 0.9, "clip_coef": 0.2}},
        "gym_config": {"id": "CartPoleRL"},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    lines = []
    for i, rate in enumerate(success):
        line = {"step": 100 * (i + 1), "wall_time": float(i), "time/train_seconds": 2.0 * (i + 1)}
        line |= {"charts/success_rate_avg_100": 0.1 * i, "charts/episode_reward_avg_100": float(i)}
        line |= rows[i] if rows else {}
        if rate is not None:
            line |= {"eval/success_rate": rate, "eval/episodes": 10, "eval/avg_reward": 1.5, "eval/avg_length": 20.0}
        lines.append(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
