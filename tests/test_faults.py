"""Trainings that are killed at any time and resumed end as one that was not."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.train import main
from tests.agents.rl.fakes import assert_same, last_checkpoint, only_run, tiny_config, tiny_sac_config, write_config
from tests.agents.rl.test_resume import rows

ITERATIONS = 30
PPO: dict[str, Any] = {"trainer__iterations": ITERATIONS, "trainer__save_freq": "1 it", "trainer__enable_eval": False}


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "embodichain.cli", *arguments]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def result(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last checkpoint's learner and the metrics of every iteration."""
    run = only_run(folder)
    content = last_checkpoint(run)
    return {name: content[name] for name in ("policy", "algorithm", "env", "global_step")}, rows(run)


@pytest.mark.e2e
@pytest.mark.parametrize(("make", "kills"), [(tiny_config, 2), (tiny_sac_config, 1)])
def test_killed_and_resumed_run_equals_one_that_was_not(
    make: Any, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        write_config(folder, make(**PPO))
    monkeypatch.chdir(whole)
    assert main(["--config", "train_config.json"]) == 0
    draw = random.Random(1)
    words = ["train", "train_config.json"]
    for kill in range(kills + 1):
        process = command(killed, *words)
        if kill < kills:
            seen = len(list(killed.glob("outputs/*/checkpoints/*.pt")))
            deadline = time.monotonic() + 60
            while len(list(killed.glob("outputs/*/checkpoints/*.pt"))) <= seen and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=120)
        assert kill < kills or process.returncode == 0, out
        words = ["resume", "latest"]
    (expected, expected_rows), (got, rows) = result(whole), result(killed)
    assert rows == expected_rows
    assert_same(got, expected)
