"""Algorithms and policies of the user's own, from the config to checkpoint and resume.

An iteration has 2 environments x 4 steps; the regression makes 2 minibatches of it, with a step of each optimiser.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import main as train
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main as cli
from tests.agents.rl.fakes import NETWORK, only_run, tiny_config, write_config
from tests.agents.rl.test_resume import Interrupt, assert_same_runs, rows, run_whole

pytestmark = pytest.mark.e2e

USERS = "tests.agents.rl.users_classes"


@pytest.fixture(autouse=True)
def allowed(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_policy_without_a_critic_is_enough_for_grpo_alone(capsys: pytest.CaptureFixture[str]) -> None:
    grpo = {"name": "grpo", "cfg": {"batch_size": 4, "group_size": 2}}
    assert train(["--config", config(grpo, "users_actor")]) == 0
    assert train(["--config", config("ppo", "users_actor")]) == 2
    assert "policy UsersActor: evaluate_actions returned no 'value'; expected" in capsys.readouterr().err


def test_own_policy_begins_with_a_runs_and_learns_from_a_teacher() -> None:
    built_in = tiny_config(trainer__iterations=1, trainer__exp_name="teacher", policy__actor=NETWORK)
    teacher = train_from_config(write_config(Path(), built_in))["run_folder"]
    block = {"name": "users_gaussian", "teacher": teacher}
    student = train_from_config(config("distillation", block, trainer__exp_name="student"))
    assert load_checkpoint(student["checkpoint"])["config"]["policy"] == block
    slow = {"name": "grpo", "cfg": {"batch_size": 4, "group_size": 2, "learning_rate": 1e-30}}
    again = train_from_config(config(slow, {"name": "users_gaussian", "init_from": "outputs/student"}))
    before, now = (load_checkpoint(run["checkpoint"]) for run in (student, again))
    assert all(torch.equal(before["policy"][name], now["policy"][name]) for name in before["policy"])
    assert now["config"]["policy"]["init_from"] == student["run_folder"]


def test_resume_with_changed_code_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EMBODICHAIN_ALLOW_IMPORT", "own_terms")
    file = tmp_path / "own_terms.py"
    file.write_text("def height(env):\n    return env.robot.get_qpos()[:, 0]\n", encoding="utf-8")
    run = train_from_config(write_config(Path(), tiny_config(trainer__import_modules=["own_terms"])))["run_folder"]
    for number, text in enumerate(("", "# another reward\n", "")):
        file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")
        capsys.readouterr()
        assert cli(["resume", run, f"trainer.iterations={3 + number}"]) == 0
        assert ("own_terms: changed since the run began" in capsys.readouterr().err) is bool(text)
