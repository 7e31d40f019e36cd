"""The page about Gymnasium: its tasks on our physics, and the example of a scene of one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.envs import SceneEnv
from embodichain.lab.gym.registry import get_registered_env_ids
from tests.lab.scenes import env_of

PAGE = (Path(__file__).resolve().parents[2] / "docs/gymnasium.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Gymnasium's MuJoCo tasks, natively\n")[2]


def test_the_page_names_every_task() -> None:
    tasks = {name for name in get_registered_env_ids() if name.endswith("V5RL")}

    assert len(tasks) == 11
    assert set(re.findall(r"`(\w+V5RL)`", SECTION)) == tasks


def test_the_example_is_a_task() -> None:
    found: dict[str, Any] = {}
    exec(SECTION.partition("```python\n")[2].partition("```")[0], found)
    try:
        env = env_of({"id": "SwingUpRL"}, 2)
        assert isinstance(env, SceneEnv)
        env.reset(seed=1)

        _, reward, terminated, _, info = env.step(torch.ones(2, 1))

        assert torch.equal(reward, env.qpos[:, 1].cos().float())
        assert not terminated.any()
        assert torch.equal(info["metrics"]["height"], reward)
        assert env.max_episode_steps == 300
    finally:
        del registration._REGISTRY["SwingUpRL"]
