"""The surface of a terrain. Cells of the tests are small: 9 x 9 vertices, 0.5 m apart, around a platform of 2 m."""

from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import EmissionLightCfg
from embodichain.lab.sim.model.terrain import TerrainCfg, add_surroundings, ambient_of, kinds_of_columns, make_heights
from embodichain.utils import ConfigError, from_dict, replace
from tests.lab.scenes import simulate
from tests.lab.terrain_scenes import terrain_cfg


def heights_of(kind: dict[str, Any], num_levels: int = 1, **changes: Any) -> np.ndarray:
    """Return the heights [9, 8 levels + 1] of one column."""
    cfg = terrain_cfg(kinds=[kind], num_levels=num_levels, num_columns=1, resolution=0.5, **changes)
    return make_heights(cfg).heights


def test_stairs_rise_to_the_platform_in_equal_steps() -> None:
    heights = heights_of({"kind": "stairs", "height": [0.1, 0.2], "depth": 0.5})
    # 1 m from the edge to the platform: two steps of the hardest level's 0.2 m, then 2 m of platform.
    np.testing.assert_allclose(heights[4], [0.0, 0.2, 0.4, 0.4, 0.4, 0.4, 0.4, 0.2, 0.0], atol=1e-6)
    np.testing.assert_allclose(heights[1], [0.0, *[0.2] * 7, 0.0], atol=1e-6)
    np.testing.assert_array_equal(heights, heights.T)


def test_inverted_stairs_and_slopes_are_pits() -> None:
    for kind in ({"kind": "stairs", "depth": 0.5}, {"kind": "slope"}):
        np.testing.assert_array_equal(heights_of(kind | {"inverted": True}), -heights_of(kind))


def test_slope_rises_by_its_incline_as_far_as_the_platform() -> None:
    heights = heights_of({"kind": "slope", "incline": [0.0, 0.4]})
    np.testing.assert_allclose(heights[4], [0.0, 0.2, 0.4, 0.4, 0.4, 0.4, 0.4, 0.2, 0.0], atol=1e-6)


def test_rough_ground_is_noise_within_its_amplitude() -> None:
    heights = heights_of({"kind": "rough", "amplitude": [0.0, 0.3]})
    inner = heights[1:-1, 1:-1]
    assert (heights[2:7, 2:7] == 0.0).all()
    assert (heights[[0, -1]] == 0.0).all()
    assert (heights[:, [0, -1]] == 0.0).all()
    ring = np.concatenate([inner[0], inner[-1], inner[1:-1, 0], inner[1:-1, -1]])
    assert len(np.unique(ring)) == 24  # all drawn
    assert 0.2 < np.abs(ring).max() <= 0.3


def test_steps_are_blocks_of_one_height_each() -> None:
    heights = heights_of({"kind": "steps", "height": [0.0, 0.3], "block": 1.0}, platform=0.5)
    # Blocks of two vertices; the one at the edge is at 0.
    for x in (2, 6):
        assert heights[2, x] == heights[2, x + 1] == heights[3, x] == heights[3, x + 1]
    assert len(np.unique(heights[[2, 2, 6, 6], [2, 6, 2, 6]])) == 4
    assert heights[4, 4] == 0.0
    assert heights.min() == 0.0
    assert 0.1 < heights.max() <= 0.3


def test_difficulty_grows_by_level_along_x() -> None:
    heights = heights_of({"kind": "stairs", "height": [0.1, 0.2], "depth": 0.5}, num_levels=3)
    np.testing.assert_allclose(heights[4, [4, 12, 20]], [0.2, 0.3, 0.4], atol=1e-6)  # two steps of 0.1, 0.15, 0.2


def test_origins_are_the_middles_of_the_platforms() -> None:
    surface = make_heights(terrain_cfg())
    # 3 levels of 4 m along x, 2 columns along y: stairs, whose platforms are high, and rough ground.
    expected = [
        [[4.0 * x, y, z] for y, z in ((-2.0, 2 * step), (2.0, 0.0))] for x, step in ((-1, 0.1), (0, 0.15), (1, 0.2))
    ]
    np.testing.assert_allclose(surface.origins, expected, atol=1e-9)


def test_heights_depend_on_seed_and_cell_alone() -> None:
    rough = {"kind": "rough"}
    one, same, other = (heights_of(rough, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    cfg = terrain_cfg(kinds=[rough], num_levels=1)
    two_columns, three_columns = (make_heights(replace(cfg, num_columns=columns)).heights for columns in (2, 3))
    np.testing.assert_array_equal(two_columns, three_columns[: len(two_columns)])


def test_terrain_is_a_height_field_with_a_border() -> None:
    sim_terrain = terrain_cfg()
    sim = simulate(terrain=sim_terrain)
    model, surface = sim.model, make_heights(sim_terrain)
    ground = model.geom("ground")
    assert ground.type == mujoco.mjtGeom.mjGEOM_HFIELD
    assert ground.friction[0] == 0.0  # left to what touches it
    data = model.hfield_data.reshape(surface.heights.shape) * model.hfield_size[0, 2] + ground.pos[2]
    np.testing.assert_allclose(data, surface.heights, atol=1e-6)
    # Along y the grid ends at 4 m and its border at 5; along x at 6 and 7.
    data_of = mujoco.MjData(model)
    mujoco.mj_forward(model, data_of)
    for x, y, depth in ((0.0, 4.5, 0.0), (0.0, -4.5, 0.0), (6.5, 0.0, 0.0), (-6.9, 4.9, 0.0), (7.1, 0.0, None)):
        geom = np.zeros(1, dtype=np.int32)
        distance = mujoco.mj_ray(model, data_of, np.array([x, y, 2.0]), np.array([0.0, 0.0, -1.0]), None, 1, -1, geom)
        assert distance == (pytest.approx(2.0) if depth is not None else -1.0)


def test_relief_of_millimetres_is_not_stretched() -> None:
    cfg = terrain_cfg(kinds=[{"kind": "rough", "amplitude": [0.002, 0.002]}])
    model, surface = simulate(terrain=cfg).model, make_heights(cfg)
    data = model.hfield_data.reshape(surface.heights.shape) * model.hfield_size[0, 2] + model.geom("ground").pos[2]
    assert 0 < np.abs(surface.heights).max() <= 0.002
    np.testing.assert_allclose(data, surface.heights, atol=1e-6)


def test_ambient_light_of_full_intensity_is_that_of_every_scene() -> None:
    spec = mujoco.MjSpec()
    add_surroundings(spec)
    assert ambient_of(EmissionLightCfg()) == pytest.approx(list(spec.visual.headlight.ambient))
    assert ambient_of(EmissionLightCfg(intensity=0.0)) == [0.0, 0.0, 0.0]


FLAT, ROUGH = {"kind": "flat"}, {"kind": "rough"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kinds": [{"kind": "lava"}]}, r"terrain\.kinds\[0\]\.kind: .*'lava'.* flat, rough, slope, stairs, steps"),
        ({"kinds": [FLAT, ROUGH, ROUGH]}, r"terrain: kinds\[1\]: share 1\.0 of num_columns 2 is less than a column"),
        ({"resolution": 0.3}, r"terrain: cell_size 4\.0 m must be a multiple of resolution 0\.3 m, at least 2"),
        (
            {"kinds": [FLAT, {"kind": "stairs", "depth": 0.05}]},
            r"kinds\[1\]: steps of 0\.05 m are less than resolution",
        ),
        ({"kinds": [{"kind": "steps", "block": 0.05}]}, r"kinds\[0\]: steps of 0\.05 m are less than resolution"),
        ({"max_init_level": 3}, r"terrain: max_init_level 3 must be below num_levels 3"),
        ({"resolution": 0.001}, r"terrain: 3 x 2 cells of 4,000 x 4,000 vertices are more than 16,777,216"),
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
