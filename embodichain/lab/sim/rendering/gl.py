"""Choice of OpenGL for rendering without a window; to be imported before the physics engine."""

from __future__ import annotations

import ctypes
import os

__all__ = ["GL_HELP", "choose_gl"]

GL_HELP = "OpenGL without a window is not there; install it with: apt-get install libegl1 libgl1"


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

    Without its libraries that setting makes the physics engine's import fail, and no setting makes it look for a
    display; so it is ``disable`` where they are not there.
    """
    if "MUJOCO_GL" not in os.environ:
        has_egl = _loads("libEGL.so.1") and _loads("libOpenGL.so.0", "libGL.so.1")
        os.environ["MUJOCO_GL"] = "egl" if has_egl else "disable"


choose_gl()
