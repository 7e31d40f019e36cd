#!/bin/sh
# Writes sbom.cdx.json, a CycloneDX bill of materials: the packages installed in VENV, with licences and dependencies.
# Usage: scripts/sbom.sh VENV
set -eu

venv=$1
cd "$(dirname "$0")/.."

# In a separate environment, so that the tool is not in the list.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --no-deps --only-binary :all: --requirement requirements/tools.txt
"$work/tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-file "$work/sbom.json" "$venv/bin/python"
cp "$work/sbom.json" sbom.cdx.json
echo "sbom: sbom.cdx.json has the packages of $venv"
