from __future__ import annotations

import ast
import ctypes
import os
import sys
from pathlib import Path

import pytest

from embodichain.lab.sim.rendering import gl


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["libEGL.so.1", "libOpenGL.so.0"], "egl"),
        (["libEGL.so.1", "libGL.so.1"], "egl"),
        (["libEGL.so.1"], "disable"),
        (["libOpenGL.so.0", "libGL.so.1"], "disable"),
        ([], "disable"),
    ],
)
def test_egl_is_chosen_where_it_and_opengl_are_there(
    monkeypatch: pytest.MonkeyPatch, there: list[str], expected: str
) -> None:
    def load(name: str) -> None:
        if name not in there:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", load)
    gl.choose_gl()
    assert os.environ["MUJOCO_GL"] == expected


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_keep_mujocos_own_opengl(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    # MuJoCo's import fails there with any name of Linux's libraries.
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    gl.choose_gl()
    assert "MUJOCO_GL" not in os.environ
    assert "apt-get" not in gl.gl_help()


def test_choice_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    gl.choose_gl()
    assert os.environ["MUJOCO_GL"] == "osmesa"


def imports(path: Path) -> list[str]:
    """Return the names that a file's import statements name, in their order."""
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_choice_is_made_before_the_engine_is_imported() -> None:
    # Only lab.sim imports the engine (tests/test_import_directions.py), which reads MUJOCO_GL when it is imported.
    here = Path(gl.__file__)
    assert imports(here.parents[1] / "__init__.py")[0] == "embodichain.lab.sim.rendering.gl"
    assert set(imports(here)) <= {"ctypes", "os", "sys"}
