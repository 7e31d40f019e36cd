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
def test_asynchronous_training_without_staleness_equals_the_synchronous_one_bit_for_bit(
    tmp_path: Path, name: str
) -> None:
    sync = after(tmp_path, 3, **CHUNKS[name])
    ours = after(tmp_path, 3, **CHUNKS[name], trainer__asynchronous={"max_staleness": 0})
    for part in SAME:
        assert_same(ours[part], sync[part], part)


def test_asynchronous_training_learns_from_chunks_of_older_policies(tmp_path: Path) -> None:
    asynchronous = {"max_staleness": 2, "env_groups": 2}
    result = after(tmp_path, 4, **CHUNKS["ppo"], trainer__asynchronous=asynchronous)
    assert [row["train/policy_loss"] == row["train/policy_loss"] for row in result["rows"]] == [True] * 4
