#!/bin/sh
# Installs OpenGL without a screen (EGL), which renders the videos, if it is missing. Training itself does not need it.
# Usage: scripts/setup_gl.sh VENV_PYTHON
# Always exits 0: if it may not install packages, it prints the command to run, and `make train` continues.
set -eu

python=${1:-.venv/bin/python}
# libgl1 and libegl1 depend on Mesa's driver, which also renders on the CPU.
packages="libegl1 libgl1"
. "$(dirname "$0")/apt.sh"

# macOS has its own off-screen rendering.
[ "$(uname -s)" = Linux ] || exit 0

# The only reliable test: render a frame.
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
echo "setup: no off-screen OpenGL (EGL) here, so no videos are recorded; to get them, run this once:"
echo "setup:     sudo apt-get install $packages        # or the names of these libraries on your system"
