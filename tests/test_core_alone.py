"""The core without any extension: its own tests pass with ``embodichain/ext`` deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
LEFT_OUT = (".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "outputs", "build", "dist", "site")


@pytest.mark.e2e
def test_core_passes_its_tests_without_extensions(tmp_path: Path) -> None:
    folder = tmp_path / "core"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(*LEFT_OUT, "ext", "__pycache__", "*.egg-info"))
    assert not (folder / "embodichain/ext").exists()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not ext and not e2e and not learning",
    ]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
