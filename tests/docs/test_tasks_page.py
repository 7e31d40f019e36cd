"""The examples of docs/tasks.md are valid."""

import json
import re
from typing import Any

import pytest

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.managers import DatasetCfg
from embodichain.lab.sim.cfg import RobotCfg
from embodichain.lab.sim.model.model_files import assemble
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
