"""What a terrain's config may say."""

from __future__ import annotations

from typing import Any

import pytest

from embodichain.lab.sim.terrain_cfg import TerrainCfg, kinds_of_columns
from embodichain.utils import ConfigError
from embodichain.utils.validation import from_dict
from tests.lab.terrain_scenes import terrain_cfg

FLAT, ROUGH = {"kind": "flat"}, {"kind": "rough"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_levels": 0}, r"terrain\.num_levels: Input should be greater than 0, got 0"),
        ({"kinds": []}, r"terrain\.kinds: List should have at least 1 item after validation, not 0, got \[\]"),
        ({"kinds": [{"kind": "lava"}]}, r"terrain\.kinds\[0\]\.kind: .*'lava'.* flat, rough, slope, stairs, steps"),
        ({"kinds": [FLAT | {"share": 0.0}]}, r"terrain: kinds: at least one share must be above 0"),
        ({"kinds": [FLAT, ROUGH, ROUGH]}, r"terrain: kinds\[1\]: share 1\.0 of num_columns 2 is less than a column"),
        ({"platform": 4.0}, r"terrain: platform 4\.0 m must be smaller than cell_size 4\.0 m"),
        ({"resolution": 0.3}, r"terrain: cell_size 4\.0 m must be a multiple of resolution 0\.3 m, at least 2"),
        ({"max_init_level": 3}, r"terrain: max_init_level 3 must be below num_levels 3"),
        ({"resolution": 0.001}, r"terrain: 3 x 2 cells of 4,000 x 4,000 vertices are more than 16,777,216"),
        (
            {"kinds": [ROUGH | {"amplitude": [0.1, -0.1]}]},
            r"terrain\.kinds\[0\]\.amplitude\[1\]: .* greater than or equal",
        ),
        ({"kinds": [ROUGH | {"amplitud": 1.0}]}, r"terrain\.kinds\[0\]\.amplitud: .*[Dd]id you mean 'amplitude'"),
    ],
)
def test_bad_values_are_one_line_each(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        terrain_cfg(**changes)
    assert "\n" not in str(raised.value)


def test_terrain_without_settings_has_a_column_of_each_kind() -> None:
    cfg = from_dict(TerrainCfg, {}, "terrain")
    # Eight columns for seven equal shares.
    assert kinds_of_columns(cfg) == [0, 1, 2, 3, 3, 4, 5, 6]


def test_columns_are_divided_by_the_shares() -> None:
    kinds = [{"kind": "flat", "share": 1.0}, {"kind": "rough", "share": 0.0}, {"kind": "slope", "share": 3.0}]
    assert kinds_of_columns(terrain_cfg(kinds=kinds, num_columns=8)) == [0, 0, 2, 2, 2, 2, 2, 2]
