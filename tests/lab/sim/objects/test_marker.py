from __future__ import annotations

import torch

from embodichain.lab.sim.cfg import MarkerCfg
from embodichain.lab.sim.shapes import SphereCfg
from tests.lab.scenes import simulate


def test_marker_moves_in_the_named_envs_only_and_each_marker_alone() -> None:
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
