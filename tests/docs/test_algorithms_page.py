"""The policies of docs/algorithms.md are built and trained."""

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
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy, get_registered_policy_names
from embodichain.agents.rl.models.registry import _POLICIES, parse_policy_block, typed_policy
from tests.agents.rl.probes import ColourEnv

PAGE = (Path(__file__).resolve().parents[2] / "docs/algorithms.md").read_text(encoding="utf-8")
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
