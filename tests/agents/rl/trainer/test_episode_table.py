"""A table of episodes; the environments are those of ``fakes.ScriptedEnv``."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.trainer.evaluation import EpisodeTable, Evaluator, means_of
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


def test_metric_of_an_episode_is_a_numbers_mean_or_a_flags_last_value() -> None:
    table = EpisodeTable(3)
    no_rewards = {"rewards": {}, "success": torch.tensor([False, False])}
    steps = [  # number, flag and end of two environments
        ([1.0, 5.0], [True, False], [False, False]),
        ([2.0, 7.0], [False, True], [True, True]),
        ([4.0, 9.0], [True, False], [True, False]),  # the second environment's second episode is not of the three
    ]
    episode = torch.tensor([0, 1])
    for number, flag, end in steps:
        metrics = {"error": torch.tensor(number), "fall_rate": torch.tensor(flag)}
        done = torch.tensor(end)
        table.on_step(torch.zeros(2), no_rewards | {"metrics": metrics}, done, episode)
        episode = episode + 2 * done
    metrics = table.metrics()
    assert metrics["error"].tolist() == [1.5, 6.0, 4.0]  # (1 + 2) / 2, (5 + 7) / 2, 4
    assert metrics["error_at_end"].tolist() == [2.0, 7.0, 4.0]
    assert metrics["fall_rate"].tolist() == [0.0, 1.0, 1.0]
    of_flag = {"fall_rate": pytest.approx(2 / 3)}
    assert means_of([metrics]) == {"error": pytest.approx(11.5 / 3), "error_at_end": pytest.approx(13 / 3), **of_flag}


def test_metrics_of_several_processes_are_over_the_episodes_of_all() -> None:
    # Of four episodes the first process has played two, the second two, the third none.
    shares = [{"error": torch.tensor([1.0, 0.0, 3.0, 0.0])}, {"error": torch.tensor([0.0, 2.0, 0.0, 6.0])}, {}]
    assert means_of(shares) == {"error": 3.0}
    assert means_of([{}, {}]) == {}


def test_success_counts_at_the_end_and_once() -> None:
    table = EpisodeTable(2)
    for success, done in (([False, True], False), ([True, False], False), ([True, False], True)):
        info = {"rewards": {}, "metrics": {}, "success": torch.tensor(success)}
        table.on_step(torch.zeros(2), info, torch.tensor([done, done]), torch.tensor([0, 1]))
    # Environment 0 succeeds at its last two steps, environment 1 at its first alone.
    assert table.columns()["success"].tolist() == [1, 0]
    assert table.columns()["success_once"].tolist() == [1, 1]
    assert table.results()[[0, 3]].tolist() == [[1, 0], [1, 1]]


def test_steps_that_lack_a_metric_do_not_count_in_its_mean() -> None:
    nan, table = math.nan, EpisodeTable(2)
    for values, done in (([1.0, nan], False), ([nan, nan], False), ([4.0, nan], True)):
        info = {"rewards": {}, "metrics": {"m": torch.tensor(values)}, "success": torch.zeros(2)}
        table.on_step(torch.zeros(2), info, torch.tensor([done, done]), torch.tensor([0, 1]))
    # (1 + 4) / 2 of the first episode; the second has no value, and the mean over the episodes leaves it out.
    assert table.columns()["metrics/m"].tolist() == pytest.approx([2.5, nan], nan_ok=True)
    assert means_of([table.metrics()]) == {"m": 2.5, "m_at_end": 4.0}
