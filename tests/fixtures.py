"""Fixtures of several folders, whose conftest.py takes them from here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the test run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Give torch two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
