"""Evaluates a run's policy on a fixed set of episodes. Shapes: E episodes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.metrics.panel import EvaluationLog
from embodichain.agents.rl.nan_guard import non_finite_entries
from embodichain.agents.rl.trainer.evaluation import AT_END, EpisodeTable, Evaluator, means_of, wilson_interval
from embodichain.tools.policy import check_is_free, recorded, write_into
from embodichain.utils import CommandFailedError

# Other episodes than a training's own evaluations use, because these have chosen the best checkpoint.
_SEED_OFFSET = 2_000_003


class BrokenPolicyError(CommandFailedError):
    """A parameter of the policy is NaN or infinite."""


def describe(values: np.ndarray) -> dict[str, Any]:
    """Return the statistics of a metric over the E episodes that have it.

    The others' values are NaN. The interval is mean +- 1.96 std / sqrt(E).
    """
    is_given = ~np.isnan(values)
    values = values[is_given] if is_given.any() else values[:1]
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    half = 1.96 * std / len(values) ** 0.5
    lowest, highest = float(values.min()), float(values.max())
    return {"mean": mean, "interval_95": (mean - half, mean + half), "std": std, "lowest": lowest, "highest": highest}


def evaluate_run(
    target: str,
    episodes: int,
    envs: int,
    seed: int,
    device: str,
    allowed_imports: Sequence[str],
    overrides: Sequence[str] = (),
    deterministic: bool = True,
    record: Path | None = None,
) -> dict[str, Any]:
    """Play the ``episodes`` episodes of a seed, ``envs`` at a time, and return the result as plain data.

    Args:
        overrides: overrides of the run's config: ``env.rewards.reach.weight=2`` and the like.
        deterministic: take the most likely actions; else explore, as in training.
        record: folder for a LeRobot dataset of the episodes, with ``observation.environment_state``.
    """
    if record is not None:
        check_is_free(record)
    saved = find_run(target)
    settings = (episodes, envs, seed + _SEED_OFFSET, device, allowed_imports, overrides, deterministic, record)
    table = play_episodes(saved, *settings)
    columns = table.columns()
    rate = float(columns["success"].mean()) if "success" in columns else None
    return {
        "run": str(saved.folder),
        "checkpoint": str(saved.checkpoint),
        "env_steps": saved.content["global_step"],
        "episodes": episodes,
        "seed": seed,
        "overrides": list(overrides),
        "stochastic": not deterministic,
        "success_rate": rate,
        "success_once": None if rate is None else float(columns["success_once"].mean()),
        "success_interval_95": None if rate is None else list(wilson_interval(rate, episodes)),
        "metrics": means_of([table.metrics()]),
        "figures": {name: describe(values) for name, values in columns.items() if not name.startswith("success")},
    }


def play_episodes(
    saved: SavedRun,
    episodes: int,
    envs: int,
    seed: int,
    device: str,
    allowed_imports: Sequence[str],
    overrides: Sequence[str] = (),
    deterministic: bool = True,
    record: Path | None = None,
) -> EpisodeTable:
    """Play episodes with a run's policy and return their table; see :func:`evaluate_run`."""
    num_envs, change = min(envs, episodes), partial(recorded, folder=record, num_episodes=episodes)
    with open_run(saved, num_envs, device, allowed_imports, overrides, change) as opened:
        write_into(opened.env, record)
        if broken := non_finite_entries(opened.policy):
            raise BrokenPolicyError(f"{saved.checkpoint}: not finite in the policy: {', '.join(broken)}")
        evaluator = Evaluator(opened.env, episodes, seed, opened.device, Path())
        log = EvaluationLog()
        evaluator.run(opened.policy, "", deterministic=deterministic, on_step=lambda: log.update(*evaluator.progress()))
    return evaluator.table


def format_evaluation(result: dict[str, Any]) -> str:
    """Return the result of ``evaluate_run`` for the screen."""
    rows = {name.replace("_", " "): stats for name, stats in result["figures"].items()}
    width = max(len(name) for name in rows) + 2
    changes = f", with {' '.join(result['overrides'])}" if result["overrides"] else ""
    changes += ", exploring" if result["stochastic"] else ""
    lines = [f"{Path(result['checkpoint']).name}, after {result['env_steps']:,} environment steps{changes}", ""]
    if result["success_rate"] is not None:
        low, high = result["success_interval_95"]
        rate = f"success rate  {result['success_rate']:.1%} of {result['episodes']} episodes "
        lines += [
            f"{rate}(95 % interval {low:.1%} to {high:.1%})",
            f"success once  {result['success_once']:.1%}, at any step of an episode",
            "",
        ]
    lines.append(f"{'an episode':{width}}{'mean':>10}  {'95 % interval':>22}{'std':>10}{'lowest':>10}{'highest':>10}")
    for name, stats in rows.items():
        start, end = stats["interval_95"]
        interval = f"{start:.4g} to {end:.4g}"
        others = "".join(f"{stats[key]:10.4g}" for key in ("std", "lowest", "highest"))
        lines.append(f"{name:{width}}{stats['mean']:10.4g}  {interval:>22}{others}")
    lines += ["", "rewards are summed over an episode, metrics are means over its steps or taken at its last step"]
    if result["metrics"]:
        lines += ["", "metrics at the end of an episode, of flags the share of the episodes that end with them:"]
        at_end = {name: result["metrics"].get(f"{name}{AT_END}", value) for name, value in result["metrics"].items()}
        lines += [f"{name:{width}}{value:10.4g}" for name, value in at_end.items() if not name.endswith(AT_END)]
    return "\n".join(lines)
