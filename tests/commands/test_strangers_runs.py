"""Runs of somebody else's, whose folders lead elsewhere or say what no run says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.file import load_checkpoint, save_checkpoint
from embodichain.cli import main
from tests.agents.rl.runs import write_run

READERS = [
    ["report", "RUN"],
    ["compare", "RUN", "--metric", "charts/episode_reward_avg_100"],
    ["eval", "RUN", "--episodes", "1"],
    ["play", "RUN", "--episodes", "1", "--size", "64", "48"],
    ["rewards", "RUN", "--episodes", "2"],
    ["export", "RUN", "--format", "torchscript", "--observations", "8"],
    ["resume", "RUN", "trainer.iterations=9"],
]


def error_of(arguments: list[str], run: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that is to fail by one line, and return the line."""
    capsys.readouterr()
    assert main([run if argument == "RUN" else argument for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.e2e
@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: arguments[0])
def test_every_command_refuses_a_run_with_a_link_that_leads_out_of_it(
    arguments: list[str], run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "clip.mp4").write_text("secret")
    for link, target in (
        ("videos", secret),
        ("export", secret),
        ("rewards", secret),
        ("more/clip.mp4", secret / "clip.mp4"),
    ):
        (run_folder / link).parent.mkdir(exist_ok=True)
        (run_folder / link).symlink_to(target)
        line = error_of(arguments, str(run_folder), capsys)
        assert f"{run_folder / link}: a link that leads out of the run's folder" in line
        (run_folder / link).unlink()
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


FORGED: dict[str, dict[str, Any]] = {
    "success_rate": {"success_rate": "all"},
    "rate above one": {"success_rate": 7.0, "success_interval_95": [0.0, 1.0]},
    "success_interval_95": {"success_rate": 0.5, "success_interval_95": 3},
    "success_interval_95.0": {"success_rate": 0.5, "success_interval_95": ["a", "b"]},
    "peak_memory_mb": {"peak_memory_mb": "much"},
    "episodes": {"success_rate": 0.5, "success_interval_95": [0.0, 1.0], "episodes": [1]},
}


@pytest.mark.ext
def test_pipe_in_a_run_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [0.2, 0.5])
    os.mkfifo(run / "summary.json")
    os.mkfifo(run / "videos/cam_step_1.mp4")
    assert main(["report", str(run)]) == 0
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert main(["report", str(run)]) == 2
    assert "is no regular file" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.parametrize("key", FORGED)
def test_forged_summary_is_passed_over_with_a_warning(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [0.2, 0.5])
    (run / "machine.json").write_text('{"cores": 2}')
    (run / "summary.json").write_text(json.dumps(FORGED[key]))
    for command in (["report"], ["compare", "--metric", "eval/success_rate"]):
        assert main([command[0], str(run), *command[1:]]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"[WARNING] {run}/summary.json: is not a run's summary and is ignored: ")
    assert "unfinished" in (run / "report.html").read_text()


@pytest.mark.ext
@pytest.mark.parametrize(
    ("block", "value"),
    [
        ("algorithm", None),
        ("algorithm", {"name": "ppo", "cfg": [1]}),
        ("policy", [1]),
        ("policy", {}),
        ("gym_config", [1]),
        ("gym_config", {"env": 3}),
        ("trainer", {"exp_name": 3}),
        ("trainer", {"exp_name": "a", "iterations": "x"}),
        ("trainer", {"exp_name": "a", "num_eval_episodes": 0}),
        ("trainer", {"exp_name": "a", "seed": [1]}),
    ],
)
def test_forged_config_is_one_line(block: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [0.2, 0.5])
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {block: value}))
    for command in ("report", "compare"):
        assert f"{run}: is not the folder of a run: config.json: {block}" in error_of(
            [command, "RUN"], str(run), capsys
        )


@pytest.mark.ext
@pytest.mark.parametrize("text", ["[" * 100_000, '{"trainer": 1e999}', "\ud800"])
def test_config_that_no_program_can_read_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [0.2])
    (run / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    assert "is not the folder of a run" in error_of(["report", "RUN"], str(run), capsys)


@pytest.mark.ext
def test_rates_that_cannot_be_are_left_out_of_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [-3.0, 0.5, 1e300])
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text().count("50.0%") > 0


@pytest.mark.ext
@pytest.mark.parametrize("content", [{"config": [1]}, {"policy": 3}, {"algorithm": None}, {"iteration": "a"}])
@pytest.mark.parametrize("command", ["eval", "export"])
def test_forged_checkpoint_is_one_line(
    content: dict[str, Any], command: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = run_folder.glob("checkpoints/*_16.pt")
    good = load_checkpoint(path)
    del good["format_version"]
    save_checkpoint(path, good | content)
    assert f"{path}: is not the checkpoint of a training: {next(iter(content))}" in error_of(
        [command, "RUN"], str(path), capsys
    )
