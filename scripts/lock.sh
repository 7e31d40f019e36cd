#!/bin/sh
# Resolves all versions again, and writes
#   requirements.lock    the versions alone, as constraints for an installation by hand
#   requirements/*.txt   the same versions in parts, each with the SHA-256 of every file on PyPI: what `make` installs
#   THIRD_PARTY.md       the table of their licences
# Usage: scripts/lock.sh PYTHON      (Python 3.11, the oldest supported: what it can install, the newer ones can too)
#
# PyTorch alone is held at TORCH_VERSION: its wheels are large, so moving to another version is a separate decision.
set -eu

python=${1:-python3}
torch_version=${TORCH_VERSION:-2.13.0}
cd "$(dirname "$0")/.."

if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != 3.11 ]; then
    echo "lock: requirements.lock is made with Python 3.11; name one: make lock PYTHON=python3.11" >&2
    exit 2
fi
python_version=$("$python" -c 'import platform; print(platform.python_version())')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check \
    --require-hashes --no-deps --only-binary :all: --requirement requirements/tools.txt

# One version of each package, for every Python and platform. uv asks PyPI, and ignores this machine's pip configuration.
compile() {
    "$work/tools/bin/uv" pip compile --quiet --universal --fork-strategy fewest --python-version "$python_version" \
        --no-header --no-annotate "$@"
}
# The same versions again, with hashes. The packages listed in the file $1 are left out.
part() {
    left_out=$1
    shift
    # shellcheck disable=SC2046
    compile --generate-hashes --constraint "$work/all.txt" "$@" $(sed 's/^/--no-emit-package /' "$left_out")
}
names() { sed -n 's/^\([[:alnum:]][[:alnum:]._-]*\)==.*/\1/p' "$@"; }
write() {
    file=requirements/$1.txt
    {
        echo "# Written by \`make lock\` (scripts/lock.sh). Do not edit. $2"
        cat
    } >"$work/part.txt"
    mv "$work/part.txt" "$file"
}

echo "torch==$torch_version" >"$work/held.txt"
echo setuptools >"$work/build.txt" # builds the package: [build-system] in pyproject.toml
compile --all-extras --constraint "$work/held.txt" pyproject.toml "$work/build.txt" >"$work/all.txt"

# PyTorch, and what only its builds for CUDA bring, each build its own versions: as constraints they would forbid the others.
names "$work/all.txt" | grep -E '^(nvidia-.*|cuda-.*|triton)$' >"$work/cuda"
{ cat "$work/cuda"; echo torch; } >"$work/torch"
# Python in a browser and PyPy are not supported.
sed -n "s/==.*\(sys_platform == 'emscripten'\|implementation_name == 'pypy'\).*//p" "$work/all.txt" >"$work/unsupported"

cat "$work/torch" "$work/unsupported" >"$work/out"
part "$work/out" pyproject.toml "$work/build.txt" | write run 'What `make setup` installs, but for PyTorch.'
names requirements/run.txt >>"$work/out"
part "$work/out" --extra docs pyproject.toml | write docs 'What `make docs` adds to run.txt.'
part "$work/out" --extra dev pyproject.toml | write dev 'What `make setup-dev` adds to run.txt.'
names requirements/dev.txt >>"$work/out"
part "$work/out" --extra envpool --extra menagerie --extra sb3 --extra wandb pyproject.toml | write extras 'What the extras envpool, menagerie, sb3 and wandb add to run.txt and dev.txt.'

names "$work/all.txt" | grep -v -x -F -f "$work/torch" >"$work/out"
part "$work/out" "$work/held.txt" | write torch 'PyTorch as PyPI has it, for CUDA; see scripts/setup_torch.sh.'
: >"$work/out"
part "$work/out" --no-deps benchmarks/peers/requirements.txt | write bench 'What `make bench` adds to run.txt.'
part "$work/out" --group tools | write tools 'What `make lock` and `make sbom` run, in an environment of its own.'

{
    echo '# The versions the project is tested with, as constraints: pip install -c requirements.lock -e .'
    echo '# Written by `make lock` (scripts/lock.sh) from pyproject.toml, extras included. Do not edit. `make setup` installs the'
    echo '# same versions from requirements/*.txt, which have hashes; with hashes here pip would want one of this package, too.'
    cat "$work/cuda" "$work/unsupported" >"$work/out"
    # shellcheck disable=SC2046
    compile --all-extras --constraint "$work/all.txt" pyproject.toml "$work/build.txt" \
        $(sed 's/^/--no-emit-package /' "$work/out")
} >"$work/requirements.lock"
cp "$work/requirements.lock" requirements.lock

# pip knows each package's licence from its metadata, without installing it; also of those for other platforms.
cat requirements/*.txt | sed -n 's/^\([[:alnum:]][[:alnum:]._-]*==[^ ;]*\).* \\$/\1/p' | sort -u >"$work/names.txt"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
    --no-deps --only-binary :all: --report "$work/report.json" --requirement "$work/names.txt"
"$work/tools/bin/python" scripts/third_party.py "$work/report.json"
echo "lock: $(grep -c == requirements.lock) versions written to requirements.lock"
