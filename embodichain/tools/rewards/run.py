"""Takes the reward of a run apart, from episodes with exploration. Shapes: E episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.lab.gym.envs.managers.cfg import RewardCfg
from embodichain.tools.evaluate.run import play_episodes
from embodichain.tools.report.run_data import read_run
from embodichain.tools.rewards.terms import misleading_terms, rescore, term_facts
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import unknown_name
from embodichain.utils.files import write_atomically

_SEED = 5_000_003


def analyse_reward(
    target: str, episodes: int, envs: int, weights: Mapping[str, float], device: str, allowed_imports: Sequence[str]
) -> dict[str, Any]:
    """Return the facts on each term of a run's reward as plain data.

    Args:
        episodes: how many are played, or read where they were played before.
        weights: by term, in place of the config's: what they would have paid for the same episodes.
        allowed_imports: prefixes of modules that the run's config may name.

    Raises:
        ConfigError: there is no such run, it cannot be built here, or it has no such term.
        BrokenPolicyError: a parameter of the policy is not finite.
    """
    saved = find_run(target)
    columns = _episodes(saved, episodes, envs, device, allowed_imports)
    scored = rescore(columns, _factors(weights, saved, columns))
    return {
        "run": str(saved.folder),
        "episodes": len(columns["return"]),
        "success_rate": float(columns["success"].mean()),
        "weights": _weights(saved) | dict(weights),
        "terms": {name: asdict(fact) for name, fact in term_facts(scored.columns).items()},
        "return_of_success": scored.of_success,
        "return_of_failure": scored.of_failure,
        "correlation_of_return_with_success": scored.correlation,
        "correlation_before": rescore(columns, {}).correlation,
        "misleading": misleading_terms(read_run(saved.folder)),
    }


def _episodes(
    saved: SavedRun, episodes: int, envs: int, device: str, allowed_imports: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return the columns of recorded episodes, and record them where that was not done before."""
    path = saved.folder / "rewards" / f"{saved.checkpoint.stem}_{episodes}_episodes.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    torch.manual_seed(_SEED)
    columns = play_episodes(saved, episodes, envs, _SEED, device, allowed_imports, deterministic=False)
    try:
        path.parent.mkdir(exist_ok=True)
        arrays: dict[str, Any] = columns
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        logger.log_warning(f"{path}: the episodes could not be saved: {error}")
    return columns


def _weights(saved: SavedRun) -> dict[str, float]:
    """Return the weights of the config's terms."""
    terms = saved.content["config"]["gym_config"].get("env", {}).get("rewards", {})
    return {name: float(term.get("weight", RewardCfg.weight)) for name, term in terms.items()}


def _factors(weights: Mapping[str, float], saved: SavedRun, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
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
