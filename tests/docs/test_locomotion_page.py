"""The page on legged locomotion."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from embodichain.lab.sim.model.terrain import make_heights
from embodichain.lab.sim.objects import Terrain
from embodichain.lab.sim.terrain_cfg import TerrainCfg
from embodichain.utils.validation import from_dict

PAGE = (Path(__file__).resolve().parents[2] / "docs/locomotion.md").read_text(encoding="utf-8")


def test_example_of_a_terrain_is_one_with_every_kind() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    cfg = from_dict(TerrainCfg, json.loads("{" + example + "}")["terrain"], "terrain")
    assert {kind.kind for kind in cfg.kinds} == {"flat", "rough", "slope", "steps", "stairs"}
    assert make_heights(cfg).origins.shape == (8, 8, 3)


def test_every_kind_has_its_row_with_what_grows() -> None:
    rows = dict(re.findall(r"^\| `(flat|rough|slope|steps|stairs)` \|(.*)$", PAGE, flags=re.MULTILINE))
    for kind in from_dict(TerrainCfg, {"kinds": [{"kind": name} for name in rows]}, "terrain").kinds:
        pairs = [f.name for f in dataclasses.fields(kind) if isinstance(getattr(kind, f.name), tuple)]
        assert all(f"`{name}`" in rows[kind.kind] for name in pairs)


def test_the_table_of_the_object_names_what_is_there() -> None:
    table = PAGE.partition("(None on level ground):")[2].partition("**Engines")[0]
    names = {
        name for line in table.splitlines() for name in re.findall(r"`(\w+)", line.split("|")[1] if "|" in line else "")
    }
    assert len(names) == 7
    known = {*dir(Terrain), *re.findall(r"^        (\w+): \[", Terrain.__doc__ or "", flags=re.MULTILINE), "origins"}
    assert names <= known
