"""Markers, lights, and heights, cells and levels of a terrain.

The terrain: 3 levels of 4 m along x; along y a column of stairs and one of rough ground.
"""

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import LightCfg, MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.objects import Terrain
from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.shapes import SphereCfg
from tests.lab.scenes import simulate
from tests.lab.terrain_scenes import terrain_cfg


def test_marker_moves_in_the_named_envs_only() -> None:
    sim = simulate(MarkerCfg(uid="a", shape=SphereCfg()), MarkerCfg(uid="b", shape=SphereCfg()), num_envs=2)
    sim.get_marker("b").set_pos(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
    rows = [int(sim.model.body(uid).mocapid[0]) for uid in "ab"]
    positions = sim.backend.read("mocap_pos")[:, rows]
    assert positions.tolist() == [[[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [1, 2, 3]]]
    sim.get_marker("a").set_pos(torch.ones(2, 3))
    assert sim.backend.read("mocap_pos")[:, rows[0]].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_marker_turns_in_the_named_envs_only() -> None:
    sim = simulate(MarkerCfg(uid="a", shape=SphereCfg()), num_envs=2)
    sim.get_marker("a").set_quat(torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([1]))
    assert sim.backend.read("mocap_quat")[:, 0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]


def lit_by(*lights: LightCfg) -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    for light in lights:
        sim.add_light(light)
    sim.build()
    return sim


def test_lights_of_a_config_take_the_place_of_the_sun() -> None:
    model = lit_by(
        LightCfg("a", color=(1, 0.5, 0), intensity=50.0, init_pos=(1, 2, 3)), LightCfg("b")
    ).backend.visual_model
    assert [model.light(i).name for i in range(model.nlight)] == ["a", "b"]
    # 50 per cent of the colour
    assert model.light("a").diffuse.tolist() == pytest.approx([0.5, 0.25, 0.0])
    assert model.light("a").pos.tolist() == [1, 2, 3]
    assert [lit_by().backend.visual_model.light(0).name] == ["sun"]


def test_light_changes_in_the_environments_named() -> None:
    sim = lit_by(LightCfg("a", intensity=100.0))
    light, one = sim.get_light("a"), torch.tensor([1])
    light.set_color(torch.tensor([[0.0, 1.0, 0.5]]), one)
    light.set_intensity(torch.tensor([50.0]), one)
    light.set_direction(torch.tensor([[3.0, 0.0, 4.0]]), one)
    light.set_local_pose(torch.tensor([[1.0, 2.0, 3.0]]), one)
    assert np.allclose(sim.appearance.read("light_diffuse")[:, 0], [[1.0, 1.0, 1.0], [0.0, 0.5, 0.25]])
    assert np.allclose(sim.appearance.read("light_dir")[:, 0], [[0.0, 0.0, -1.0], [0.6, 0.0, 0.8]])
    assert light.get_local_pose()[:, :3].tolist() == [[0, 0, 0], [1, 2, 3]]
    assert light.get_local_pose(to_matrix=True)[1, :3, 3].tolist() == [1, 2, 3]


def terrain_of(sim: SimulationManager) -> Terrain:
    assert sim.terrain is not None
    return sim.terrain


def small_terrain(num_envs: int = 4, **changes: object) -> Terrain:
    return terrain_of(simulate(terrain=terrain_cfg(**changes), num_envs=num_envs))


def points_on(cfg_size: tuple[float, float], count: int) -> Tensor:
    random = np.random.default_rng(0)
    return torch.from_numpy(random.uniform(-1.0, 1.0, (count, 2)) * cfg_size).float()


def test_heights_are_those_that_the_engines_rays_hit() -> None:
    sim = simulate(terrain=terrain_cfg())
    xy = points_on((7.0, 5.0), 300)  # with the border
    data = mujoco.MjData(sim.model)
    mujoco.mj_forward(sim.model, data)
    down, geom = np.array([0.0, 0.0, -1.0]), np.zeros(1, dtype=np.int32)
    rays = [
        5.0 - mujoco.mj_ray(sim.model, data, np.array([x, y, 5.0]), down, None, 1, -1, geom) for x, y in xy.tolist()
    ]
    np.testing.assert_allclose(terrain_of(sim).height_at(xy).numpy(), rays, atol=2e-6)


def test_heights_are_those_at_which_a_ball_touches() -> None:
    ball = RigidObjectCfg("ball", shape=SphereCfg(radius=0.001))
    sim = simulate(ball, terrain=terrain_cfg(kinds=[{"kind": "rough", "amplitude": [0.1, 0.1]}], border=0.0))
    terrain, data = terrain_of(sim), mujoco.MjData(sim.model)
    for x, y in points_on((5.0, 3.0), 40).tolist():
        height = float(terrain.height_at(torch.tensor([x, y])))
        reach = [height + offset for offset in (0.003, -0.003)]
        touches = []
        for z in reach:
            data.qpos[:3] = x, y, z
            mujoco.mj_forward(sim.model, data)
            touches.append(data.ncon > 0)
        assert touches == [False, True], (x, y)


def test_columns_follow_global_ids_and_levels_are_drawn() -> None:
    terrain = small_terrain(64)
    random = CounterRandom(7, 64, first_id=3)
    terrain.assign(random, torch.arange(64))
    assert terrain.columns.tolist() == [(3 + i) % 2 for i in range(64)]
    assert torch.bincount(terrain.levels).min() > 8
    assert terrain.levels.max() == 2
    torch.testing.assert_close(terrain.env_origins, terrain.origins[terrain.levels, terrain.columns])
    # Environments 3 to 66 of one process are the same as those of another that begins at 35.
    half = small_terrain(32)
    half.assign(CounterRandom(7, 32, first_id=35), torch.arange(32))
    assert half.levels.tolist() == terrain.levels[32:].tolist()


def test_group_shares_its_cell() -> None:
    terrain = small_terrain(64, max_init_level=1)
    terrain.assign(CounterRandom(1, 64, group_size=4), torch.arange(64))
    assert terrain.levels.unique().tolist() == [0, 1]
    assert (terrain.levels.view(16, 4) == terrain.levels.view(16, 4)[:, :1]).all()
    assert terrain.columns.tolist() == [i // 4 % 2 for i in range(64)]


def test_level_beyond_the_last_becomes_a_random_one() -> None:
    terrain = small_terrain(5)
    terrain.levels = torch.tensor([0, 1, 2, 2, 0])
    ids = torch.tensor([0, 1, 2, 3])
    up, down = torch.tensor([True, False, True, False]), torch.tensor([False, True, False, False])
    terrain.move(ids, up, down, torch.tensor([0.9, 0.9, 0.5, 0.9]))
    assert terrain.levels.tolist() == [1, 0, 1, 2, 0]  # 0.5 of 3 levels: level 1
    terrain.move(torch.tensor([4]), torch.tensor([False]), torch.tensor([True]), torch.tensor([0.9]))
    assert terrain.levels.tolist() == [1, 0, 1, 2, 0]
    terrain.levels = torch.tensor([2, 2, 2, 2, 2])
    terrain.move(torch.tensor([1]), torch.tensor([True]), torch.tensor([False]), torch.tensor([1.0 - 2**-24]))
    assert terrain.levels.tolist() == [2, 2, 2, 2, 2]


def test_its_state_is_among_the_simulations_parts() -> None:
    sim = simulate(terrain=terrain_cfg(), num_envs=3)
    terrain_of(sim).levels = torch.tensor([0, 1, 2])
    saved = sim.state_dict()
    other = simulate(terrain=terrain_cfg(), num_envs=3)
    other.load_state_dict(saved)
    assert terrain_of(other).levels.tolist() == [0, 1, 2]
    assert simulate().terrain is None
