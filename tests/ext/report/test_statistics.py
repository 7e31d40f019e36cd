"""Statistics of few runs, by hand."""

from typing import Any

import numpy as np
import pytest

from embodichain.ext.report.compare import bootstrap_interval, compare_groups, interquartile_mean


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([4.0], 4.0),
        ([1.0, 5.0], 3.0),  # half of each is left
        ([9.0, 1.0, 2.0, 3.0], 2.5),  # 2 and 3
        ([0.0, 10.0, 20.0, 30.0, 1000.0], 20.0),  # (0.75 x 10 + 20 + 0.75 x 30) / 2.5
        ([0, 1, 2, 3, 4, 5, 6, 100], 3.5),  # 2, 3, 4 and 5
    ],
)
def test_interquartile_mean(scores: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(scores)) == pytest.approx(expected)


def test_bootstrap_resamples_each_task_by_itself() -> None:
    # One run of each task: nothing can vary. Without strata the mean would reach from 0 to 10.
    groups = [{"a": np.array([0.0]), "b": np.array([10.0])}]
    assert bootstrap_interval(groups, lambda drawn: drawn[0].mean(axis=1)) == (5.0, 5.0)


def test_interval_of_a_mean_is_nearly_normal() -> None:
    scores = np.random.default_rng(0).normal(3.0, 1.0, 100)
    low, high = bootstrap_interval([{"a": scores}], lambda drawn: drawn[0].mean(axis=1))
    half = 1.96 * scores.std() / 10
    assert [low, high] == pytest.approx([scores.mean() - half, scores.mean() + half], abs=0.03)


def compared(a: list[float], b: list[float]) -> dict[str, Any]:
    return compare_groups("a", "b", {"a": {"x": np.array(a)}, "b": {"x": np.array(b)}})


def test_winner_is_named_only_where_the_data_allow_it() -> None:
    high, low = [0.9, 0.92, 0.94, 0.96], [0.1, 0.2, 0.3, 0.4]
    clear = compared(high, low)
    assert clear["verdict"] == "a is higher"
    assert clear["difference"] == pytest.approx(0.93 - 0.25)
    assert clear["interval_95"] is not None
    assert clear["interval_95"][0] > 0
    assert compared(low, high)["verdict"] == "b is higher"
    assert compared(high[:3], low[:3])["verdict"] == "too few runs to say: 3, and at least 4 of each are needed"
    assert compared([0.1, 0.5, 0.6, 0.9], [0.2, 0.5, 0.5, 0.8])["verdict"] == "no difference can be told from chance"
    assert compared(high, high)["verdict"] == "no difference can be told from chance"


@pytest.mark.parametrize(("score", "counts"), [(0.1, (5, 6)), (0.95, (4, 7)), (1.0, (4, 5)), (-300.1, (5, 7))])
def test_equal_scores_of_unequal_numbers_of_runs_have_no_winner(score: float, counts: tuple[int, int]) -> None:
    a, b = ({"task": np.full(count, score)} for count in counts)
    assert compare_groups("a", "b", {"a": a, "b": b})["verdict"] == "no difference can be told from chance"
