"""docs/distributed.md: its event may be called for all environments."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rows import changing_rows

PAGE = (Path(__file__).resolve().parents[2] / "docs/distributed.md").read_text(encoding="utf-8")


def test_event_of_the_page_changes_the_rows_of_a_mask() -> None:
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    event = names["randomize_height"]
    env = SimpleNamespace(random=CounterRandom(0, 3), height=torch.zeros(3, 1))
    with changing_rows([env], torch.tensor([True, False, True])):
        event(env, torch.arange(3), 1.0, 2.0)
    assert [1.0 <= height < 2.0 for height in env.height.flatten().tolist()] == [True, False, True]
    assert float(env.height[1]) == 0.0
