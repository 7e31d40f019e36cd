"""Shapes: N environments, M members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import RigidObjectGroupCfg
from embodichain.utils import ConfigError
from embodichain.utils.validation import from_dict

BALL = {"shape": {"shape_type": "Sphere", "radius": 0.05}}
TETRAHEDRON = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def build(**data: Any) -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.add_rigid_object_group(from_dict(RigidObjectGroupCfg, {"uid": "balls"} | data, "rigid_object_group[0]"))
    sim.build()
    return sim


def test_members_are_read_and_moved_together_and_known_by_their_own_names() -> None:
    sim = build(rigid_objects={"a": BALL | {"init_pos": [0, 0, 1]}, "b": BALL | {"init_pos": [0, 1, 1]}})
    group = sim.get_rigid_object_group("balls")
    assert group.num_objects == 2
    assert group.get_local_pose()[:, :, 1].tolist() == [[0, 1], [0, 1]]
    assert group.get_local_pose(to_matrix=True).shape == (2, 2, 4, 4)
    pose = group.get_local_pose()[1:] + torch.tensor([0.5, 0, 0, 0, 0, 0, 0])
    group.set_local_pose(pose, torch.tensor([1]))
    assert sim.get_rigid_object("balls_b").pos[:, 0].tolist() == [0.0, 0.5]
    group.set_local_pose(pose[:, :1] * 0 + torch.tensor([9.0, 0, 0, 1, 0, 0, 0]), torch.tensor([0]), obj_ids=[1])
    assert group.get_local_pose()[:, :, 0].tolist() == [[0, 9], [0.5, 0.5]]


def test_members_come_to_rest() -> None:
    sim = build(rigid_objects={"a": BALL | {"init_pos": [0, 0, 1]}, "b": BALL | {"init_pos": [0, 1, 1]}})
    group = sim.get_rigid_object_group("balls")
    sim.update(10)
    assert (group.get_velocity()[:, :, 2] < -0.5).all()
    group.clear_dynamics(torch.tensor([0]))
    assert group.get_velocity()[0].abs().max() == 0
    assert (group.get_velocity()[1, :, 2] < -0.5).all()


def test_folder_makes_a_member_of_each_mesh(tmp_path: Path) -> None:
    for name in ("cup", "bowl", "spoon"):
        (tmp_path / f"{name}.obj").write_text(TETRAHEDRON)
    (tmp_path / "note.txt").write_text("")
    template = {"any": {"shape": {"shape_type": "Mesh", "fpath": ""}}}
    sim = build(rigid_objects=template, folder_path=str(tmp_path), max_num=2)
    assert [member.uid for member in sim.get_rigid_object_group("balls").members] == ["balls_bowl", "balls_cup"]


def test_group_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rigid object group 'balls': folder_path: no files '\*.obj' in"):
        build(rigid_objects={"a": BALL}, folder_path=str(tmp_path))
    with pytest.raises(ConfigError, match="rigid_objects"):
        build(rigid_objects={})
    with pytest.raises(ConfigError, match=r"rigid_object_group\[0\].rigid_objects.a.mass"):
        build(rigid_objects={"a": BALL | {"mass": 1}})
