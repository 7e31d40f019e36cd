"""Asynchronous trainings whose policy chooses chunks of actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.rl.fakes import assert_same
from tests.agents.rl.test_chunk_training import CHUNKS
from tests.agents.rl.whole_trainings import SAME, after


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", list(CHUNKS))
def test_chunks_without_staleness_equal_synchronous_training(tmp_path: Path, name: str) -> None:
    sync = after(tmp_path, 3, **CHUNKS[name])
    ours = after(tmp_path, 3, **CHUNKS[name], trainer__asynchronous={"max_staleness": 0})
    for part in SAME:
        assert_same(ours[part], sync[part], part)
