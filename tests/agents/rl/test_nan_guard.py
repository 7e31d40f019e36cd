"""The checks after an iteration. Legend: N = 2 environments, T = 3 steps."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import gradient_step
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.nan_guard import NanGuard, NonFiniteError, Origin, find_origin
from tests.agents.rl.fakes import IdleAlgorithm, linear_policy

NAN, INF = float("nan"), float("inf")


class Watched:
    """An algorithm whose gradient steps are made here, and its guard."""

    def __init__(self, limit: int = 3, algorithm: type[IdleAlgorithm] = IdleAlgorithm) -> None:
        self.policy = linear_policy()
        self.algorithm = algorithm(self.policy)
        self.algorithm.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.1)  # type: ignore[attr-defined]
        self.guard = NanGuard(self.policy, self.algorithm, limit)
        self.step = 0

    def iterate(self, *factors: float, rollout: TensorDict | None = None) -> dict[str, float]:
        """Make an update with a gradient step for each factor of the loss; the rollout has zeros by default."""
        self.step += 8
        for factor in factors:
            optimizer: torch.optim.Optimizer = self.algorithm.optimizer  # type: ignore[attr-defined]
            gradient_step(optimizer, self.policy.parameters(), factor * self.policy.log_std.sum(), 1.0)
        return self.guard.end_iteration(make_rollout() if rollout is None else rollout, {}, self.step)


class Storing(IdleAlgorithm):
    """Would learn from a replay buffer."""

    learns_from = "replay"


class Cloning(IdleAlgorithm):
    """Would learn from demonstrations."""

    learns_from = "demonstrations"


def make_rollout() -> TensorDict:
    entries = TensorDict({"cam/depth": torch.zeros(2, 4), "cam/color": torch.zeros(2, 4, dtype=torch.uint8)}, [2])
    return allocate_rollout(2, 3, 2, 1, "cpu", entries=entries)


def test_skipped_steps_are_counted_by_iteration() -> None:
    run = Watched()
    assert run.iterate(1.0, 1.0) == {"train/skipped_steps": 0, "charts/diverged_episodes": 0}
    assert run.iterate(1.0, NAN, 1.0, NAN)["train/skipped_steps"] == 2
    assert run.iterate(1.0)["train/skipped_steps"] == 0


def test_updates_without_any_step_end_the_run() -> None:
    run = Watched()
    for factors in ((NAN,), (NAN, NAN), (NAN, 1.0), (NAN,), (NAN,)):
        run.iterate(*factors)
    with pytest.raises(NonFiniteError, match="step 48: 3 updates in a row without a gradient step"):
        run.iterate(NAN)


def test_optimizer_without_a_step_beside_another_ends_the_run() -> None:
    run = Watched(limit=2)
    second = torch.optim.SGD(run.policy.parameters(), lr=0.1)
    run.algorithm.second = second  # type: ignore[attr-defined]
    for is_last in (False, True):
        gradient_step(second, run.policy.parameters(), NAN * run.policy.log_std.sum(), 1.0)
        with pytest.raises(NonFiniteError, match="step 16: 2 updates in a row") if is_last else nullcontext():
            run.iterate(1.0)


def test_iteration_without_gradient_step_is_not_counted() -> None:
    run = Watched(limit=2)
    run.iterate(NAN)
    assert run.iterate()["train/skipped_steps"] == 0
    with pytest.raises(NonFiniteError, match="2 updates in a row"):
        run.iterate(NAN)


def test_skipping_is_warned_of_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    run = Watched()
    for _ in range(5):
        run.iterate(NAN, 1.0)
        run.iterate(NAN, 1.0)
        run.iterate(1.0)
    assert capsys.readouterr().err.count("1 of 2 gradient steps skipped") == 5


def test_non_finite_parameters_end_the_run_at_once() -> None:
    run = Watched()
    nn.init.constant_(run.policy.log_std, NAN)
    with pytest.raises(NonFiniteError, match="the update made the policy's parameters NaN or infinite: its algorithm"):
        run.iterate()


def test_rollout_that_spoils_a_replay_buffer_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    run = Watched(algorithm=Storing)
    bad = make_rollout()
    bad["reward"][1, 2] = NAN
    for rollout, factors in ((None, (1.0,)), (bad, (1.0, 1.0)), (None, (NAN, 1.0)), (None, (1.0,)), (None, (NAN, 1.0))):
        run.iterate(*factors, rollout=rollout)
    first, second = (line for line in capsys.readouterr().err.splitlines() if "WARNING" in line)
    assert "step 16: 0 of 2 gradient steps skipped: loss or gradient not finite (reward not finite in" in first
    assert "replay buffer" in first
    assert "step 24: 1 of 2 gradient steps skipped" in second  # and none for those of step 40


def test_divergences_are_counted_and_a_high_rate_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    run, rollout = Watched(), make_rollout()
    diverged = torch.zeros(2, 4, dtype=torch.bool)
    diverged[1, 1] = True
    rollout["info"] = TensorDict({"diverged": diverged}, [2, 4])
    rollout["obs"][1, 1, 1] = NAN
    assert run.iterate(rollout=rollout)["charts/diverged_episodes"] == 1
    err = capsys.readouterr().err
    assert "physics became invalid in 1 of 6 environment steps, in environments [1]" in err
    assert "not finite: obs[1]" in err


def test_absurd_number_of_a_demonstration_is_named_by_its_frame(capsys: pytest.CaptureFixture[str]) -> None:
    run = Watched(algorithm=Cloning)
    run.policy.normalizer = RunningNormalizer(2)
    frames = torch.randn(50, 2)
    frames[7, 1] = 1e9
    run.policy.update_normalizer(frames)
    run.guard.check_outliers(8)
    err = capsys.readouterr().err
    assert "obs[1] was 1e+09 in frame 7" in err
    assert "1 such number in the demonstrations" in err


def test_finite_rollout_has_no_origin_and_padding_is_ignored() -> None:
    rollout = make_rollout()
    # An environment may lack a metric.
    rollout["info"] = TensorDict({"metrics": TensorDict({"score": torch.full((2, 4), NAN)}, [2, 4])}, [2, 4])
    for name in ("reward", "action", "sample_log_prob", "final_value"):
        rollout[name][:, 3] = NAN
    assert find_origin(rollout) is None


AT_1 = (slice(None), 1)


@pytest.mark.parametrize("number", [NAN, INF])
@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"obs": (0, 2, 1), "reward": (1, 1)}, Origin("reward", 1, 0, [1])),
        # Of one step, the observation comes before what follows from it.
        (dict.fromkeys(("value", "action", "sample_log_prob", "reward", "obs"), AT_1), Origin("obs", 1, 0, [0, 1])),
        ({("entries", "cam/depth"): (1, 3, 2)}, Origin("entries/cam/depth", 3, 2, [1])),  # the bootstrap slot
    ],
)
def test_origin_is_the_earliest_step(number: float, places: dict[Any, Any], expected: Origin) -> None:
    rollout = make_rollout()
    for field, place in places.items():
        rollout[field][place] = number
    assert find_origin(rollout) == expected
