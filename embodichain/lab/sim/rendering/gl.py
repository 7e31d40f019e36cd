"""Choice of the OpenGL library for off-screen rendering; import this before MuJoCo."""

from __future__ import annotations

import ctypes
import os

GL_HELP = "off-screen OpenGL is missing; install it with: apt-get install libegl1 libgl1"


def _loads(*names: str) -> bool:
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def choose_gl() -> None:
    """Set ``MUJOCO_GL=egl`` where the user chose nothing and EGL can be loaded.

    Without EGL's libraries ``egl`` makes MuJoCo's import fail, and no setting at all makes it look for a display; then
    this sets ``disable``.
    """
    if "MUJOCO_GL" not in os.environ:
        has_egl = _loads("libEGL.so.1") and _loads("libOpenGL.so.0", "libGL.so.1")
        os.environ["MUJOCO_GL"] = "egl" if has_egl else "disable"


choose_gl()
