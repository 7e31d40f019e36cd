#!/bin/sh
# Installs PyTorch in the locked version: the one package that may be installed without a hash.
# Usage: scripts/setup_torch.sh PYTHON [INDEX]
#
# PyTorch has several builds of each version, one for each kind of processor. requirements/torch.txt has the hashes of PyPI's. Another
# INDEX, or another place in pip's configuration, has other builds, which pip prefers; the hashes of these are not in the lock.
set -eu

python=$1
index=${2:-}
cd "$(dirname "$0")/.."

install() {
    "$python" -m pip install --disable-pip-version-check --no-input --no-compile --only-binary :all: "$@"
}

if [ -n "$index" ]; then
    echo "setup: PyTorch comes from TORCH_INDEX, and is not checked by a hash"
    install --index-url "$index" --constraint requirements.lock torch
elif "$python" -m pip config list | grep -E '[.](find-links|extra-index-url)=' >/dev/null; then
    echo "setup: pip is configured to look in other places than its index (pip config list): PyTorch is not checked by a hash"
    install --constraint requirements.lock torch
else
    install --require-hashes --no-deps --requirement requirements/torch.txt
fi
