"""The examples of docs/index.md, tasks.md, locomotion.md and distributed.md are valid."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.managers import DatasetCfg
from embodichain.lab.sim.cfg import RobotCfg
from embodichain.lab.sim.model.model_files import assemble
from embodichain.lab.sim.model.terrain import TerrainCfg, make_heights
from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rows import changing_rows
from embodichain.utils import from_dict
from tests.lab.scenes import CART
from tests.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/tasks.md").read_text(encoding="utf-8")
BLOCKS: list[dict[str, Any]] = [
    json.loads("{" + text + "}") for text in re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
]


def blocks_of(key: str) -> list[Any]:
    return [block[key] for block in BLOCKS if key in block]


@pytest.mark.parametrize(("robot", "joints"), list(zip(blocks_of("robot"), [[7, 2], [12]], strict=True)))
def test_examples_are_robots_of_one_and_two_parts(robot: dict[str, Any], joints: list[int]) -> None:
    cfg = from_dict(RobotCfg, robot, "robot")
    assert list(map(len, assemble(cfg, "robot").parts.values())) == joints


def test_examples_of_cameras_and_datasets_are_read() -> None:
    (sensors,), (dataset,) = blocks_of("sensor"), blocks_of("dataset")
    cfg = config_to_cfg({"robot": CART, "sensor": [sensors[0]], "env": {}})
    assert [sensor.uid for sensor in cfg.sensor] == ["front"]
    from_dict(DatasetCfg, dataset["lerobot"], "dataset")


LOCOMOTION = (REPOSITORY / "docs/locomotion.md").read_text(encoding="utf-8")


def test_example_of_a_terrain_is_one_with_every_kind() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", LOCOMOTION, flags=re.DOTALL)
    cfg = from_dict(TerrainCfg, json.loads("{" + example + "}")["terrain"], "terrain")
    assert {kind.kind for kind in cfg.kinds} == {"flat", "rough", "slope", "steps", "stairs"}
    assert make_heights(cfg).origins.shape == (8, 8, 3)


DISTRIBUTED = (REPOSITORY / "docs/distributed.md").read_text(encoding="utf-8")


def test_event_of_the_page_changes_the_rows_of_a_mask() -> None:
    _, code = re.findall(r"```python\n(.*?)```", DISTRIBUTED, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    event = names["randomize_height"]
    env = SimpleNamespace(random=CounterRandom(0, 3), height=torch.zeros(3, 1))
    with changing_rows([env], torch.tensor([True, False, True])):
        event(env, torch.arange(3), 1.0, 2.0)
    assert [1.0 <= height < 2.0 for height in env.height.flatten().tolist()] == [True, False, True]
    assert float(env.height[1]) == 0.0


TUTORIAL = (REPOSITORY / "docs/index.md").read_text(encoding="utf-8")


@pytest.mark.e2e
def test_blocks_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
    code = "\n".join(blocks).replace('"iterations": 20', '"iterations": 1')
    found: dict[str, Any] = {}

    exec(code, found)

    assert len(blocks) == 3
    assert found["summary"]["env_steps"] == 512
    assert found["result"]["episodes"] == 20
    assert "ended with success: [" in capsys.readouterr().out
