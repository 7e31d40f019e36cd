"""Shapes: M = 5 vectors of D = 2 numbers."""

from __future__ import annotations

import pytest
import torch

from embodichain.ext.vla.smolvla_config import Normalization, denormalized, fitted, normalized

X = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1], [3.0, 0.1], [4.0, 0.1]])


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("IDENTITY", [0.0, 4.0]),
        ("MEAN_STD", [-(2**0.5), 2**0.5]),  # mean 2, variance (4 + 1 + 0 + 1 + 4) / 5 = 2
        ("MIN_MAX", [-1.0, 1.0]),
        ("QUANTILE10", [-1.25, 1.25]),  # the quantiles are 0.4 and 3.6: -0.4 / 1.6 beyond the end
    ],
)
def test_vectors_are_normalised_by_what_was_fitted_to_them(kind: Normalization, ends: list[float]) -> None:
    mean, std = fitted(X, kind)
    scaled = normalized(X, mean, std, kind)
    torch.testing.assert_close(scaled[[0, -1], 0], torch.tensor(ends))
    torch.testing.assert_close(denormalized(scaled, mean, std, kind), X)


def test_std_of_a_constant_number_is_exactly_0() -> None:
    assert fitted(X, "MEAN_STD")[1][1] == 0
