"""The finder of waits finds each kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.no_sync import HostSyncError, no_host_sync

X = torch.arange(6.0).view(3, 2)


@pytest.mark.parametrize(
    "wait",
    [
        lambda: X.sum().item(),
        lambda: bool(X.any()),
        lambda: int(X.sum()),
        lambda: X.tolist(),
        lambda: X.numpy(),
        lambda: X.cpu(),
        lambda: np.asarray(X),
        lambda: X.nonzero(),
        lambda: X[X > 1.0],
        lambda: X[:, [1, 0]],
        lambda: X.clone().__setitem__((slice(None), [0]), 1.0),
        lambda: torch.tensor([1.0]),
        lambda: torch.from_numpy(np.zeros(2)),
        lambda: torch.equal(X, X),
        lambda: torch.masked_select(X, X > 1.0),
        lambda: torch.linalg.solve(torch.eye(2), X.T),
        lambda: X.unique(),
    ],
)
def test_what_waits_is_found(wait: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with no_host_sync(monkeypatch), pytest.raises(HostSyncError):
        wait()


def test_what_does_not_wait_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.tensor([2, 0])
    with no_host_sync(monkeypatch):
        assert len(X[index]) == 2
        torch.where(X > 1.0, X, 0.0)
        X[:, 1:].clone().masked_fill_(X[:, 1:] > 1.0, 0.0)
        torch.zeros(3, 2).index_copy_(0, index, X[:2])
        torch.linalg.solve_ex(torch.eye(2), X[:2])
