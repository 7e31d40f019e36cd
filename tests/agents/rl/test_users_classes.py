"""Algorithms and policies of the user's own, from the config to checkpoint, resume, evaluation, replay and doctor.

An iteration has 2 environments x 4 steps; the regression makes 2 minibatches of it, with a step of each optimiser.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.train import main as train
from embodichain.cli import main as cli
from tests.agents.rl.fakes import read_tensorboard, tiny_config, write_config
from tests.agents.rl.test_resume import Interrupt, assert_same_runs, only_run, rows, run_whole
from tests.agents.rl.users_classes import Idle

pytestmark = pytest.mark.e2e

USERS = "tests.agents.rl.users_classes"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBODICHAIN_ALLOW_IMPORT", "tests")


def config(algorithm: Any, policy: Any = "users_gaussian", **changes: Any) -> str:
    """Write a config; the algorithm and the policy are names, or whole blocks."""
    given = {
        "policy": {"name": policy} if isinstance(policy, str) else policy,
        "algorithm": {"name": algorithm} if isinstance(algorithm, str) else algorithm,
        "trainer__import_modules": [USERS],
        "trainer__enable_eval": False,
    }
    return write_config(Path(), tiny_config(**given | changes))


def test_minimal_algorithm_trains_and_logs_what_it_returns() -> None:
    assert train(["--config", config("users_idle", trainer__enable_eval=True)]) == 0
    run = only_run()
    assert [row["train/loss"] for row in rows(run)] == [0, 0]
    assert read_tensorboard(run / "logs")["train/loss"] == [(8, 0.0), (16, 0.0)]
    assert [row["train/skipped_steps"] for row in rows(run)] == [0, 0]
    assert sorted(path.name for path in (run / "checkpoints").glob("*.pt"))[-1] == "tiny_step_8.pt"
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["env_steps"] == 16
    assert cli(["eval", str(run), "--episodes", "2", "--allow-import", USERS]) == 0


def test_own_optimizers_resume_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    path = config("users_regression", trainer__iterations=4)
    whole = run_whole(path, monkeypatch)
    with monkeypatch.context() as patch:
        Interrupt(patch, 10)  # in the third iteration: no normaliser, so that there is no warm-up
        assert train(["--config", path]) == 143
    assert cli(["resume", str(only_run()), "--allow-import", USERS]) == 0
    assert_same_runs(only_run(), whole)
    assert len(rows(whole)) == 4
    assert {"train/actor_loss", "train/critic_loss", "train/updates"} <= rows(whole)[0].keys()


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_policy_may_name_its_log_probability_log_prob(algorithm: str) -> None:
    cfg: dict[str, Any] = {"n_epochs": 2, "batch_size": 4} | ({"group_size": 2} if algorithm == "grpo" else {})
    assert train(["--config", config({"name": algorithm, "cfg": cfg}, trainer__enable_eval=True)]) == 0
    assert all(row["train/approx_kl"] > 0 for row in rows(only_run()))


def test_policy_without_a_critic_is_enough_for_grpo_alone(capsys: pytest.CaptureFixture[str]) -> None:
    grpo = {"name": "grpo", "cfg": {"batch_size": 4, "group_size": 2}}
    assert train(["--config", config(grpo, "users_actor")]) == 0
    assert train(["--config", config("ppo", "users_actor")]) == 2
    assert "policy UsersActor: evaluate_actions returned no 'value'; expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("users_valueless", "policy Valueless: get_action returned no 'value'"),
        ("users_unwritten", "policy Unwritten: get_action returned None"),
    ],
)
def test_policy_that_lacks_an_entry_is_refused_by_one_line(
    policy: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(["--config", config("ppo", policy)]) == 2
    err = capsys.readouterr().err
    assert f"error: {problem}; expected is a TensorDict with 'action' [2, 1], 'sample_log_prob' [2], 'value' [2]" in err
    assert "Traceback" not in err
    assert not Path("outputs").exists()


@pytest.mark.ext
def test_doctor_examines_a_minimal_algorithm() -> None:
    from embodichain.ext.doctor import check_algorithm  # noqa: PLC0415 (an extension)

    results = {result.name: result for result in check_algorithm(Idle)}
    assert results["losses_are_finite"].status == "passed"
    assert results["parameters_change"].status == "failed"
