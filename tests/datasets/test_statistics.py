"""Shapes: T frames, K numbers of a frame."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from embodichain.datasets.statistics import FeatureStatistics


def data_of(values: Any, dtype: str = "float32") -> dict[str, Any]:
    return FeatureStatistics.of(np.array(values, dtype=dtype)).as_data()


def test_numbers_have_all_statistics_of_each_column() -> None:
    data = data_of([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 8.0], [5.0, 0.0]])
    assert (data["min"], data["max"], data["count"]) == ([1.0, 0.0], [5.0, 8.0], [5])
    assert data["mean"] == pytest.approx([3.0, 1.6])
    # ((4 + 1 + 0 + 1 + 4) / 5)^0.5; (64 / 5 - 1.6^2)^0.5
    assert data["std"] == pytest.approx([math.sqrt(2.0), 3.2])
    # the first number that a share of the frames does not exceed: of five, 1 % and 10 % are the first, 50 % the third
    quantiles = {name: data[name] for name in ("q01", "q10", "q50", "q90", "q99")}
    assert quantiles == {"q01": [1, 0], "q10": [1, 0], "q50": [3, 0], "q90": [5, 8], "q99": [5, 8]}


def test_scalars_and_flags_are_one_number_a_frame() -> None:
    data = data_of([False, True, True, True], "bool")
    assert (data["min"], data["max"], data["mean"], data["count"]) == ([0.0], [1.0], [0.75], [4])
    assert (data["q10"], data["q50"]) == ([0.0], [1.0])


def test_images_have_statistics_of_each_channel_between_0_and_1() -> None:
    images = np.zeros((2, 1, 5, 3), dtype=np.uint8)  # ten pixels
    images[0, 0, :, 0] = 255  # half of them
    images[1, 0, 4, 1] = 51  # one of them
    images[..., 2] = 102
    data = FeatureStatistics.of(images).as_data()
    assert data["count"] == [2]  # frames, not pixels
    expected = {
        "min": (0.0, 0.0, 0.4),
        "max": (1.0, 0.2, 0.4),
        "mean": (0.5, 0.02, 0.4),
        "std": (0.5, math.sqrt(0.2**2 / 10 - 0.02**2), 0.0),
        "q50": (0.0, 0.0, 0.4),
        "q90": (1.0, 0.0, 0.4),
        "q99": (1.0, 0.2, 0.4),
    }
    for name, channels in expected.items():
        assert np.shape(data[name]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(data[name]), channels, atol=1e-7, err_msg=name)


def test_episodes_together_have_the_statistics_of_all_frames() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(30, 2)), rng.normal(size=(10, 2)) + 5.0
    both = FeatureStatistics.of(one).merged(FeatureStatistics.of(other)).as_data()
    every = FeatureStatistics.of(np.concatenate((one, other))).as_data()
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(both[name], every[name], atol=1e-12)


def test_quantiles_of_episodes_together_are_weighted_by_their_frames() -> None:
    merged = FeatureStatistics.of(np.array([1.0, 1.0, 1.0])).merged(FeatureStatistics.of(np.array([5.0])))
    assert merged.as_data()["q50"] == [2.0]  # (3 x 1 + 1 x 5) / 4
    assert merged.as_data()["q99"] == [2.0]
