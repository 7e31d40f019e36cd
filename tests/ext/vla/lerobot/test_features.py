from __future__ import annotations

import json

import pytest

from embodichain.ext.vla.lerobot.config import LeRobotCfg, find_entries, read_config
from embodichain.utils import ConfigError
from tests.ext.vla.lerobot.conftest import FIXTURE

EMPTY = "observation.images.empty_camera_0"


@pytest.fixture
def cfg() -> LeRobotCfg:
    return read_config(json.loads((FIXTURE / "config.json").read_text()), "config.json")


def test_images_are_found_by_name_in_the_policys_order(cfg: LeRobotCfg) -> None:
    given: dict[str, str | None] = {EMPTY: None, "observation.images.top": "image/front"}
    assert list(find_entries(cfg, given).items()) == [
        ("observation.images.top", "image/front"),
        ("observation.images.wrist", "image/wrist"),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"observation.state": "state"}, "unknown image feature 'observation.state'"),
        ({"observation.images.top": "state"}, r"top: must be an entry 'image/<camera>' or null, got 'state'"),
        ({f"observation.images.{name}": None for name in ("top", "wrist", "empty_camera_0")}, "leaves out all images"),
    ],
)
def test_wrong_names_are_explained(cfg: LeRobotCfg, given: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_entries(cfg, given)
