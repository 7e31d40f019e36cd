"""A table of episodes; the environments are those of ``fakes.ScriptedEnv``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.utils.episode_table import EpisodeTable
from embodichain.agents.rl.utils.evaluation import Evaluator
from tests.agents.rl.utils.fakes import ScriptedEnv, linear_policy


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_each_episode_has_its_own_row_however_many_environments_play(num_envs: int, tmp_path: Path) -> None:
    table = EpisodeTable(4)
    evaluator = Evaluator(ScriptedEnv(num_envs), 4, 0, torch.device("cpu"), tmp_path)
    evaluator.run(linear_policy(), "x", observe=table.on_step)
    columns = table.columns()
    # Episode e has e + 1 steps of reward e + 1, of which the term is half; the metric is the environment's number.
    assert columns["length"].tolist() == [1, 2, 3, 4]
    assert columns["return"].tolist() == [1, 4, 9, 16]
    assert columns["rewards/progress"].tolist() == [0.5, 2, 4.5, 8]
    assert columns["success"].tolist() == [1, 0, 1, 0]
    players = [e % num_envs for e in range(4)]
    assert columns["metrics/place"].tolist() == players
    assert columns["metrics/place at the end"].tolist() == players
