"""What must be set before any test imports the package."""

import ctypes
import os
import sys


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
