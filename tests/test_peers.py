"""The benchmark beside other learners: its clock, its floors, and the two learners that need nothing installed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import __main__ as peers
from benchmarks.peers.clock import Clock
from benchmarks.peers.floors import gemm_shapes
from benchmarks.peers.setting import TASKS, load_setting
from benchmarks.peers.worker import Job, check_work, run_job

TINY = ["trainer.num_envs=4", "trainer.buffer_size=8", "algorithm.cfg.batch_size=16", "algorithm.cfg.n_epochs=2"]


class Seconds:
    """Stands in for the time: nothing takes any but what says so."""

    now = 0.0


class ScriptedEnv:
    """Two environments; a step takes 3 s. The rewards are 1 and 10; the second one's episodes have three steps."""

    def __init__(self, seconds: Seconds) -> None:
        self.seconds = seconds
        self.count = 0

    def step(self, action: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        self.seconds.now += 3.0
        self.count += 1
        ends = self.count % 3 == 0
        return None, torch.tensor([1.0, 10.0]), torch.tensor([False, ends]), torch.tensor([False, False]), {}


class ScriptedLearner:
    """Takes 0.5 s beside each step, 2 s for its returns and 5 s for an update of two gradient steps."""

    def __init__(self, env: ScriptedEnv, seconds: Seconds) -> None:
        self.env = env
        self.seconds = seconds
        self.parameter = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)

    def compute_returns(self) -> None:
        self.seconds.now += 2.0

    def update(self) -> str:
        for _ in range(2):
            self.parameter.grad = torch.ones(1)
            self.optimizer.step()
        self.seconds.now += 5.0
        return "losses"

    def learn(self, iterations: int) -> None:
        for _ in range(iterations):
            for _ in range(2):
                self.env.step(torch.zeros(2, 1))
                self.seconds.now += 0.5
            self.compute_returns()
            assert self.update() == "losses"
            self.seconds.now += 0.25  # logs


@pytest.fixture
def watched() -> Clock:
    seconds = Seconds()
    env = ScriptedEnv(seconds)
    learner = ScriptedLearner(env, seconds)
    with Clock(lambda: seconds.now) as clock:
        clock.watch(env)
        clock.count_as_update(learner, "compute_returns")
        clock.count_as_update(learner, "update", is_last=True)
        learner.learn(3)
    learner.learn(1)  # nobody counts any more
    return clock


def test_every_second_of_an_iteration_is_in_one_of_three_parts(watched: Clock) -> None:
    # Two steps of 3 s; 2 + 5 s of update; twice 0.5 s of policy and, from the second iteration on, the last one's logs.
    for iteration, policy in zip(watched.iterations[:3], (1.0, 1.25, 1.25), strict=True):
        assert (iteration.env_step, iteration.update, iteration.policy) == (6.0, 7.0, policy)
        assert iteration.seconds == 13.0 + policy


def test_gradient_steps_of_any_optimizer_are_counted_until_the_clock_is_closed(watched: Clock) -> None:
    assert [iteration.gradient_steps for iteration in watched.iterations] == [2, 2, 2, 0]


def test_episodes_are_followed_from_one_iteration_to_the_next(watched: Clock) -> None:
    # The second environment's third step is the first of the second iteration: 3 x 10. The next end is at step 6.
    assert [iteration.returns for iteration in watched.iterations] == [None, 30.0, 30.0, None]


def test_products_of_a_gradient_step_are_those_of_every_layer() -> None:
    # 2 -> 3 -> 1, batch 4: output and weight gradient of both layers, input gradient of the second only.
    assert gemm_shapes([2, 3, 1], 4) == [(4, 2, 3), (3, 4, 2), (4, 3, 1), (1, 4, 3), (4, 1, 3)]


@pytest.mark.parametrize("task", TASKS)
def test_quickstart_settings_make_forty_gradient_steps_an_iteration(task: str) -> None:
    # 10 epochs of 8192 / 2048 or 4096 / 1024 minibatches.
    assert load_setting(task).gradient_steps == 40


def test_minibatches_that_do_not_divide_a_rollout_are_refused() -> None:
    with pytest.raises(ValueError, match="4096 steps do not divide into minibatches of 1000"):
        load_setting("CartPoleRL", ["algorithm.cfg.batch_size=1000"])


def test_a_learner_that_makes_other_gradient_steps_is_an_error(watched: Clock) -> None:
    setting = load_setting("CartPoleRL")
    with pytest.raises(RuntimeError, match=r"asked for 3 iterations of 40 gradient steps, made \[2, 2, 2\]"):
        check_work(watched.iterations[:3], setting, Job("CartPoleRL", "ours", 1, 2, False, []))


def test_our_trainer_and_cleanrl_s_loop_run_beside_the_floors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[str] = []

    def spawn_here(job: Job, threads: int) -> dict[str, Any]:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(job.learner)
        return run_job(job, folder)

    monkeypatch.setattr(peers, "spawn", spawn_here)
    arguments = ["--task=CartPoleRL", "--learners", "ours", "cleanrl", "floors", "--rounds=1", "--iterations=2"]
    overrides = [f"--override={override}" for override in TINY]
    monkeypatch.setattr(sys, "argv", ["peers", *arguments, *overrides, "--picture", str(tmp_path / "peers.png")])
    peers.main()

    assert jobs == ["ours", "cleanrl", "floors"]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"]["CartPoleRL"]
    for row in result["learners"].values():
        parts = sum(row[name]["median"] for name in ("env_step", "policy", "update"))
        assert parts == pytest.approx(row["seconds"]["median"], abs=2e-4)  # all four are rounded to 1e-4
    assert all(result["floors"][name]["median"] > 0 for name in ("bare_step", "env_step_alone", "gemm"))
    assert (tmp_path / "peers.png").stat().st_size > 0
    assert list((tmp_path / "0" / "outputs").glob("*/metrics.jsonl"))
