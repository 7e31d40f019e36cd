"""``embodichain rewards``. Shapes: E episodes."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.commands.arguments import add_device, add_json, add_run, parse_pairs, whole_number
from embodichain.lab.gym.envs.managers.cfg import RewardCfg
from embodichain.tools.open_run import open_run
from embodichain.tools.report.reward_terms import OTHER, TermFacts, misleading_terms, rescore, term_facts
from embodichain.tools.report.run_data import read_run
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import unknown_name
from embodichain.utils.files import write_atomically
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = (
    "latest",
    "latest --weights success=5 reach=0.1",
    "outputs/push_cube_ppo_20260101_120000 --episodes 500 --json",
)

_SEED = 5_000_003


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--episodes",
        type=whole_number(2),
        default=200,
        metavar="E",
        help="that are played, with exploration, and kept in the run's folder for the next time (default: %(default)s)",
    )
    parser.add_argument("--envs", type=whole_number(), default=50, metavar="N", help="side by side (default: 50)")
    parser.add_argument(
        "--weights",
        nargs="+",
        default=[],
        metavar="term=weight",
        help="what these weights would have paid for the same episodes",
    )
    add_json(parser)
    add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the terms; return 0.

    Raises:
        ConfigError: there is no such run, it cannot be built here, or it has no such term.
    """
    saved = find_run(args.target)
    weights = parse_pairs(args.weights, "--weights")
    columns = _episodes(saved, args)
    factors = _factors(weights, saved, columns)
    scored = rescore(columns, factors)
    facts = term_facts(scored.columns)
    result = {
        "run": str(saved.folder),
        "episodes": len(columns["return"]),
        "success_rate": float(columns["success"].mean()),
        "weights": _weights(saved) | weights,
        "terms": {name: asdict(fact) for name, fact in facts.items()},
        "return_of_success": scored.of_success,
        "return_of_failure": scored.of_failure,
        "correlation_of_return_with_success": scored.correlation,
        "correlation_before": rescore(columns, {}).correlation,
        "misleading": misleading_terms(read_run(saved.folder)),
    }
    print(json.dumps(result, indent=2) if args.json else _text(result, facts, bool(weights)))
    return 0


def _episodes(saved: SavedRun, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the columns of recorded episodes, and record them where that was not done before."""
    path = saved.folder / "rewards" / f"{saved.checkpoint.stem}_{args.episodes}_episodes.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    torch.manual_seed(_SEED)
    with open_run(saved, min(args.envs, args.episodes), args.device, allowed_imports(args)) as opened:
        evaluator = Evaluator(opened.env, args.episodes, _SEED, opened.device, Path())
        evaluator.run(opened.policy, "", deterministic=False)
    columns = evaluator.table.columns()
    try:
        path.parent.mkdir(exist_ok=True)
        arrays: dict[str, Any] = columns
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        logger.log_warning(f"{path}: the episodes could not be kept: {error}")
    return columns


def _weights(saved: SavedRun) -> dict[str, float]:
    """Return the weights of the config's terms."""
    terms = saved.content["config"]["gym_config"].get("env", {}).get("rewards", {})
    return {name: float(term.get("weight", RewardCfg.weight)) for name, term in terms.items()}


def _factors(weights: dict[str, float], saved: SavedRun, columns: dict[str, np.ndarray]) -> dict[str, float]:
    """Return new weights divided by those of the recording; a term that the task adds by itself has 1."""
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


def _text(result: dict[str, Any], facts: dict[str, TermFacts], is_rescored: bool) -> str:
    total = sum(fact.size for fact in facts.values()) or 1.0
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
        lines.append(
            f"{name:{width}}{'' if weight is None else f'{weight:g}':>10}{fact.mean:12.4g}{fact.size / total:10.1%}"
            f"{_cell(fact.share_of_variance, '{:.1%}'):>13}{_cell(fact.correlation, '{:+.2f}'):>14}"
        )
    lines += ["", f"return of episodes that succeed  {_cell(result['return_of_success'], '{:.4g}')}"]
    lines += [f"return of those that do not      {_cell(result['return_of_failure'], '{:.4g}')}"]
    before = f", before {_cell(result['correlation_before'], '{:+.2f}')}" if is_rescored else ""
    after = _cell(result["correlation_of_return_with_success"], "{:+.2f}")
    lines += [f"correlation of return with success  {after}{before}"]
    for name, reason in result["misleading"].items():
        lines.append(f"look at '{name}': in training it {reason}")
    if OTHER in facts:
        lines.append(f"{OTHER}: what the task pays beside these terms")
    return "\n".join(lines)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
