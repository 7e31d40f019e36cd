#!/bin/sh
# Creates the virtual environment, unless there is a working one.
# Usage: scripts/setup_venv.sh PYTHON VENV
# Exits with 2 and one line that names the fix if something is missing and may not be installed.
set -eu

python=${1:-python3}
venv=${2:-.venv}
. "$(dirname "$0")/apt.sh"

fail() {
    echo "setup: $*" >&2
    exit 2
}

if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

command -v "$python" >/dev/null 2>&1 ||
    fail "there is no '$python' here; Python >= 3.11 is needed (another name or path: make PYTHON=...)"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "'$python' does not run; Python >= 3.11 is needed (another name or path: make PYTHON=...)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "'$python' is Python $version; Python >= 3.11 is needed (another name or path: make PYTHON=...)"

# Debian and Ubuntu ship Python without the two modules that create a virtual environment.
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    package="python$version-venv"
    apt_install "$package" ||
        fail "'$python' cannot create a virtual environment; run this once: sudo apt-get install $package"
fi

echo "setup: creating $venv with Python $version"
"$python" -m venv --clear "$venv"
