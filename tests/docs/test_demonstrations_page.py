"""The snippets of docs/demonstrations.md run. Legend: N = 2 envs, T = 64 steps, as on the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector
from embodichain.agents.rl.models import VLAPolicyCfg
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.utils import from_dict, logger
from tests.agents.rl.fakes import IdleAlgorithm, ScriptedEnv, linear_policy, tiny_config, write_config
from tests.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/demonstrations.md").read_text(encoding="utf-8")
BLOCKS = [json.loads("{" + text + "}") for text in re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)]
RECORD, LOOP = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SPARSE = "configs/agents/rl/pick_cube/train_config_sac_sparse.json"


def test_policy_blocks_are_read() -> None:
    policies = [block["policy"] for block in BLOCKS if "policy" in block]
    for policy in policies:
        from_dict(VLAPolicyCfg, policy, "policy")
    assert len(policies) == 2


@pytest.mark.e2e
def test_script_records_what_a_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    exec(compile(RECORD, "docs/demonstrations.md", "exec"), {})
    lines: list[str] = []
    monkeypatch.setattr(logger, "log_info", lines.append)
    few = ["trainer.iterations=1", "trainer.num_envs=2", "trainer.enable_eval=false", "trainer.events={}"]
    train_from_config(SPARSE, overrides=["algorithm.cfg.demonstrations=outputs/demonstrations", *few])
    (found,) = [line for line in lines if line.startswith("demonstrations: outputs/demonstrations: ")]
    match = re.search(r"(\d+) episodes of \d+ steps, (\d+) with success, rewards from 0 to 1", found)
    assert match is not None
    assert match[1] == match[2]


def test_config_of_the_page_collects_asynchronously(tmp_path: Path) -> None:
    config: dict[str, Any] = tiny_config()
    (block,) = [block["trainer"] for block in BLOCKS if "trainer" in block]
    config["trainer"] |= block
    collection = load_run_config(write_config(tmp_path, config)).trainer.collection()
    assert collection is not None
    assert collection.max_staleness == 1


def test_asynchronous_loop_of_the_page_runs() -> None:
    policy = linear_policy()
    algorithm = IdleAlgorithm(policy)
    names = {
        "VLABuffer": VLABuffer,
        "AsyncCollector": AsyncCollector,
        "env": ScriptedEnv(2),
        "policy": policy,
        "algorithm": algorithm,
    }
    exec(compile(LOOP.replace("range(100)", "range(2)"), "docs/demonstrations.md", "exec"), names)
    assert [rollout.batch_size for rollout in algorithm.rollouts] == [(2, 65)] * 2
