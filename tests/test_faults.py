"""A small part of the campaign of faults; all of it: ``python -m benchmarks.faults``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def test_small_trainings_survive_kills_and_files_that_cannot_grow() -> None:
    # In a process of its own: the trainings are forked from it, which one with threads must not do.
    arguments = ["--kills", "6", "--commands", "0", "--seed", "1", "--most", "3"]
    arguments += ["--only", "SIGKILL", "grow", "every file operation"]
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
    assert [(row["fault"].split()[0], row["verdict"]) for row in rows] == [
        ("SIGKILL", "as promised"),
        ("kills", "as promised"),
        ("files", "as promised"),
    ]
