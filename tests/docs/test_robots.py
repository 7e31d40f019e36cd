"""The page on robots: its example is assembled, and it names all that is bundled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from embodichain.lab.sim.assets import bundled_assets
from embodichain.lab.sim.cfg import COMPONENT_TYPES, RobotCfg
from embodichain.lab.sim.model.assembly import assemble
from embodichain.utils.validation import from_dict

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs/robots.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize(("example", "joints"), list(zip(EXAMPLES, [[7, 2], [12]], strict=True)))
def test_examples_are_robots_of_one_and_two_parts(example: str, joints: list[int]) -> None:
    cfg = from_dict(RobotCfg, json.loads("{" + example + "}")["robot"], "robot")
    assert list(map(len, assemble(cfg, "robot").parts.values())) == joints


def test_every_bundled_asset_and_every_kind_of_part_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert set(bundled_assets()) <= named
    assert set(COMPONENT_TYPES) <= named
