"""What must be set before any test imports the package, and a browser."""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from embodichain.utils import doors
from embodichain.utils.system import limit_openmp_spinning
from tests.core import is_core

# The tests start a hundred processes, each of which would compile the whole package where its files are not kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

limit_openmp_spinning()  # as the entry points do, before a test imports torch


def _has_offscreen_gl() -> bool:
    """Whether EGL and OpenGL load; with MUJOCO_GL=egl and either one missing, MuJoCo cannot even be imported."""
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    for library in ("libOpenGL.so.0", "libGL.so.1"):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False


if sys.platform == "linux" and _has_offscreen_gl():
    os.environ.setdefault("MUJOCO_GL", "egl")

# Where no folder is trusted, whatever this user trusts (see embodichain/utils/module_utils.py). It need not exist.
os.environ["XDG_CONFIG_HOME"] = os.path.join(tempfile.gettempdir(), f"embodichain_tests_of_process_{os.getpid()}")


_LONGEST = ("test_core_alone.py", "test_tutorial.py", "test_wheel.py")  # the others fill the other processes meanwhile


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the core's unit tests, which `make test` runs in a copy without embodichain/ext; put long tests first."""
    for item in filter(is_core, items):
        item.add_marker("core")
    items.sort(key=lambda item: item.path.name not in _LONGEST)


# nohup ignores SIGHUP and a shell's background job SIGINT; the programs that the tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what a training draws at its end, which takes longer than the tiny training, in most tests.

    Those of shipped configs and of what is drawn are marked ``draws``; other processes, and fixtures of a module, draw.
    """
    # Not imported here: not every test needs what it imports.
    run_folder = sys.modules.get("embodichain.agents.rl.run_folder")
    if run_folder is not None and request.node.get_closest_marker("draws") is None:
        monkeypatch.setattr(run_folder, "draw_learning_curve", lambda *_: None)
        monkeypatch.setattr(doors, "REPORTS", "of nobody")


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as playwright:
        # Where everything runs as root, as in containers, Chromium's sandbox cannot. Scenes need WebGL, in software.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*arguments, "--enable-unsafe-swiftshader"]
        )
        yield chromium
        chromium.close()
