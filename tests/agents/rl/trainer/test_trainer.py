"""Shapes: N = 2 environments, T = 4 steps: an iteration has 8 environment steps."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain import __version__
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.agents.rl.metrics.sinks import JsonLinesSink, RunLog, TensorBoardSink
from embodichain.agents.rl.trainer import trainer
from embodichain.agents.rl.trainer.evaluation import Evaluation
from embodichain.agents.rl.trainer.trainer import WARM_UP_STEPS, Trainer
from embodichain.agents.rl.trainer.viewer import Viewer
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze
from tests.agents.rl.fakes import (
    IdleAlgorithm,
    ListSink,
    ScriptedEnv,
    linear_policy,
    read_metrics,
    read_tensorboard,
    tiny_trainer,
)

pytestmark = pytest.mark.e2e


class Run:
    """A trainer with everything about it scripted."""

    def __init__(
        self,
        folder: Path,
        normalize_obs: bool = False,
        evaluates: bool = True,
        viewer: Viewer | None = None,
        **options: Any,
    ) -> None:
        self.env, self.eval_env = ScriptedEnv(2), ScriptedEnv(2)
        self.policy = linear_policy(normalize_obs)
        self.algorithm = IdleAlgorithm(self.policy)
        self.sink = ListSink()
        self.log = RunLog(
            [self.sink, JsonLinesSink(folder / "metrics.jsonl"), TensorBoardSink(folder / "logs", None, {})]
        )
        self.trainer = Trainer(
            policy=self.policy,
            env=self.env,
            algorithm=self.algorithm,
            **tiny_trainer(folder, **options),
            eval_env=self.eval_env if evaluates else None,
            log=self.log,
            viewer=viewer,
        )

    def train(self, total_timesteps: int) -> Self:
        self.trainer.train(total_timesteps)
        self.log.close()
        return self


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("tiny_step_")) for path in folder.glob("*.pt"))


def test_training_stops_when_all_environments_reach_the_total(tmp_path: Path) -> None:
    run = Run(tmp_path).train(17)  # 8, 16, 24
    assert run.trainer.global_step == 24
    assert [step for step, _ in run.sink.rows] == [8, 16, 24]
    assert len(run.algorithm.rollouts) == 3
    assert len(run.env.actions) == 12


def test_algorithm_hears_before_each_update_how_much_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    heard: list[float] = []

    def update(rollout: TensorDict) -> dict[str, float]:
        heard.append(run.algorithm.progress)
        return {}

    monkeypatch.setattr(run.algorithm, "update", update)
    run.train(32)
    assert heard == [0, 0.25, 0.5, 0.75]


def test_rollouts_begin_with_new_episodes_where_asked(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.algorithm.reset_every_rollout = True
    run.train(16)
    first, second = run.algorithm.rollouts
    assert torch.equal(first["obs"], second["obs"])
    # Episodes 0, 2 and 1 ended in each, as in the test below; 3 was cut in the first, and 2 steps of it must not count.
    assert run.sink.rows[1][1]["charts/episode_length_avg_100"] == pytest.approx((1 + 3 + 2) / 3)


@pytest.mark.parametrize(
    ("freq", "total", "expected"),
    [
        ("2 it", 40, [16, 32, 40]),  # every second iteration, and the last one
        ("2 it", 32, [16, 32]),  # the last one is due anyway: once
        (12, 40, [16, 24, 40]),  # first iterations' ends at or past 12, 24 and 36
        (1, 16, [8, 16]),
        (1000, 16, [16]),
    ],
)
def test_evaluates_and_saves_on_schedule_and_once_at_the_end(
    tmp_path: Path, freq: int | str, total: int, expected: list[int]
) -> None:
    run = Run(tmp_path, eval_freq=freq, save_freq=freq).train(total)
    assert checkpoints(tmp_path) == expected
    assert [step for step, row in run.sink.rows if "eval/success_rate" in row] == expected
    assert [label for _, label, _ in run.eval_env.recordings] == [f"step_{step}" for step in expected]
    assert run.trainer.saver.last == tmp_path / f"tiny_step_{total}.pt"


def test_schedules_of_evaluation_and_checkpoints_are_apart(tmp_path: Path) -> None:
    run = Run(tmp_path, eval_freq="3 it", save_freq="2 it").train(32)
    assert checkpoints(tmp_path) == [16, 24, 32]  # the first evaluation is the best so far: after 3
    assert len(run.eval_env.recordings) == 2  # after 3 and 4


def test_best_has_the_most_successes_then_the_highest_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, eval_freq="1 it")
    outcomes = iter([(0.0, -5.0), (0.5, -9.0), (0.5, -4.0), (0.5, math.nan), (0.4, 8.0)])

    def evaluate(*args: Any, **kwargs: Any) -> Evaluation:
        success, reward = next(outcomes)
        return Evaluation(success, (0.0, 1.0), success, reward, 3.0, 3)

    monkeypatch.setattr(run.trainer.evaluator, "run", evaluate)
    best = []
    for iteration in range(1, 6):
        run.trainer.train(8 * iteration)
        best.append(json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))["step"])
    run.log.close()
    assert best == [8, 16, 24, 24, 24]  # the first has no success, and is the best so far nevertheless


def test_best_is_of_evaluations_that_can_be_compared(tmp_path: Path) -> None:
    state = {"best_success": 0.9, "best_reward": 1.0, "best_checkpoint": "a.pt"}
    for is_comparable in (True, False):
        saver = Run(tmp_path).trainer.saver
        saver.load_state_dict(state | {"iteration": 1}, is_comparable)
        assert saver.is_best({"eval/success_rate": 0.8, "eval/avg_reward": 0.0}, 24) is not is_comparable


def test_evaluation_has_an_environment_of_its_own(tmp_path: Path) -> None:
    env, policy = ScriptedEnv(2), linear_policy(False)
    algorithm = IdleAlgorithm(policy)
    with pytest.raises(ConfigError, match=r"^eval_env: must be another environment than env, and without a curriculum"):
        Trainer(policy=policy, env=env, algorithm=algorithm, **tiny_trainer(tmp_path), eval_env=env, log=RunLog())


def test_normaliser_learns_between_updates_from_real_slots(tmp_path: Path) -> None:
    run = Run(tmp_path, normalize_obs=True).train(24)
    # The first steps give 17 observations of each of the 2 environments: 34. What the algorithm saw during updates 1, 2
    # and 3: these, and those of 0, 1 and 2 rollouts of 8 steps.
    assert run.algorithm.counts == [34, 42, 50]
    normalizer: Any = run.policy.normalizer
    assert normalizer.count == 58


def test_normaliser_begins_with_steps_that_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, normalize_obs=True)
    given: list[Tensor] = []
    update = run.policy.update_normalizer

    def take(obs: Tensor) -> None:
        given.append(obs.clone())
        update(obs)

    monkeypatch.setattr(run.policy, "update_normalizer", take)
    run.train(16)
    assert [obs.shape for obs in given] == [(2, WARM_UP_STEPS + 1, 2), (2, 4, 2), (2, 4, 2)]
    for obs, rollout in zip(given[1:], run.algorithm.rollouts, strict=True):
        assert torch.equal(obs, rollout["obs"][:, :-1])
    # Episodes go on from there: the first rollout begins where the first steps ended.
    assert torch.equal(given[1][:, 0], given[0][:, -1])
    assert run.trainer.global_step == 16
    assert [step for step, _ in run.sink.rows] == [8, 16]


def test_names_of_what_is_logged(tmp_path: Path) -> None:
    run = Run(tmp_path, eval_freq="1 it").train(16)
    specified = {
        "train/loss",
        "train/clipped_actions",
        "rewards/progress",
        "metrics/place",
        "charts/SPS",
        "charts/episode_reward_avg_100",
        "charts/episode_length_avg_100",
        "eval/avg_reward",
        "eval/avg_length",
        "eval/success_rate",
        "eval/metrics/place",
        "eval/metrics/place_at_end",
    }
    events = read_tensorboard(tmp_path / "logs")
    assert specified <= set(events)
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [8, 16]
    for row, (_, scalars) in zip(rows, run.sink.rows, strict=True):
        assert specified <= set(row)
        assert {name: row[name] for name in scalars} == scalars
    for tag in specified:
        assert [step for step, _ in events[tag]] == [8, 16]
        torch.testing.assert_close([value for _, value in events[tag]], [row[tag] for row in rows])


PARTS_OF_TRAINING = ("time/collect_seconds", "time/update_seconds", "time/statistics_seconds")


def test_logged_figures_are_those_of_the_episodes(tmp_path: Path) -> None:
    run = Run(tmp_path, eval_freq="1 it").train(8)
    ((_, row),) = run.sink.rows
    # Episode e: e + 1 steps of reward e + 1. In 4 steps env 0 ends episodes 0 (1 step) and 2 (3 steps, return 9),
    # env 1 ends 1 (2 steps, return 4); 3 goes on.
    assert row["charts/episode_length_avg_100"] == pytest.approx((1 + 3 + 2) / 3)
    assert row["charts/episode_reward_avg_100"] == pytest.approx((1 + 9 + 4) / 3)
    assert row["charts/success_rate_avg_100"] == pytest.approx(2 / 3)
    # half of the rewards of 8 steps: env 0: 1, 3, 3, 3; env 1: 2, 2, 4, 4
    assert row["rewards/progress"] == pytest.approx((1 + 3 + 3 + 3 + 2 + 2 + 4 + 4) / 8 / 2)
    assert row["metrics/place"] == 0.5
    assert row["train/loss"] == 10.0
    # the evaluation's episodes 0, 1, 2
    assert row["eval/episodes"] == 3
    assert row["eval/avg_length"] == 2.0
    assert row["eval/avg_reward"] == pytest.approx((1 + 4 + 9) / 3)
    assert row["eval/success_rate"] == pytest.approx(2 / 3)
    assert row["eval/metrics/place"] == pytest.approx(1 / 3)  # environments 0, 1, 0
    assert row["charts/SPS"] == pytest.approx(8 / row["time/train_seconds"])
    assert row["time/train_seconds"] == pytest.approx(sum(row[part] for part in PARTS_OF_TRAINING))


def test_time_of_evaluations_is_no_training_time(tmp_path: Path) -> None:
    run = Run(tmp_path, eval_freq="1 it").train(16)
    first, second = (row for _, row in run.sink.rows)
    spent = sum(row[part] for row in (first, second) for part in PARTS_OF_TRAINING)
    assert run.trainer.train_seconds == second["time/train_seconds"] == pytest.approx(spent)
    evaluator = run.trainer.evaluator
    assert evaluator is not None
    evaluated = [row["time/eval_seconds"] for row in (first, second)]
    assert min(evaluated) > 0
    assert sum(evaluated) == pytest.approx(evaluator.seconds)


def test_checkpoint_describes_itself(tmp_path: Path) -> None:
    run = Run(tmp_path, normalize_obs=True).train(16)
    content = load_checkpoint(tmp_path / "tiny_step_16.pt")
    assert content["code_version"] == __version__
    assert content["config"] == {"seed": 1}
    assert (content["global_step"], content["iteration"]) == (16, 2)
    assert content["train_seconds"] == run.trainer.train_seconds
    assert content["algorithm"] == {}  # this one has no optimiser
    restored = linear_policy(normalize_obs=True)
    restored.load_state_dict(content["policy"])
    assert all(torch.equal(a, b) for a, b in zip(restored.buffers(), run.policy.buffers(), strict=True))


def test_unfinished_episodes_of_stateless_envs_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "resumed").mkdir()
    first = Run(tmp_path, evaluates=False).train(8)
    second = Run(tmp_path / "resumed", evaluates=False)  # its environments begin with the episodes 0 and 1
    second.trainer.load_state_dict(freeze(first.trainer.state_dict()))
    second.train(16)
    ((_, row),) = second.sink.rows
    # Env 0 plays the episodes of 1 and 3 steps, env 1 that of 2 and half of that of 4: in each of the two runs.
    assert row["charts/episode_length_avg_100"] == pytest.approx(2 * (1 + 3 + 2) / 6)
    assert row["charts/episode_reward_avg_100"] == pytest.approx(2 * (1 + 9 + 4) / 6)


# --- the viewer ---


class PausingViewer(Viewer):
    """Pauses for an hour of its own clock in every step, which else takes a second; keeps what it was told."""

    def __init__(self) -> None:
        self.now, self.paused_seconds, self.steps = 0.0, 0.0, 0
        self.rows: list[tuple[int, int, int]] = []

    def on_step(self, check_stop: Callable[[], None]) -> None:
        check_stop()
        self.steps += 1
        self.now += 3601.0
        self.paused_seconds += 3600.0

    def on_iteration(self, iteration: int, iterations: int, step: int, latest: Mapping[str, float]) -> None:
        self.rows.append((iteration, iterations, step))
        assert "charts/SPS" in latest


def test_viewer_sees_every_step_and_iteration(tmp_path: Path) -> None:
    viewer = PausingViewer()
    Run(tmp_path, viewer=viewer).train(17)
    assert viewer.steps == 12  # 3 iterations of 4
    assert viewer.rows == [(1, 3, 8), (2, 3, 16), (3, 3, 24)]


def test_time_of_a_pause_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = PausingViewer()
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: viewer.now))
    run = Run(tmp_path, viewer=viewer).train(8)
    assert run.trainer.train_seconds == 4.0  # of 4 steps
    (row,) = (row for _, row in run.sink.rows)
    assert (row["time/collect_seconds"], row["charts/SPS"]) == (4.0, 2.0)


def test_signal_during_a_pause_ends_the_training(tmp_path: Path) -> None:
    class Held(Viewer):
        def on_step(self, check_stop: Callable[[], None]) -> None:
            while True:
                check_stop()

    def stop() -> None:
        checks.append(1)
        if len(checks) > 1:  # the first one is the step's own
            raise InterruptedTraining(2)

    checks: list[int] = []
    run = Run(tmp_path, viewer=Held())
    run.trainer._stop = stop
    with pytest.raises(InterruptedTraining):
        run.train(8)
    run.log.close()
    assert len(run.env.actions) == 1
