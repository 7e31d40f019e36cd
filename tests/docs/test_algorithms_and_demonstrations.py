"""The policies of docs/algorithms.md are built and trained; the snippets of docs/demonstrations.md run.

Legend: N = 2 envs, T = 64 steps, as on the page of demonstrations.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from gymnasium import spaces

from embodichain.agents.rl.algo import PPO, PPOCfg
from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, SyncCollector
from embodichain.agents.rl.models import VLAPolicyCfg, build_policy, get_registered_policy_names
from embodichain.agents.rl.models.registry import _POLICIES, parse_policy_block, typed_policy
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.utils import from_dict, logger
from tests.agents.rl.fakes import IdleAlgorithm, ScriptedEnv, linear_policy, tiny_config, write_config
from tests.agents.rl.probes import ColourEnv
from tests.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/algorithms.md").read_text(encoding="utf-8")
BLOCKS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)]
(USERS_POLICY,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)

NUMBERS = spaces.Box(-1, 1, (3,))
SPACE = spaces.Dict(
    {
        "robot": spaces.Dict({"qpos": NUMBERS, "qvel": NUMBERS}),
        "object": spaces.Dict({"goal_pos": NUMBERS, "cube_pos": NUMBERS}),
        "sensor": spaces.Dict({"cam": spaces.Dict({"color": spaces.Box(0, 255, (84, 84, 3), np.uint8)})}),
        "image": spaces.Dict({"front": spaces.Box(0, 255, (64, 64, 3), np.uint8)}),
        "state": NUMBERS,
        "instruction": spaces.Box(0, 50, (8,), np.int64),
    }
)


@pytest.fixture(autouse=True)
def restored_registry() -> Iterator[None]:
    with patch.dict(_POLICIES):
        yield


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_is_a_block_that_builds(block: dict[str, Any]) -> None:
    parse_policy_block(block)
    build_policy(block, 12, spaces.Box(-1, 1, (2,)), "cpu", observation_space=SPACE)


def test_every_built_in_policy_has_an_example() -> None:
    names = {name for name in get_registered_policy_names() if typed_policy(name) is not None}
    assert {block["name"] for block in BLOCKS} == names


def test_user_s_policy_is_trained_as_written() -> None:
    exec(compile(USERS_POLICY, "docs/algorithms.md", "exec"), {})
    env = ColourEnv(4)
    policy = build_policy(
        {"name": "look_and_act", "std": 0.5},
        env.flattened_observation_space,
        env.single_action_space,
        "cpu",
        observation_space=env.single_observation_space,
    )
    before = [parameter.clone() for parameter in policy.parameters()]
    rollout = SyncCollector(env, policy, "cpu").collect(4)
    PPO(PPOCfg(n_epochs=1, batch_size=16), policy).update(rollout)
    assert not any(torch.equal(*pair) for pair in zip(policy.parameters(), before, strict=True))


DEMONSTRATIONS = (REPOSITORY / "docs/demonstrations.md").read_text(encoding="utf-8")
RECIPES = [json.loads("{" + text + "}") for text in re.findall(r"```json\n(.*?)```", DEMONSTRATIONS, flags=re.DOTALL)]
RECORD, LOOP = re.findall(r"```python\n(.*?)```", DEMONSTRATIONS, flags=re.DOTALL)
SPARSE = "configs/agents/rl/pick_cube/train_config_sac_sparse.json"


def test_policy_blocks_are_read() -> None:
    policies = [block["policy"] for block in RECIPES if "policy" in block]
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
    (block,) = [block["trainer"] for block in RECIPES if "trainer" in block]
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
