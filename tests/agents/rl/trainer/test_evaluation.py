"""Shapes: N environments, E episodes."""

import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.agents.rl.trainer.evaluation import EpisodeTable, Evaluation, Evaluator, means_of
from embodichain.utils.video import Footage
from tests.agents.rl.fakes import ScriptedEnv, linear_policy


def evaluate(env: ScriptedEnv, num_episodes: int, policy: Policy | None = None) -> Evaluation:
    evaluator = Evaluator(env, num_episodes, 5, torch.device("cpu"), Path("videos"))
    return evaluator.run(policy or linear_policy(), "step_8")


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5, 8])
def test_each_episode_of_the_set_counts_exactly_once_whatever_n(num_envs: int) -> None:
    # Episode e has e + 1 steps of reward e + 1, of which the term is half, and succeeds if e is even; the metric is the
    # environment's number. The short ones that end first do not push the last out.
    evaluator = Evaluator(ScriptedEnv(num_envs), 5, 5, torch.device("cpu"), Path("videos"))
    result = evaluator.run(linear_policy(), "x")
    assert (result.avg_length, result.avg_reward, result.episodes) == (3.0, 11.0, 5)
    assert result.success_rate == pytest.approx(0.6)
    columns = evaluator.table.columns()
    assert columns["length"].tolist() == [1, 2, 3, 4, 5]
    assert columns["return"].tolist() == [1, 4, 9, 16, 25]
    assert columns["rewards/progress"].tolist() == [0.5, 2, 4.5, 8, 12.5]
    assert columns["success"].tolist() == [1, 0, 1, 0, 1]
    players = [e % num_envs for e in range(5)]
    assert columns["metrics/place"].tolist() == columns["metrics/place at the end"].tolist() == players


def test_short_episodes_beyond_the_set_do_not_replace_long_ones() -> None:
    # Episodes 0 and 1 have 20 steps, later ones a single step: of E = 3 with N = 2, env 1 ends many before 0 is over.
    env = ScriptedEnv(2, length=lambda e: torch.where(e < 2, 20, 1))
    result = evaluate(env, 3)
    assert result.avg_length == pytest.approx((20 + 20 + 1) / 3)


def test_set_of_episodes_is_asked_for_by_seed_each_time() -> None:
    env = ScriptedEnv(2)
    evaluator = Evaluator(env, 3, 5, torch.device("cpu"), Path("videos"))
    first = evaluator.run(linear_policy(), "a")
    assert evaluator.run(linear_policy(), "b").avg_reward == first.avg_reward
    assert env.resets == [(5, {"enumerate_episodes": True})] * 2


def test_actions_are_the_most_likely_ones() -> None:
    env, policy = ScriptedEnv(1), linear_policy()
    evaluate(env, 2, policy)
    obs = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])  # (episode, steps done)
    assert torch.equal(torch.cat(env.actions), policy.actor(obs).detach())


class CountingPolicy(Policy):
    """Its state counts the steps of an episode, and so does the entry that it reads; its actions say both."""

    obs_keys = ("at",)
    state_size = 1

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        td["action"] = 10 * td["state"] + td["entries", "at"][:, 1:]
        td["next_state"] = td["state"] + 1
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        raise AssertionError("an evaluation asks for no values")

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        raise AssertionError("an evaluation does not learn")


def test_state_is_carried_over_and_zeroed_where_an_episode_ends() -> None:
    env = ScriptedEnv(1)
    evaluate(env, 3, CountingPolicy())
    assert torch.cat(env.actions).squeeze(1).tolist() == [0, 0, 11, 0, 11, 22]  # episodes of 1, 2 and 3 steps


def test_video_lasts_as_long_as_the_evaluation() -> None:
    env = ScriptedEnv(2)
    result = evaluate(env, 3)
    assert env.recordings == [(Path("videos"), "step_8", 3)]
    assert not env.is_recording
    assert result.videos == ["videos/step_8.mp4"]


class FilmedEnv(ScriptedEnv):
    """Records an image a step, which takes half a second."""

    def start_recording(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        super().start_recording(folder, label)
        self.actions.clear()

    def recorded(self) -> Footage:
        return Footage(len(self.actions), 0.5 * len(self.actions))


def test_evaluator_knows_how_far_it_is_and_what_its_videos_took() -> None:
    evaluator = Evaluator(FilmedEnv(2), 4, 5, torch.device("cpu"), Path("videos"))
    seen: list[tuple[int, int, int]] = []
    evaluator.run(linear_policy(), "a", on_step=lambda: seen.append(evaluator.progress()))
    # Two environments play episodes of 1 and 3, and of 2 and 4 steps; one ends after each of the steps 1, 2, 4 and 6.
    assert seen == [(4, 1, 1), (4, 2, 2), (4, 2, 3), (4, 3, 4), (4, 3, 5), (4, 4, 6)]
    evaluator.run(linear_policy(), "b")
    assert evaluator.footage == Footage(12, 6.0)
    assert 0.0 < evaluator.seconds < 5.0


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("was_training", [True, False])
@pytest.mark.parametrize("fails_after", [None, 2])
def test_modes_and_threads_are_restored_even_after_a_failure(was_training: bool, fails_after: int | None) -> None:
    env = ScriptedEnv(2)
    backbone = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    policy = ActorCritic(2, 1, "cpu", nn.Sequential(backbone, nn.Linear(2, 1)), nn.Linear(2, 1))
    policy.train(was_training)
    frozen = set(backbone.eval().modules())
    env.fails_after = fails_after
    with nullcontext() if fails_after is None else pytest.raises(RuntimeError, match="fell off the table"):
        evaluate(env, 3, policy)
    assert env.threads == {1}
    assert torch.get_num_threads() == 2
    assert all(module.training is (was_training and module not in frozen) for module in policy.modules())
    assert not env.is_recording


@pytest.mark.parametrize(
    ("num_successes", "low", "high"),
    [
        # 8 of 10, z = 1.96, z^2 = 3.8416: centre (0.8 + 3.8416/20) / 1.38416 = 0.71674,
        # half 1.96 sqrt(0.8 * 0.2 / 10 + 3.8416/400) / 1.38416 = 0.22658
        (8, 0.49016, 0.94332),
        # all: centre (1 + 0.19208) / 1.38416 = 0.86123, half 0.19208 / 1.38416 = 0.13877
        (10, 0.72246, 1.0),
        (0, 0.0, 0.27754),
    ],
)
def test_interval_is_wilsons(monkeypatch: pytest.MonkeyPatch, num_successes: int, low: float, high: float) -> None:
    env = ScriptedEnv(10, length=torch.ones_like)
    step = env.step

    def with_success(action: torch.Tensor) -> tuple:
        *rest, info = step(action)
        return (*rest, info | {"success": torch.arange(10) < num_successes})

    monkeypatch.setattr(env, "step", with_success)
    result = evaluate(env, 10)
    assert result.success_rate == num_successes / 10
    assert result.success_interval == pytest.approx((low, high), abs=1e-5)


def test_no_draw_of_the_training_depends_on_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    env, policy = ScriptedEnv(2), linear_policy()
    step = env.step

    def drawing(action: torch.Tensor) -> tuple:
        torch.manual_seed(0)
        return step(action)

    monkeypatch.setattr(env, "step", drawing)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    evaluate(env, 3, policy)
    assert torch.equal(torch.rand(2), expected)


# --- the table of episodes ---


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


def test_metric_is_a_numbers_mean_or_a_flags_last_value() -> None:
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


def test_flag_that_comes_late_was_false_before() -> None:
    table = EpisodeTable(3)
    assert table.metrics() == {}  # of a process without an episode
    for number, metrics in enumerate(({}, {"fell": torch.tensor([True])}, {"fell": torch.tensor([False])})):
        info = {"rewards": {}, "metrics": metrics, "success": torch.tensor([False])}
        table.on_step(torch.zeros(1), info, torch.tensor([True]), torch.tensor([number]))
    assert means_of([table.metrics()]) == {"fell": pytest.approx(1 / 3)}


def test_metrics_of_several_processes_are_over_all_episodes() -> None:
    # Of four episodes the first process has played two, the second two, the third none.
    nan = math.nan
    shares = [{"error": torch.tensor([1.0, nan, 3.0, nan])}, {"error": torch.tensor([nan, 2.0, nan, 6.0])}, {}]
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


def test_metric_may_come_later() -> None:
    nan, table = math.nan, EpisodeTable(3)
    # Environment 0 ends before the score is there, environment 1 with it; the third episode is another process's.
    for metrics, done in (({}, [True, False]), ({"score": torch.tensor([nan, 7.0])}, [False, True])):
        info = {"rewards": {}, "metrics": metrics, "success": torch.zeros(2)}
        table.on_step(torch.ones(2), info, torch.tensor(done), torch.tensor([0, 1]))
    columns = table.columns()
    assert columns["return"].tolist() == [1.0, 2.0, 0.0]
    assert columns["metrics/score"].tolist() == pytest.approx([nan, 7.0, nan], nan_ok=True)
    assert means_of([table.metrics()]) == {"score": 7.0, "score_at_end": 7.0}
