"""The core's tests pass in a copy of the repository without ``embodichain/ext``; `make test` runs them only there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core import ROOMS

REPOSITORY = Path(__file__).resolve().parent.parent
NAMES = ("embodichain", "tests", "benchmarks", "configs", "docs", "scripts", "examples", "README.md", "pyproject.toml")
# The editable installation would still find the folder.
WITHOUT_INSTALLATION = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
"""


@pytest.mark.e2e
def test_core_passes_its_tests_without_extensions(tmp_path: Path) -> None:
    for source in map(REPOSITORY.joinpath, NAMES):
        if source.is_dir():
            shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("ext"))
        else:
            shutil.copy(source, tmp_path)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_INSTALLATION)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "core", *(f"tests/{room}" for room in ROOMS)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.e2e
def test_make_test_runs_the_extensions_tests(request: pytest.FixtureRequest) -> None:
    if request.config.option.markexpr != "not core":
        pytest.skip("not `make test`")
    assert any(item.path.is_relative_to(REPOSITORY / "tests/ext") for item in request.session.items)
