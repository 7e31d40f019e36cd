#!/bin/sh
# Installs PyTorch in the locked version: the one package that may come without a hash to check it by.
# Usage: scripts/setup_torch.sh PYTHON [INDEX]
#
# PyTorch has several builds of each version, one for each kind of processor. requirements/torch.txt has the hashes of PyPI's. An
# INDEX, or a place that pip is told to look in beside its index, has builds of its own, which pip prefers; their hashes are not known.
set -eu

python=$1
index=${2:-}
cd "$(dirname "$0")/.."

install() {
    "$python" -m pip install --disable-pip-version-check --no-input --only-binary :all: "$@"
}

if [ -n "$index" ]; then
    echo "setup: PyTorch is taken from TORCH_INDEX, and not checked by a hash"
    install --index-url "$index" --constraint requirements.lock torch
elif "$python" -m pip config list | grep -E '[.](find-links|extra-index-url)=' >/dev/null; then
    echo "setup: pip is told to look beside its index, too (pip config list): PyTorch is taken as it is, and not checked by a hash"
    install --constraint requirements.lock torch
else
    install --require-hashes --no-deps --requirement requirements/torch.txt
fi
