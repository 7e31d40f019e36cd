"""Trainings whose task or algorithm computes what is not finite, from the config to the warnings.

Each iteration has 4 steps of 2 environments, 8 in all, and 2 gradient steps.
"""

from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import main as train
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, assert_same, only_run, read_metrics, tiny_config, write_config

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]

FAILURES = "tests.agents.rl.failures"
ALLOW = ["--allow-import", FAILURES]


def env_with(kind: str = "", **term: Any) -> dict[str, Any]:
    """Return CartPole's config with one term more."""
    env = load_json(CART_POLE_ENV)
    if kind:
        env["env"].setdefault(kind, {})["bad"] = term
    return env


def config(env: dict[str, Any], algorithm: str = "ppo", **changes: Any) -> str:
    settings: dict[str, Any] = {"n_epochs": 2, "batch_size": 8}
    if algorithm == "grpo":
        changes |= {"policy__name": "actor_only", "policy__critic": None}
        settings |= {"group_size": 2}
    given: dict[str, Any] = {
        "trainer__gym_config": env,
        "trainer__enable_eval": False,
        "trainer__import_modules": [FAILURES],
        "trainer__iterations": 4,
        "trainer__max_skipped_updates": 2,
        "policy__normalize_obs": False,
        "algorithm": {"name": algorithm, "cfg": settings},
    }
    return write_config(Path(), tiny_config(**given | changes))


@pytest.mark.ext
@pytest.mark.parametrize(("algorithm", "asynchronous"), [("grpo", None), ("ppo", {"max_staleness": 2})])
def test_nan_reward_costs_its_updates_alone(
    algorithm: str, asynchronous: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    # Steps 6 and 7 are in the second iteration: its 2 gradient steps are skipped, those of the others are made.
    term = {"func": f"{FAILURES}.bad_reward", "params": {"since": 6, "until": 8}}
    path = config(env_with("rewards", **term), algorithm, trainer__asynchronous=asynchronous)
    assert train(["--config", path, *ALLOW]) == 0
    assert [row["train/skipped_steps"] for row in read_metrics(only_run())] == [0, 2, 0, 0]
    assert [row["train/policy_loss"] is None for row in read_metrics(only_run())] == [False, True, False, False]
    assert [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line] == [
        "[WARNING] step 16: 2 of 2 gradient steps skipped: loss or gradient not finite (reward not finite in "
        "environments [1], rewards/bad)"
    ]


def test_run_without_gradient_steps_ends_with_its_state_saved(capsys: pytest.CaptureFixture[str]) -> None:
    term = {"func": f"{FAILURES}.bad_reward", "params": {"since": 6}}
    assert train(["--config", config(env_with("rewards", **term), trainer__save_freq="1 it"), *ALLOW]) == 1
    run = only_run()
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: step 24: 2 updates in a row without a gradient step, since loss or gradient was not finite"
        " (reward not finite in environments [1], rewards/bad) (trainer.max_skipped_updates)"
    )
    assert [row["step"] for row in read_metrics(only_run())] == [8, 16]
    first, second = (load_checkpoint(run / "checkpoints" / f"tiny_step_{step}.pt") for step in (8, 16))
    assert_same(second["policy"], first["policy"])
    assert_same(second["algorithm"], first["algorithm"])


@pytest.mark.parametrize(("bad", "normalize"), [("inf", False), ("-inf", True)])
def test_infinite_observation_ends_the_run(bad: str, normalize: bool, capsys: pytest.CaptureFixture[str]) -> None:
    # A normaliser would cut it to 10, and tanh to 1: both would hide it. From the warm-up on, so that no row is whole.
    term = {"func": f"{FAILURES}.bad_observation", "mode": "add", "name": "robot/odd", "params": {"bad": bad}}
    path = config(env_with("observations", **term), policy__normalize_obs=normalize)
    assert train(["--config", path, *ALLOW]) == 1
    assert [row["train/skipped_steps"] for row in read_metrics(only_run())] == [2]
    err = capsys.readouterr().err
    assert "2 of 2 gradient steps skipped: loss or gradient not finite (obs not finite in environments [1])" in err
    assert "error: step 16: 2 updates in a row without a gradient step" in err


def test_absurd_observation_is_named_and_not_normalised(capsys: pytest.CaptureFixture[str]) -> None:
    # Observations 3 to 18 are of the warm-up; the second iteration's are 23 to 26.
    params = {"since": 24, "until": 25, "bad": "1e9"}
    term = {"func": f"{FAILURES}.bad_observation", "mode": "add", "name": "robot/odd", "params": params}
    path = config(env_with("observations", **term), policy__normalize_obs=True)
    assert train(["--config", path, *ALLOW]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    # The entry was always 0, and has the std of the smallest variance that is told apart: the root of 1e-8.
    assert "step 16: obs[1] (robot/odd) was 1e+09 in environment 1, where 0 ± 0.0001 was expected" in warning
    (checkpoint,) = (only_run() / "checkpoints").glob("*.pt")
    policy = load_checkpoint(checkpoint)["policy"]
    assert policy["normalizer.scale"][1] > 1e3  # 1e9 among 66 numbers would have made it 1e-8
    assert all(row["train/skipped_steps"] == 0 for row in read_metrics(only_run()))


def test_learning_rate_that_is_too_high_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert train(["--config", config(env_with(), "ppo", algorithm__cfg__learning_rate=1e38), *ALLOW]) == 1
    err = capsys.readouterr().err
    assert "gradients were finite and the steps too large: the learning rate of 1e+38 is too high" in err
    assert "its algorithm" not in err


def test_diverged_physics_is_counted_and_warned_of_above_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_with()
    env["env"]["actions"] = {"hold": {"func": f"{FAILURES}.bad_drive", "params": {"period": 7}}}
    assert train(["--config", config(env), *ALLOW]) == 0
    # Steps 0, 7 and 14, of 4 an iteration. Once in 8 environment steps is above the rate, in the first iteration and in
    # the second: one warning for both. The third is below, the fourth above again.
    assert [row["charts/diverged_episodes"] for row in read_metrics(only_run())] == [1, 1, 0, 1]
    assert all(row["train/skipped_steps"] == 0 for row in read_metrics(only_run()))
    err = capsys.readouterr().err
    assert err.count("physics became invalid in 1 of 8 environment steps, in environments [1]: ") == 2
