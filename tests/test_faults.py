"""A small part of the campaign of faults; all of it: ``python -m benchmarks.faults``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def run(*arguments: str) -> list[tuple[str, str]]:
    """Run a part of the campaign; return each fault, and the verdict."""
    # In a process of its own: the trainings are forked from it, which one with threads must not do.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    return [(row["fault"], row["verdict"]) for row in rows]


def test_small_trainings_survive_kills_and_files_that_cannot_grow() -> None:
    sizes = ["--kills", "6", "--commands", "0", "--seed", "1", "--most", "3"]
    assert run(*sizes, "--only", "SIGKILL", "grow", "operation of PPO") == [
        ("SIGKILL", "as promised"),
        ("SIGKILL with a replay buffer", "as promised"),
        ("kills at every file operation of PPO", "as promised"),
        ("files that may not grow (full disk without root)", "as promised"),
    ]


@pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")
def test_small_clonings_survive_kills_at_file_operations() -> None:
    assert run("--most", "2", "--only", "operation of a cloning") == [
        ("kills at every file operation of a cloning", "as promised")
    ]
