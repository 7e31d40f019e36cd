"""What docs/asynchronous.md shows is what there is. Legend: N = 2 envs, T = 64 steps, as on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector
from embodichain.agents.rl.run_config import load_run_config
from tests.agents.rl.fakes import IdleAlgorithm, ScriptedEnv, linear_policy, tiny_config, write_config

PAGE = (Path(__file__).resolve().parents[2] / "docs/asynchronous.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
(LOOP,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_config_on_the_page_collects_asynchronously(tmp_path: Path) -> None:
    config: dict[str, Any] = tiny_config()
    config["trainer"] |= json.loads("{" + BLOCK + "}")["trainer"]
    collection = load_run_config(write_config(tmp_path, config)).trainer.collection()
    assert collection is not None
    assert collection.max_staleness == 1


def test_loop_on_the_page_runs() -> None:
    policy = linear_policy()
    algorithm = IdleAlgorithm(policy)
    names = {
        "VLABuffer": VLABuffer,
        "AsyncCollector": AsyncCollector,
        "env": ScriptedEnv(2),
        "policy": policy,
        "algorithm": algorithm,
    }
    exec(compile(LOOP.replace("range(100)", "range(2)"), "docs/asynchronous.md", "exec"), names)
    assert [rollout.batch_size for rollout in algorithm.rollouts] == [(2, 65)] * 2


def test_every_picture_on_the_page_is_there() -> None:
    for name in re.findall(r"!\[.*?\]\((media/.*?)\)", PAGE):
        assert (Path(__file__).resolve().parents[2] / "docs" / name).is_file()
