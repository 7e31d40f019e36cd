#!/bin/sh
# Sees to OpenGL without a screen (EGL), which draws the videos. Training itself does not need it.
# Usage: scripts/setup_gl.sh VENV_PYTHON
# Always exits 0: where nothing may be installed from here, it prints the one command to run, and the work goes on.
set -eu

python=${1:-.venv/bin/python}
# libgl1 and libegl1 are the front doors, and by themselves bring Mesa's driver, which draws on the processor too.
packages="libegl1 libgl1"
. "$(dirname "$0")/apt.sh"

# macOS has its own way of drawing off-screen.
[ "$(uname -s)" = Linux ] || exit 0

# The only test worth having: draw a frame.
renders() {
    "$python" - >/dev/null 2>&1 <<'PYTHON'
import os

os.environ["MUJOCO_GL"] = "egl"
import mujoco

model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, height=32, width=32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().any()
PYTHON
}

renders && exit 0
# shellcheck disable=SC2086  # one word a package
if apt_install $packages && renders; then
    exit 0
fi
echo "setup: no off-screen OpenGL (EGL) here, so training goes on without pictures; for videos, run this once:"
echo "setup:     sudo apt-get install $packages        # or what your system calls these libraries"
