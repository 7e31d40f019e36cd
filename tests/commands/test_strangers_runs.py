"""Runs of somebody else's, whose folders lead elsewhere or say what no run says."""

import os
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.files import load_checkpoint, save_checkpoint
from embodichain.cli import main
from tests.agents.rl.runs import write_run

pytestmark = pytest.mark.e2e

READERS = [
    ["report", "RUN"],
    ["compare", "RUN", "--metric", "charts/episode_reward_avg_100"],
    ["eval", "RUN", "--episodes", "1"],
    ["play", "RUN", "--episodes", "1", "--size", "64", "48"],
    ["rewards", "RUN", "--episodes", "2"],
    ["export", "RUN", "--format", "onnx", "--observations", "8"],
    ["resume", "RUN", "trainer.iterations=9"],
]


def error_of(arguments: list[str], run: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that is to fail by one line, and return the line."""
    capsys.readouterr()
    assert main([run if argument == "RUN" else argument for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: arguments[0])
def test_every_command_refuses_a_run_with_a_link_out_of_it(
    arguments: list[str], run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "clip.mp4").write_text("secret")
    (run_folder / "videos").symlink_to(secret)
    line = error_of(arguments, str(run_folder), capsys)
    assert f"{run_folder}/videos: a link that leads out of the run's folder" in line
    assert os.listdir(secret) == ["clip.mp4"]
    assert not any((run_folder / name).exists() for name in ("export", "rewards"))


@pytest.mark.ext
def test_checkpoint_alone_is_not_written_beside_through_a_link(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lone = tmp_path / "downloads"
    lone.mkdir()
    (path,) = run_folder.glob("checkpoints/*_16.pt")
    path.rename(lone / path.name)
    (lone / "anything").symlink_to("/etc")
    assert main(["eval", str(lone / path.name), "--episodes", "1"]) == 0
    (lone / "export").symlink_to("/etc")
    assert "export: a link that leads out" in error_of(READERS[5], str(lone / path.name), capsys)


@pytest.mark.ext
def test_pipe_in_a_run_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [0.2, 0.5])
    os.mkfifo(run / "summary.json")
    os.mkfifo(run / "videos/cam_step_1.mp4")
    assert main(["report", str(run)]) == 0
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert main(["report", str(run)]) == 1
    assert "is no regular file" in capsys.readouterr().err


@pytest.mark.ext
def test_rates_that_cannot_be_are_left_out_of_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [-3.0, 0.5, 1e300])
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text().count("50.0%") > 0


@pytest.mark.parametrize("content", [{"config": [1]}, {"policy": 3}, {"algorithm": None}])
def test_forged_checkpoint_is_one_line(
    content: dict[str, Any], run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = run_folder.glob("checkpoints/*_16.pt")
    save_checkpoint(path, load_checkpoint(path) | content)
    capsys.readouterr()
    assert main(["resume", str(path), "trainer.iterations=9"]) in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "[INFO]" not in line]
    assert line.startswith("error: ")
