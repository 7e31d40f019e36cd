"""Collection with chunks of actions. Legend: N = 2 envs, T = 4 decisions, H = 3 actions of a chunk."""

import math

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import RolloutBuffer
from embodichain.agents.rl.buffer.layout import num_env_steps
from embodichain.agents.rl.collector import BaseCollector, SyncCollector
from embodichain.agents.rl.collector.sync_collector import sum_over_chunk
from embodichain.agents.rl.trainer import step_stats
from embodichain.agents.rl.trainer.step_stats import EpisodeStats
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import ChunkedEnv, ScriptedEnv, linear_policy

T, H = 4, 3


def collect(count: int, collector: BaseCollector) -> list[TensorDict]:
    return [collector.collect(T).clone() for _ in range(count)]


def test_rollout_has_a_row_a_decision() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    assert rollout["action"].shape == rollout["sample_log_prob"].shape == (2, T + 1, H, 1)
    assert rollout["reward"].shape == rollout["executed"].shape == (2, T + 1, H)
    # environment 0 plays the episodes 0, 2, 4, ... of 1, 3, 5, ... steps; 1 those of 2, 4, 6, ... steps
    assert rollout["executed"][:, :T].sum(-1).tolist() == [[1, 3, 3, 2], [2, 3, 1, 3]]
    assert rollout["reward"][:, :T].sum(-1).tolist() == [[1, 9, 15, 10], [4, 12, 4, 18]]
    assert rollout["done"][:, :T].tolist() == [[True, True, False, True], [True, False, True, False]]
    # where each decision was made: (episode, steps done of it)
    assert rollout["obs"][0].tolist() == [[0, 0], [2, 0], [4, 0], [4, 3], [6, 0]]
    assert rollout["obs"][1].tolist() == [[1, 0], [3, 0], [3, 3], [5, 0], [5, 3]]
    assert num_env_steps(rollout) == 9 + 9


def test_truncated_chunk_bootstraps_from_its_final_state() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    # the episodes of even number are truncated, after 1, 3 and 5 steps
    last = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    expected = policy.get_value(TensorDict({"obs": last}, batch_size=[3]))["value"]
    torch.testing.assert_close(rollout["final_value"][0, [0, 1, 3]], expected)
    assert rollout["final_value"][1].tolist() == [0] * (T + 1)


def test_actions_of_a_chunk_reach_the_environment_in_order() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    assert torch.equal(torch.stack(env.actions).reshape(T, H, 2, 1), rollout["action"][:, :T].permute(1, 2, 0, 3))


def test_environment_that_takes_single_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"chunks of 3 actions .* ScriptedEnv takes single ones"):
        SyncCollector(ScriptedEnv(2), linear_policy(chunk_length=H), "cpu")


def test_statistics_count_the_steps_that_were_executed() -> None:
    policy = linear_policy(chunk_length=H)
    stats = EpisodeStats(2)
    rollout = SyncCollector(ChunkedEnv(2), policy, "cpu").collect(T)
    scalars = stats.finish_rollout(rollout)
    # of 9 steps of each environment: rewards 1 + 9 + 25 and 4 + 16 + 18, of which the term is half
    assert scalars["rewards/progress"] == pytest.approx((35 + 38) / 2 / 18)
    assert scalars["metrics/place"] == pytest.approx(0.5)
    # episodes 0 to 4 ended: of 1, 2, 3, 4, 5 steps with rewards 1, 2, 3, 4, 5; those of even number are successes
    assert scalars["charts/episode_length_avg_100"] == pytest.approx(3.0)
    assert scalars["charts/episode_reward_avg_100"] == pytest.approx((1 + 4 + 9 + 16 + 25) / 5)
    assert scalars["charts/success_rate_avg_100"] == pytest.approx(3 / 5)


def test_steps_of_a_chunk_that_lack_a_metric_do_not_count() -> None:
    nan, executed = math.nan, torch.tensor([[True, True, True, False], [True] * 4])
    sums = sum_over_chunk(torch.tensor([[1.0, nan, nan, 0.0], [nan] * 4]), executed)
    assert sums.tolist() == pytest.approx([3.0, nan], nan_ok=True)
    rollout = TensorDict({"metrics/m": torch.stack((sums, torch.zeros(2)), dim=1)}, batch_size=[2, 2])
    assert step_stats._sums(rollout, executed.sum(1, keepdim=True)) == {"metrics/m": (3.0, 3.0)}


def test_buffer_has_room_for_chunks() -> None:
    rollout = RolloutBuffer(2, T, 2, 1, "cpu", chunk_length=H, log_prob_size=7).start_rollout()
    assert rollout["action"].shape == (2, T + 1, H, 1)
    assert rollout["sample_log_prob"].shape == (2, T + 1, H, 7)
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    mine = RolloutBuffer(2, T, 2, 1, "cpu", chunk_length=H).start_rollout()
    assert SyncCollector(env, policy, "cpu").collect(T, mine) is mine
    assert mine["executed"][:, :T].any(-1).all()
