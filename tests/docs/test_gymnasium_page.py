"""The files, commands and snippets of docs/gymnasium.md run."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.cli import main
from embodichain.lab.gym import registry
from embodichain.lab.gym.envs import SceneEnv
from embodichain.utils.utility import load_json
from tests.lab.scenes import env_of
from tests.pages import commands_of, files_of, write_files

PAGE = (Path(__file__).resolve().parents[2] / "docs/gymnasium.md").read_text(encoding="utf-8")
COMMANDS = [command for command, _ in commands_of(PAGE)]
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY = ["trainer.iterations=1", "trainer.buffer_size=16", "trainer.num_eval_episodes=2", "algorithm.cfg.n_epochs=1"]


@pytest.fixture(autouse=True)
def folder_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(files_of(PAGE), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str) -> None:
    _, *arguments = shlex.split(command)
    assert main([*arguments, *TINY]) == 0
    (summary,) = Path("outputs").glob("*/summary.json")
    assert (load_json(summary)["success_rate"] is None) is ("my_envs" not in command)


def test_our_tasks_run_in_gymnasium_and_stable_baselines3() -> None:
    ours, sb3 = SNIPPETS[:2]
    exec(compile(ours, "docs/gymnasium.md", "exec"), {})
    pytest.importorskip("stable_baselines3")
    exec(compile(sb3, "docs/gymnasium.md", "exec"), {})


def test_scene_of_the_page_is_a_task() -> None:
    found: dict[str, Any] = {}
    exec(SNIPPETS[2], found)
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
        del registry._REGISTRY["SwingUpRL"]
