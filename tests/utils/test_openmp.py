from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from embodichain.utils.openmp import limit_openmp_spinning

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
OURS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000"}
# Prints what the variables are when torch is about to be imported, and ends there.
WATCHED = f"""
import importlib.abc, json, os, sys
class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(json.dumps({{name: os.environ.get(name) for name in {NAMES}}}), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
"""


def at_import_of_torch(code: str) -> dict[str, str | None]:
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    command = [sys.executable, "-c", WATCHED + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[0])
    return found


@pytest.mark.e2e
@pytest.mark.parametrize(
    "code",
    [
        "import runpy; runpy.run_module('embodichain.agents.rl.train', None, '__main__')",
        "from embodichain.cli import main; main(['train', '--help'])",
    ],
    ids=["module", "command"],
)
def test_entry_points_set_the_variables_before_torch_is_imported(code: str) -> None:
    assert at_import_of_torch(code) == OURS


@pytest.mark.e2e
@pytest.mark.parametrize("module", ["embodichain", "embodichain.lab.gym.wrappers", "embodichain.agents.rl.train"])
def test_importing_the_package_sets_nothing(module: str) -> None:
    code = f"import {module}, torch"
    assert at_import_of_torch(code) == dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OURS),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "7"}),
    ],
)
def test_what_the_user_has_set_stays(given: dict[str, str], expected: dict[str, str]) -> None:
    environment = dict(given)
    limit_openmp_spinning(environment)
    assert environment == expected
