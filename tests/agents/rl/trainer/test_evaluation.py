"""Shapes: N environments, E episodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.agents.rl.trainer.evaluation import Evaluation, Evaluator
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.configclass import replace
from embodichain.utils.utility import load_json
from embodichain.utils.video import Footage
from tests.agents.rl.fakes import CART_POLE_ENV, ScriptedEnv, linear_policy


def evaluate(env: ScriptedEnv, num_episodes: int, policy: Policy | None = None) -> Evaluation:
    evaluator = Evaluator(env, num_episodes, 5, torch.device("cpu"), Path("videos"))
    return evaluator.run(policy or linear_policy(), "step_8")


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5, 8])
def test_each_episode_of_the_set_counts_exactly_once_whatever_n(num_envs: int) -> None:
    # Episode e has e + 1 steps of reward e + 1, and succeeds if e is even. E = 5: lengths 1 ... 5, mean 3;
    # returns 1, 4, 9, 16, 25, mean 11; episodes 0, 2, 4 succeed. The short ones that end first do not push 4 out.
    result = evaluate(ScriptedEnv(num_envs), 5)
    assert (result.avg_length, result.avg_reward, result.episodes) == (3.0, 11.0, 5)
    assert result.success_rate == pytest.approx(0.6)


def test_short_episodes_beyond_the_set_do_not_take_the_place_of_long_ones() -> None:
    # Episodes 0 and 1 have 20 steps, later ones a single step: of E = 3 with N = 2, env 1 ends many before 0 is over.
    env = ScriptedEnv(2, length=lambda e: torch.where(e < 2, 20, 1))
    result = evaluate(env, 3)
    assert result.avg_length == pytest.approx((20 + 20 + 1) / 3)


def test_no_step_is_taken_beyond_the_last_episode_of_the_set() -> None:
    env = ScriptedEnv(2)
    evaluate(env, 4)
    # env 0: episodes 0 and 2, 1 + 3 steps; env 1: episodes 1 and 3, 2 + 4 steps
    assert len(env.actions) == 6


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


def test_policy_is_evaluated_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    policy = ActorCritic(
        2, 1, "cpu", nn.Sequential(nn.Linear(2, 64), nn.Dropout(0.5), nn.Linear(64, 1)), nn.Linear(2, 1)
    )
    env = ScriptedEnv(1)
    evaluate(env, 2, policy)
    policy.eval()
    obs = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    torch.testing.assert_close(torch.cat(env.actions), policy.actor(obs).detach())


def test_video_lasts_as_long_as_the_evaluation() -> None:
    env = ScriptedEnv(2)
    result = evaluate(env, 3)
    assert env.recordings == [(Path("videos"), "step_8")]
    assert not env.is_recording
    assert result.videos == [Path("videos/step_8.mp4")]


class FilmedEnv(ScriptedEnv):
    """Records an image a step, which takes half a second."""

    def start_recording(self, folder: Path, label: str) -> None:
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


def test_video_of_an_environment_that_does_not_count_is_not_counted() -> None:
    evaluator = Evaluator(ScriptedEnv(2), 4, 5, torch.device("cpu"), Path("videos"))
    evaluator.run(linear_policy(), "a")
    assert (evaluator.progress(), evaluator.footage) == ((4, 4, 0), Footage())


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("was_training", [True, False])
@pytest.mark.parametrize("fails_after", [None, 2])
def test_mode_and_threads_are_what_they_were_even_after_a_failure(was_training: bool, fails_after: int | None) -> None:
    env, policy = ScriptedEnv(2), linear_policy()
    policy.train(was_training)
    env.fails_after = fails_after
    if fails_after is None:
        evaluate(env, 3, policy)
    else:
        with pytest.raises(RuntimeError, match="fell off the table"):
            evaluate(env, 3, policy)
    assert env.threads == {1}
    assert torch.get_num_threads() == 2
    assert policy.training is was_training
    assert not env.is_recording


@pytest.mark.parametrize("fails_after", [None, 2])
def test_part_that_is_frozen_in_evaluation_mode_stays_in_it(fails_after: int | None) -> None:
    env = ScriptedEnv(2)
    backbone = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    policy = ActorCritic(2, 1, "cpu", nn.Sequential(backbone, nn.Linear(2, 1)), nn.Linear(2, 1))
    env.fails_after = fails_after
    with nullcontext() if fails_after is None else pytest.raises(RuntimeError, match="fell off the table"):
        evaluate(env, 3, policy)
    frozen = set(backbone.modules())
    assert all(module.training is (module not in frozen) for module in policy.modules())


@pytest.mark.usefixtures("two_threads")
def test_mode_and_threads_are_what_they_were_when_no_video_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    env, policy = ScriptedEnv(2), linear_policy()

    def fail(folder: Path, label: str) -> None:
        env.recordings.append((folder, label))
        raise RuntimeError("no camera")

    monkeypatch.setattr(env, "start_recording", fail)
    with pytest.raises(RuntimeError, match="no camera"):
        evaluate(env, 3, policy)
    assert torch.get_num_threads() == 2
    assert policy.training


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


def test_cart_pole_is_judged_the_same_by_two_and_by_five_environments() -> None:
    cfg = replace(config_to_cfg(load_json(CART_POLE_ENV)), max_episode_steps=12)
    results = []
    for num_envs in (2, 5):
        env = build_env("CartPoleRL", replace(cfg, num_envs=num_envs))
        policy = linear_policy(obs_dim=env.flattened_observation_space.shape[0])
        evaluator = Evaluator(env, 7, 3, torch.device("cpu"), Path("videos"))
        results.append(evaluator.run(policy, "a"))
        env.close()
    assert results[0].avg_reward != 0.0
    # E = 7 is a multiple of neither; sums in another order may differ in the last bit
    for name in ("success_rate", "avg_reward", "avg_length"):
        assert getattr(results[0], name) == pytest.approx(getattr(results[1], name), rel=1e-6)


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
