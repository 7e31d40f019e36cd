#!/bin/sh
# Writes requirements.lock: every version that a fresh environment gets from pyproject.toml today.
# Usage: scripts/lock.sh PYTHON      (Python 3.11, the oldest supported: what it can install, the newer ones can too)
#
# PyTorch alone is held at TORCH_VERSION: its wheels are large, so moving to another one is a decision of its own.
set -eu

python=${1:-python3}
torch_version=${TORCH_VERSION:-2.13.0}
cd "$(dirname "$0")/.."

if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != 3.11 ]; then
    echo "lock: requirements.lock is made with Python 3.11; name one: make lock PYTHON=python3.11" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
echo "torch==$torch_version" >"$work/held.txt"
"$work/venv/bin/python" -m pip install -c "$work/held.txt" -e '.[dev,docs,wandb]'

{
    echo '# The versions the project is tested with, for use as a constraints file: pip install -c requirements.lock -e .'
    echo '# Written by `make lock` (scripts/lock.sh) from pyproject.toml, extras included, with Python 3.11. Do not edit.'
    # +cpu and the like name a build, not a version: whichever build of it the machine gets is the locked version.
    "$work/venv/bin/python" -m pip freeze --all --exclude-editable --exclude pip |
        sed 's/+[[:alnum:].]*$//'
} >"$work/requirements.lock"
cp "$work/requirements.lock" requirements.lock
echo "lock: $(grep -c == requirements.lock) versions written to requirements.lock"
