"""``embodichain show``: every value of a resolved config, with its origin."""

import json
from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.commands.arguments import format_columns
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config

pytestmark = pytest.mark.usefixtures("own_folder")
SCENE = {"id": "SceneRL", "scene": "gymnasium/inverted_pendulum.xml", "env": {"max_episode_steps": 9}}


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, dict[str, Any]]:
    assert main(["show", *argv, "--json"]) == 0
    rows: dict[str, dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_each_value_has_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(Path(), tiny_config(trainer__gym_config=str(CART_POLE_ENV)))
    rows = shown(capsys, path, "trainer.seed=7", "env.rewards.calm.weight=2")
    assert rows["trainer.seed"] == {"value": 7, "from": "override"}
    assert rows["gym_config.env.rewards.calm.weight"] == {"value": 2.0, "from": "override"}
    assert rows["gym_config.env.rewards.still.weight"] == {"value": 0.2, "from": str(CART_POLE_ENV)}
    assert rows["trainer.buffer_size"]["from"] == path
    assert rows["algorithm.cfg.gae_lambda"] == {"value": 0.95, "from": "default"}
    assert main(["show", path]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(rows)
    assert ["gym_config.id", '"CartPoleRL"', "gym_config.json"] in lines


def test_values_of_a_task_and_of_an_inline_config_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(Path(), tiny_config(trainer__gym_config=SCENE))
    rows = shown(capsys, path)
    assert rows["gym_config.env.actions.control.func"] == {"value": "ActuatorTerm", "from": "task's own"}
    assert rows["gym_config.max_episode_steps"] == {"value": 9, "from": path}


def test_config_of_a_run_is_shown(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = run_folder.relative_to(Path.cwd()) / "config.json"
    assert shown(capsys, "latest")["trainer.exp_name"] == {"value": "tiny", "from": str(own)}


def test_long_texts_keep_both_ends() -> None:
    one, other = (f"/a/long/path/to/the/same/place/of/two/files/{end}" for end in ("train.json", "other.json"))
    (line,) = format_columns([("file", one, other)]).splitlines()
    assert line.count("/a/long/path") == 2
    assert line.split()[-1].endswith("other.json")
    assert "train.json  " in line
