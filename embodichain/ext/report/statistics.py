"""Statistics for comparing few runs. Legend: R runs of a group, K resamples.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021:
interquartile means instead of means or medians, and intervals by a bootstrap that resamples the runs of each task by
themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 5000
MIN_RUNS = 4
"""Least runs of each group for a difference: with 3 against 3 runs the clearest outcome, all of one group above
all of the other, comes about by chance in 2 of 20 ways to divide them (10 %), of 4 against 4 in 2 of 70 (3 %)."""
_ROUNDING = 1e-12  # of the largest score: means of equal numbers differ by less

Scores = Mapping[str, np.ndarray]
"""Scores [R] by task."""
Ends = tuple[float, float]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of scores [..., R], [...]: a quarter of them is cut off at each end.

    With a number that four does not divide, the outermost that are left count in part, so that few runs give a smooth
    result: with 5 scores, 1 1/4 are cut off at each end, and it is (0.75 b + c + 0.75 d) / 2.5.
    """
    ordered = np.sort(np.asarray(scores, dtype=float), axis=-1)
    num_runs = ordered.shape[-1]
    edges = np.arange(num_runs + 1, dtype=float)
    cut = num_runs / 4
    weights = np.clip(np.minimum(edges[1:], num_runs - cut) - np.maximum(edges[:-1], cut), 0.0, 1.0)
    return np.asarray((ordered * weights).sum(axis=-1) / weights.sum())


def bootstrap_interval(
    groups: Sequence[Scores], statistic: Callable[[list[np.ndarray]], np.ndarray], seed: int = 0
) -> Ends:
    """Return the 95 % percentile interval of a statistic of groups, by a stratified bootstrap.

    Args:
        groups: the scores of each group; the runs of each task are resampled by themselves.
        statistic: [K] of all scores of each group, [K, R].
    """
    generator = np.random.default_rng(seed)
    drawn = [
        np.concatenate([generator.choice(scores, (NUM_RESAMPLES, len(scores))) for scores in group.values()], axis=1)
        for group in groups
    ]
    low, high = np.percentile(statistic(drawn), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """Comparison of one group's scores with another's.

    Attributes:
        difference: difference of the interquartile means, first - second.
        interval_95: interval of the difference; None where a group has a single run of some task.
        verdict: the higher group, or the reason for no verdict.
    """

    first: str
    second: str
    difference: float
    interval_95: Ends | None
    verdict: str


def compare_groups(first: str, second: str, groups: Mapping[str, Scores], seed: int = 0) -> Comparison:
    """Compare two groups of runs.

    A winner is named where both have at least ``MIN_RUNS`` runs of each task, of the same tasks, and the difference's
    interval does not reach 0; else not.

    Args:
        groups: scores by group and task.
    """
    a, b = groups[first], groups[second]

    def difference(scores: list[np.ndarray]) -> np.ndarray:
        return interquartile_mean(scores[0]) - interquartile_mean(scores[1])

    found = float(difference([np.concatenate(list(a.values())), np.concatenate(list(b.values()))]))
    fewest = min(len(scores) for group in (a, b) for scores in group.values())
    interval = bootstrap_interval([a, b], difference, seed) if fewest > 1 else None
    largest = max(np.abs(scores).max() for group in (a, b) for scores in group.values())
    if set(a) != set(b):
        verdict = "not compared: they are not of the same tasks"
    elif interval is None or fewest < MIN_RUNS:
        verdict = f"too few runs to say: {fewest}, and at least {MIN_RUNS} of each are needed"
    elif interval[0] <= _ROUNDING * largest and interval[1] >= -_ROUNDING * largest:
        verdict = "no difference can be told from chance"
    else:
        verdict = f"{first if found > 0 else second} is higher"
    return Comparison(first, second, found, interval, verdict)
