"""Analyses a run's reward, term by term. Legend: E episodes, I iterations."""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.config.arguments import add_allow_import, allowed_imports
from embodichain.commands import arguments
from embodichain.lab.gym.envs.managers.cfg import RewardCfg
from embodichain.tools.evaluate import play_episodes
from embodichain.utils import ConfigError, unknown_name, write_atomically

_SEED = 5_000_003
OTHER = "(other)"
"""The rest of the return, added by the task's own code."""
_PREFIX = "rewards/"
Columns = Mapping[str, np.ndarray]


def analyse_reward(
    target: str, episodes: int, envs: int, weights: Mapping[str, float], device: str, allowed_imports: Sequence[str]
) -> dict[str, Any]:
    """Return size, variance share and correlation of each reward term as plain data.

    Episodes that an earlier call has recorded are read; they are scored with ``weights`` in place of the config's.
    """
    saved = find_run(target)
    columns = _episodes(saved, episodes, envs, device, allowed_imports)
    if "success" not in columns:
        raise ConfigError(f"{saved.folder}: its environment does not say what a success is; reward terms need one")
    scored = rescore(columns, _factors(weights, saved, columns))
    return {
        "run": str(saved.folder),
        "episodes": len(columns["return"]),
        "success_rate": float(columns["success"].mean()),
        "weights": _weights(saved) | dict(weights),
        "terms": term_facts(scored),
        **return_facts(scored),
        "correlation_before": correlation(columns["return"], columns["success"]),
    }


def _episodes(
    saved: SavedRun, episodes: int, envs: int, device: str, allowed_imports: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return the columns of the recorded episodes; record them first if needed."""
    with saved.checkpoint.open("rb") as file:  # another may have its name
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    path = saved.folder / "rewards" / f"{saved.checkpoint.stem}_{digest}_{episodes}_episodes.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    torch.manual_seed(_SEED)
    columns = play_episodes(saved, episodes, envs, _SEED, device, allowed_imports, deterministic=False).columns()
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, Any] = columns
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
    return columns


def _weights(saved: SavedRun) -> dict[str, float]:
    """Return the weights of the config's terms."""
    terms = saved.content["config"]["gym_config"].get("env", {}).get("rewards", {})
    return {name: float(term.get("weight", RewardCfg.weight)) for name, term in terms.items()}


def _factors(weights: Mapping[str, float], saved: SavedRun, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return new weights divided by the recorded ones; terms that the task adds itself have weight 1."""
    env = saved.content["config"]["gym_config"].get("env", {})
    if weights and env.get("extensions", {}).get("only_positive_rewards"):
        raise ConfigError(
            "--weights: with only_positive_rewards the reward of a step is not below 0, so other weights cannot be "
            "scored from sums over episodes"
        )
    known = [name.removeprefix("rewards/") for name in columns if name.startswith("rewards/")]
    old = _weights(saved)
    factors = {}
    for name, weight in weights.items():
        if name not in known:
            raise ConfigError(f"--weights: {unknown_name('reward term', name, known)}")
        if old.get(name, 1.0) == 0.0:
            raise ConfigError(f"--weights {name}: it was recorded with the weight 0, so its values are not known")
        factors[name] = weight / old.get(name, 1.0)
    return factors


def term_facts(columns: Columns) -> dict[str, dict[str, float | None]]:
    """Return the facts of each term, the largest share of variance first.

    Args:
        columns: ``return``, ``success`` and ``rewards/<term>``, [E] each, as an ``EpisodeTable`` has them.

    Returns:
        By term the ``mean`` of an episode's sum of the weighted term, and ``size``, the mean of that sum's absolute
        value; ``share_of_variance``, cov(term, return) / var(return), of which the sum is 1, None if the return is
        constant; and ``correlation`` with success, in [-1, 1], None if either is constant.
    """
    total, success = columns["return"], columns["success"]
    terms = {name.removeprefix(_PREFIX): values for name, values in columns.items() if name.startswith(_PREFIX)}
    other = total - sum(terms.values()) if terms else total
    if np.abs(other).max() > 1e-3 * max(np.abs(total).max(), 1e-9):
        terms[OTHER] = other
    variance = float(total.var())
    facts = {
        name: {
            "mean": float(values.mean()),
            "size": float(np.abs(values).mean()),
            "share_of_variance": float(np.cov(values, total, bias=True)[0, 1]) / variance if variance > 1e-12 else None,
            "correlation": correlation(values, success),
        }
        for name, values in terms.items()
    }
    return dict(sorted(facts.items(), key=lambda item: -(item[1]["share_of_variance"] or 0.0)))


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return Pearson's correlation of two columns [E], None if one is constant."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() * b.std() > 1e-12 else None


def rescore(columns: Columns, factors: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Return the columns of recorded episodes [E] with other weights: recorded ones times ``factors``, by term."""
    new = dict(columns)
    for name, factor in factors.items():
        values = columns[_PREFIX + name]
        new[_PREFIX + name] = factor * values
        new["return"] = new["return"] + (factor - 1.0) * values
    return new


def return_facts(columns: Columns) -> dict[str, float | None]:
    """Return the mean return of successes and failures, and its correlation with success; None where there is none."""
    total, is_success = columns["return"], columns["success"] > 0.5
    groups = {"return_of_success": total[is_success], "return_of_failure": total[~is_success]}
    means = {name: float(values.mean()) if len(values) else None for name, values in groups.items()}
    return means | {"correlation_of_return_with_success": correlation(total, columns["success"])}


def format_terms(result: dict[str, Any], is_rescored: bool) -> str:
    """Return the result of ``analyse_reward`` for the screen; ``is_rescored``: with other weights than the run's."""
    facts = result["terms"]
    total = sum(fact["size"] for fact in facts.values()) or 1.0
    width = max(len(name) for name in (*facts, "an episode")) + 2
    head = f"{'an episode':{width}}{'weight':>10}{'mean':>12}{'of size':>10}{'of variance':>13}{'with success':>14}"
    lines = [
        f"{result['episodes']} episodes with exploration, {result['success_rate']:.1%} succeed"
        + (", paid by other weights" if is_rescored else ""),
        "",
        head,
    ]
    for name, fact in facts.items():
        weight = result["weights"].get(name)
        share = fact["size"] / total
        lines.append(
            f"{name:{width}}{'' if weight is None else f'{weight:g}':>10}{fact['mean']:12.4g}{share:10.1%}"
            f"{_cell(fact['share_of_variance'], '{:.1%}'):>13}{_cell(fact['correlation'], '{:+.2f}'):>14}"
        )
    lines += ["", f"return of episodes that succeed  {_cell(result['return_of_success'], '{:.4g}')}"]
    lines += [f"return of episodes that fail     {_cell(result['return_of_failure'], '{:.4g}')}"]
    before = f", before {_cell(result['correlation_before'], '{:+.2f}')}" if is_rescored else ""
    after = _cell(result["correlation_of_return_with_success"], "{:+.2f}")
    lines += [f"correlation of return with success  {after}{before}"]
    if OTHER in facts:
        lines.append(f"{OTHER}: what the task pays besides these terms")
    return "\n".join(lines)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


EXAMPLES = (
    "latest",
    "latest --weights success=5 reach=0.1",
    "outputs/push_cube_ppo_20260101_120000 --episodes 500 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    arguments.add_run(parser)
    parser.add_argument(
        "--episodes",
        type=arguments.number_of_episodes(2),
        default=200,
        metavar="E",
        help="number to play, with exploration; they are saved in the run's folder (default: %(default)s)",
    )
    parser.add_argument(
        "--envs", type=arguments.whole_number(), default=50, metavar="N", help="side by side (default: 50)"
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        default=[],
        metavar="term=weight",
        help="compute the reward of the same episodes with these weights",
    )
    arguments.add_json(parser)
    arguments.add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the terms; return 0."""
    weights = arguments.parse_pairs(args.weights, "--weights")
    result = analyse_reward(args.target, args.episodes, args.envs, weights, args.device, allowed_imports(args))
    arguments.print_result(args, result, lambda found: format_terms(found, bool(weights)))
    return 0
