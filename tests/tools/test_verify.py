"""``embodichain verify-backends``, on CartPole with 2 environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.train import main as train
from embodichain.cli import main
from embodichain.tools import verify as tool
from embodichain.utils.extras import install_extra
from tests.agents.rl.fakes import tiny_config, write_config
from tests.lab.warp_scenes import needs_warp

pytestmark = needs_warp


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_config(Path(), tiny_config(trainer__enable_eval=False))


def verify(config: str, *arguments: str) -> int:
    return main(["verify-backends", config, "--device", "warp:cpu", "--envs", "2", "--steps", "12", *arguments])


def test_backends_agree_on_random_actions(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(config) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "backends: mujoco.batch on cpu, MuJoCo Warp on warp:cpu; 2 environments"
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["1", "2", "5", "10", "12"]
    assert all(float(cell) < 1e-4 for row in rows for cell in row[2:])
    assert lines[-1] == "the backends agree"
    assert not Path("outputs").exists()


def test_policy_is_evaluated_on_both(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(["--config", config, "trainer.iterations=1"]) == 0
    (checkpoint,) = Path("outputs").glob("*/checkpoints/*_step_*.pt")
    capsys.readouterr()
    assert verify(config, "--checkpoint", str(checkpoint), "--episodes", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agree"] is True
    assert all(spread["largest"] < 1e-4 for spread in found["steps"].values())
    assert [evaluation["episodes"] for evaluation in found["success"]] == [2, 2]
    assert found["success"][0]["success_rate"] == found["success"][1]["success_rate"]


def test_backends_that_differ_are_told_apart(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build: Any = tool._build

    def build_with_less_weight(run: Any, device: str, num_envs: int) -> Any:
        env = build(run, device, num_envs)
        if device == "warp:cpu":
            mass = env.sim.backend.read_model("body_mass")
            env.sim.backend.write_model("body_mass", slice(None), 0.9 * mass)
        return env

    monkeypatch.setattr(tool, "_build", build_with_less_weight)
    assert verify(config) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "the backends do NOT agree"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu"], "--device: must be 'cuda:<number>' or 'warp:cpu', got 'cpu'"),
        (["--device", "gpu"], "--device: sim_device: must be 'auto', 'cpu'"),
        (["--device", "cuda:0"], "--device: sim_device: 'cuda:0' cannot be used: CUDA is not available here"),
        (["--checkpoint", "none.pt"], "none.pt: no such checkpoint"),
    ],
)
def test_bad_input_is_one_message(
    arguments: list[str],
    message: str,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["verify-backends", config, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_warp_it_is_said_what_to_install(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "has_warp", lambda: False)
    assert main(["verify-backends", config]) == 2
    err = capsys.readouterr().err
    assert err == f"error: verify-backends compares MuJoCo with MuJoCo Warp, on a GPU or not: {install_extra('gpu')}\n"


def test_config_that_is_not_there_is_one_message(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-backends", "none.json"]) == 2
    assert "none.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--envs", "0"], ["--steps", "many"], []])
def test_wrong_usage_is_exit_code_2(arguments: list[str], config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["verify-backends", *([config] if arguments else []), *arguments])
    assert stop.value.code == 2
    assert "usage: embodichain verify-backends" in capsys.readouterr().err


def test_help_shows_an_example_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["verify-backends", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "examples: embodichain verify-backends configs/" in text
    assert "exit codes: 0 they agree, 1 they do not, 2 wrong usage or config" in text
