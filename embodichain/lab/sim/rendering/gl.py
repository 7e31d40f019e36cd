"""Choice of the OpenGL library for off-screen rendering; import this before MuJoCo."""

import ctypes
import os
import sys


def gl_help() -> str:
    """Return advice for machines where OpenGL needs a window."""
    if sys.platform == "linux":
        return "off-screen OpenGL is missing; install it with: apt-get install libegl1 libgl1"
    return "MuJoCo cannot use this system's OpenGL; the extra raytrace renders without it (trainer.enable_rt=true)"


def _loads(*names: str) -> bool:
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def choose_gl() -> None:
    """Set ``MUJOCO_GL=egl`` on Linux where the user chose nothing and EGL can be loaded.

    Without EGL's libraries ``egl`` makes MuJoCo's import fail, and no setting at all makes it look for a display; then
    this sets ``disable``. On macOS and Windows MuJoCo uses the system's own OpenGL, and refuses ``egl``.
    """
    if "MUJOCO_GL" not in os.environ and sys.platform == "linux":
        has_egl = _loads("libEGL.so.1") and _loads("libOpenGL.so.0", "libGL.so.1")
        os.environ["MUJOCO_GL"] = "egl" if has_egl else "disable"


choose_gl()
