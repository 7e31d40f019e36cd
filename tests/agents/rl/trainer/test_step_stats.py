"""Shapes: N environments, T rollout steps."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.collector.sync_collector import StepInfo
from embodichain.agents.rl.trainer.step_stats import EpisodeStats, clipped_share
from embodichain.utils.state import freeze, thaw

REWARD = "charts/episode_reward_avg_100"
LENGTH = "charts/episode_length_avg_100"
SUCCESS = "charts/success_rate_avg_100"


def test_clipped_share_counts_components_beyond_the_bounds() -> None:
    space = spaces.Box(np.array([[0, -1]], np.float32), np.array([[1, np.inf]], np.float32))
    actions = torch.tensor([[[0.5, 9.0], [1.5, -2.0]]])  # [N, T, A]; beyond: 1.5 and -2
    assert clipped_share(actions, space) == pytest.approx(2 / 4)
    of_one = spaces.Box(np.array([0, -1], np.float32), np.array([1, np.inf], np.float32))  # [A]
    assert clipped_share(actions, of_one) == pytest.approx(2 / 4)


def test_squashed_actions_at_a_bound_are_not_clipped() -> None:
    low, high = np.float32(-2.61), np.float32(1.37)
    space = spaces.Box(np.array([[low] * 2]), np.array([[high] * 2]))
    bounds = torch.tensor([[[low, high]]])
    assert clipped_share(bounds * (1 + 2e-7), space) == 0.0
    assert clipped_share(bounds * 1.001, space) == 1.0


def feed(
    stats: EpisodeStats,
    reward: list[list[float]],
    done: list[list[int]],
    success: list[list[int]],
    terms: dict[str, list[list[float]]] | None = None,
    metrics: dict[str, list[list[float]]] | None = None,
) -> dict[str, float]:
    """Take in a rollout whose tables are [N][T]; the padding in slot T must not count."""
    padding = 1000.0 * torch.ones(len(reward), 1)
    rollout = TensorDict(
        {
            "reward": torch.cat((torch.tensor(reward), padding), dim=1),
            "done": torch.cat((torch.tensor(done), padding), dim=1).bool(),
        },
        batch_size=[len(reward), len(reward[0]) + 1],
    )
    said = StepInfo(rollout)
    for t in range(len(reward[0])):
        named = [{n: torch.tensor(table)[:, t] for n, table in (group or {}).items()} for group in (terms, metrics)]
        said.write(t, {"rewards": named[0], "metrics": named[1], "success": torch.tensor(success)[:, t].bool()})
    said.finish()
    return stats.finish_rollout(rollout)


def test_episode_that_spans_two_rollouts_is_followed() -> None:
    stats = EpisodeStats(2)
    first = feed(stats, [[1, 2, 3], [10, 20, 30]], [[0, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 0]])
    # env 0: 1 + 2 in 2 steps; env 1 goes on
    assert (first[REWARD], first[LENGTH], first[SUCCESS]) == (3, 2, 1)
    second = feed(stats, [[4, 5, 6], [40, 50, 60]], [[1, 0, 0], [0, 1, 1]], [[0, 0, 0], [0, 1, 0]])
    # env 0: 3 + 4 in 2 steps; env 1: 10 + 20 + 30 + 40 + 50 = 150 in 5 steps, then 60 in 1
    assert second[REWARD] == pytest.approx((3 + 7 + 150 + 60) / 4)
    assert second[LENGTH] == pytest.approx((2 + 2 + 5 + 1) / 4)
    assert second[SUCCESS] == pytest.approx((1 + 0 + 1 + 0) / 4)


def test_statistics_continue_from_their_state() -> None:
    first, second = EpisodeStats(1), EpisodeStats(1)
    feed(first, [[5.0, 1.0, 2.0]], [[1, 0, 0]], [[1, 0, 0]])
    assert set(first.state_dict()) == {"_return", "_length", "_is_whole", "_returns", "_lengths", "_successes"}
    second.load_state_dict(thaw(freeze(first.state_dict())))
    scalars = feed(second, [[4.0]], [[1]], [[0]])
    # Episodes of 5 in 1 step, and of 1 + 2 + 4 = 7 in 3 steps.
    assert (scalars[REWARD], scalars[LENGTH], scalars[SUCCESS]) == (6, 2, 0.5)


def test_averages_are_over_the_last_hundred_episodes() -> None:
    stats = EpisodeStats(1)
    ends = [[1] * 60]
    feed(stats, [[1.0] * 60], ends, [[0] * 60])
    feed(stats, [[2.0] * 60], ends, [[1] * 60])
    # of 120 episodes the first 20 are forgotten: 40 of return 1, 60 of return 2
    scalars = feed(stats, [[0.0]], [[0]], [[0]])
    assert scalars[REWARD] == pytest.approx(1.6)
    assert scalars[SUCCESS] == pytest.approx(0.6)


def test_episode_that_a_reset_cut_does_not_count() -> None:
    stats = EpisodeStats(1)
    feed(stats, [[1.0, 2.0, 40.0]], [[0, 1, 0]], [[0, 0, 0]])
    stats.drop_unfinished()
    scalars = feed(stats, [[5.0, 6.0]], [[0, 1]], [[0, 0]])
    # 1 + 2, and 5 + 6 without the 40 before it
    assert scalars[REWARD] == pytest.approx((3 + 11) / 2)
    assert scalars[LENGTH] == 2


def test_terms_and_metrics_are_means_over_a_rollouts_steps() -> None:
    stats = EpisodeStats(2)
    none = [[0, 0], [0, 0]]
    zeros = [[0.0, 0.0], [0.0, 0.0]]
    scalars = feed(
        stats,
        zeros,
        none,
        none,
        terms={"reach": [[1.0, 2.0], [3.0, 4.0]], "smooth": [[-1.0, -1.0], [-1.0, -1.0]]},
        metrics={"distance": [[0.5, 0.5], [0.0, 0.0]]},
    )
    assert scalars == {"rewards/reach": 2.5, "rewards/smooth": -1.0, "metrics/distance": 0.25}
    again = feed(
        stats, zeros, none, none, terms={"reach": [[4.0] * 2] * 2, "smooth": zeros}, metrics={"distance": zeros}
    )
    assert again == {"rewards/reach": 4.0, "rewards/smooth": 0.0, "metrics/distance": 0.0}


def test_steps_that_lack_a_metric_do_not_count() -> None:
    nan = float("nan")
    metrics = {"late": [[nan, 2.0], [nan, 4.0]], "never": [[nan, nan], [nan, nan]]}
    scalars = feed(EpisodeStats(2), [[0.0, 0.0]] * 2, [[0, 0]] * 2, [[0, 0]] * 2, metrics=metrics)
    assert scalars == {"metrics/late": 3.0}  # (2 + 4) / 2
