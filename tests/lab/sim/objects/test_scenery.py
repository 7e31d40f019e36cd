from __future__ import annotations

import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import LightCfg, MarkerCfg
from embodichain.lab.sim.shapes import SphereCfg
from tests.lab.scenes import simulate


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
