"""The table of a wheel's configs, of a small wheel of our own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts.upstream_configs import main
from tests.lab.layouts import env_0_3_0, train_0_2_4
from tests.lab.originals import CART_POLE, CART_POLE_TRAIN_GRPO


def test_table_names_what_loads_and_why_the_others_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = train_0_2_4(CART_POLE_TRAIN_GRPO)
    train["trainer"] |= {"gym_config": "tasks/cart/env.json", "device": "cuda:0"}
    program = {"id": "Mine-v1", "embodiment": {}, "task_program": {}}
    files: dict[str, Any] = {
        "tasks/cart/env.json": env_0_3_0(CART_POLE),
        "tasks/cart/agents/grpo.json": train,
        "tasks/wrong.json": CART_POLE | {"nonsense": 1, "robots": 2},
        "tasks/program/task.json": program,
        "twice/task.json": program,
        "tasks/notes.json": {"other": 1},
        "tasks/code.py": "raise SystemExit",
    }
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, json.dumps(content))
    main([str(wheel)])
    assert capsys.readouterr().out.splitlines() == [
        "some-1.0-py3-none-any.whl: 2 of 4 configs load",
        "  tasks/cart/agents/grpo.json: loads: grpo with the policy actor_only on CartPoleRL: 1000 iterations x 1024 "
        "steps x 64 environments = 65,536,000 environment steps",
        "  tasks/cart/env.json: loads: CartPoleRL with terms: 1 observation, 1 reward, 0 event, 1 action",
        "  tasks/program/task.json: refused: embodiment: belongs to EmbodiChain's task programs, which this "
        "package does not have: a task here is an environment config with terms (docs/index.md)",
        "  tasks/wrong.json: refused: nonsense: unknown key. Did you mean 'scene'? (and 1 more lines)",
    ]
