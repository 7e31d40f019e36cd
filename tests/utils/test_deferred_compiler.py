"""Commands start without torch's compiler; a program that compiles finds tensordict's marks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILED = """
import json, torch
from tensordict import TensorDict, base, utils

td = TensorDict({"a": torch.ones(3)}, [3])
compiled = torch.compile(lambda td: td.apply(lambda x: 2 * x), backend="eager", fullgraph=True)
from torch._dynamo.trace_rules import _allowed_callable_ids as allowed
print(json.dumps([
    bool((compiled(td)["a"] == 2).all()),
    id(base._foreach_copy_compiled) in allowed,
    utils._lock_warn._dynamo_marked_constant,
]))
"""
DEFERRED = "from embodichain.utils.deferred_compiler import defer_compiler\ndefer_compiler()\ndefer_compiler()\n"
LOADED = "import json, sys\nprint(json.dumps([name in sys.modules for name in {names}]))\n"


def run(source: str) -> list[bool]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    values: list[bool] = json.loads(result.stdout.splitlines()[-1])
    return values


def test_command_does_not_load_the_compiler() -> None:
    source = "from embodichain.cli import main\nassert main(['validate', 'cart_pole']) == 0\n"
    names = ["tensordict", "torch", "torch._dynamo", "sympy"]
    assert run(source + LOADED.format(names=names)) == [True, True, False, False]


@pytest.mark.parametrize("before", ["", "import torch._dynamo\n"], ids=["loaded later", "loaded before"])
def test_program_that_compiles_finds_the_marks(before: str) -> None:
    assert run(before + DEFERRED + COMPILED) == [True, True, True]
