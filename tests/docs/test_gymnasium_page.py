"""What docs/gymnasium.md shows of others' environments is what there is."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from embodichain.cli import main
from embodichain.utils.utility import load_json
from tests.pages import commands_of, files_of, write_files

PAGE = (Path(__file__).resolve().parents[2] / "docs/gymnasium.md").read_text(encoding="utf-8")
COMMANDS = [command for command, _ in commands_of(PAGE)]
TINY = ["trainer.iterations=1", "trainer.buffer_size=16", "trainer.num_eval_episodes=2", "algorithm.cfg.n_epochs=1"]


@pytest.fixture(autouse=True)
def folder_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(files_of(PAGE), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)


def test_the_config_has_five_lines() -> None:
    config = files_of(PAGE)["pendulum.json"]
    assert len(config.splitlines()) == 5
    assert json.loads(config)["trainer"]["gym_config"] == {"id": "gymnasium:Pendulum-v1"}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str) -> None:
    _, *arguments = shlex.split(command)
    assert main([*arguments, *TINY]) == 0
    (summary,) = Path("outputs").glob("*/summary.json")
    assert (load_json(summary)["success_rate"] is None) is ("my_envs" not in command)


def test_there_are_two_commands() -> None:
    assert len(COMMANDS) == 2
