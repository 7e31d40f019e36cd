"""The page on legged locomotion."""

import json
import re
from pathlib import Path

from embodichain.lab.sim.model.terrain import TerrainCfg, make_heights
from embodichain.utils import from_dict

PAGE = (Path(__file__).resolve().parents[2] / "docs/locomotion.md").read_text(encoding="utf-8")


def test_example_of_a_terrain_is_one_with_every_kind() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    cfg = from_dict(TerrainCfg, json.loads("{" + example + "}")["terrain"], "terrain")
    assert {kind.kind for kind in cfg.kinds} == {"flat", "rough", "slope", "steps", "stairs"}
    assert make_heights(cfg).origins.shape == (8, 8, 3)
