"""The core without any extension: its own tests pass with ``embodichain/ext`` deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "setup.py", "README.md", "docs", "configs", "scripts", "benchmarks", "examples")


@pytest.mark.e2e
def test_core_passes_its_tests_without_extensions(tmp_path: Path) -> None:
    for name in FILES:
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    for name in ("embodichain", "tests"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("ext", "__pycache__"))
    assert not (tmp_path / "embodichain/ext").exists()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not ext and not e2e"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
