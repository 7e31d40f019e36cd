"""A table of episodes; the environments are those of ``fakes.ScriptedEnv``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.trainer.evaluation import EpisodeTable, Evaluator
from tests.agents.rl.fakes import ScriptedEnv, linear_policy


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_each_episode_has_its_own_row_however_many_environments_play(num_envs: int, tmp_path: Path) -> None:
    evaluator = Evaluator(ScriptedEnv(num_envs), 4, 0, torch.device("cpu"), tmp_path)
    evaluator.run(linear_policy(), "x")
    columns = evaluator.table.columns()
    # Episode e has e + 1 steps of reward e + 1, of which the term is half; the metric is the environment's number.
    assert columns["length"].tolist() == [1, 2, 3, 4]
    assert columns["return"].tolist() == [1, 4, 9, 16]
    assert columns["rewards/progress"].tolist() == [0.5, 2, 4.5, 8]
    assert columns["success"].tolist() == [1, 0, 1, 0]
    players = [e % num_envs for e in range(4)]
    assert columns["metrics/place"].tolist() == players
    assert columns["metrics/place at the end"].tolist() == players


def test_of_a_chunk_only_the_steps_that_were_made_count() -> None:
    table = EpisodeTable(2)
    # Environment 0 ends with the second of three steps, environment 1 goes on; then it ends with the first.
    first = torch.tensor([[1.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
    executed = first > 0
    info = {"executed": executed, "rewards": {"a": first / 2}, "metrics": {"m": first * 10}}
    episode = torch.tensor([0, 1])
    table.on_step(first, info | {"success": torch.tensor([True, False])}, torch.tensor([True, False]), episode)
    second = torch.tensor([[9.0, 9.0, 9.0], [4.0, 0.0, 0.0]])
    info = {"executed": second > 0, "rewards": {"a": second / 2}, "metrics": {"m": second * 10}}
    episode = torch.tensor([2, 1])  # the third does not count
    table.on_step(second, info | {"success": torch.tensor([False, False])}, torch.tensor([False, True]), episode)
    columns = table.columns()
    assert columns["length"].tolist() == [2, 4]
    assert columns["return"].tolist() == [3, 7]
    assert columns["rewards/a"].tolist() == [1.5, 3.5]
    assert columns["metrics/m"].tolist() == [15.0, 17.5]  # (10 + 20) / 2 and (3 x 10 + 40) / 4
    assert columns["metrics/m at the end"].tolist() == [20, 40]
    assert columns["success"].tolist() == [1, 0]
