"""Shapes: N environments."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import RigidBodyAttributesCfg, RigidObjectCfg, RigidObjectGroupCfg
from embodichain.lab.sim.objects import RigidObject
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils import ConfigError, from_dict
from tests.lab.scenes import TETRAHEDRON, simulate

HALF = math.sqrt(0.5)
# They stand in one place: they must not push each other away.
UNDAMPED = RigidBodyAttributesCfg(linear_damping=0.0, angular_damping=0.0, enable_collision=False)
AT = {"init_pos": (1.0, 2.0, 3.0), "init_rot": (0.0, 0.0, 90.0), "attrs": UNDAMPED}


@pytest.fixture(scope="module")
def built() -> SimulationManager:
    kinds = ("dynamic", "kinematic", "static")
    bodies = [RigidObjectCfg(uid=kind, shape=CubeCfg(), body_type=kind, **AT) for kind in kinds]  # type: ignore[arg-type]
    return simulate(*bodies, num_envs=3, gravity=(0.0, 0.0, 0.0))


@pytest.fixture
def sim(built: SimulationManager) -> Iterator[SimulationManager]:
    yield built
    built.reset(torch.arange(3))


@pytest.fixture
def body(sim: SimulationManager) -> RigidObject:
    return sim.get_rigid_object("dynamic")


@pytest.mark.parametrize("kind", ["dynamic", "kinematic", "static"])
def test_initial_pose_is_the_configured_one(sim: SimulationManager, kind: str) -> None:
    body = sim.get_rigid_object(kind)
    pose = torch.tensor([1.0, 2, 3, HALF, 0, 0, HALF])
    torch.testing.assert_close(body.get_local_pose(), pose.expand(3, 7))
    torch.testing.assert_close(torch.cat((body.initial_pos, body.initial_quat)), pose)
    # a quarter turn about z: x goes to y
    matrix = torch.tensor([[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    torch.testing.assert_close(body.get_local_pose(to_matrix=True), matrix.expand(3, 4, 4), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["dynamic", "kinematic"])
@pytest.mark.parametrize("as_matrix", [False, True])
def test_pose_is_set_in_the_named_envs_only(sim: SimulationManager, kind: str, as_matrix: bool) -> None:
    body = sim.get_rigid_object(kind)
    before = body.get_local_pose().clone()
    body.get_local_pose(to_matrix=True)
    pose = torch.tensor([[5.0, 6, 7, HALF, HALF, 0, 0]])
    matrix = torch.tensor([[[1.0, 0, 0, 5], [0, 0, -1, 6], [0, 1, 0, 7], [0, 0, 0, 1]]])
    body.set_local_pose(matrix if as_matrix else pose, torch.tensor([1]))
    torch.testing.assert_close(body.get_local_pose()[1], pose[0])
    torch.testing.assert_close(body.get_local_pose(to_matrix=True)[1], matrix[0], atol=1e-6, rtol=0)
    assert torch.equal(body.get_local_pose()[[0, 2]], before[[0, 2]])


def test_velocity_is_set_and_read_in_the_world_frame(body: RigidObject) -> None:
    velocity = torch.tensor([[0.1, 0.2, 0.3, 1.0, 2.0, 3.0]])
    body.set_velocity(velocity, torch.tensor([2]))
    torch.testing.assert_close(body.get_velocity()[2:], velocity)
    assert (body.get_velocity()[:2] == 0).all()


def test_spin_about_a_world_axis_turns_the_body_about_that_axis(sim: SimulationManager, body: RigidObject) -> None:
    # The body is turned by 90 degrees about z; its spin about the world's x axis is one about its own -y axis. After
    # 100 substeps of 0.01 s at pi/2 rad/s it has made a quarter turn about x: its z axis points along the world's -y.
    body.set_velocity(torch.tensor([[0.0, 0, 0, math.pi / 2, 0, 0]]).expand(3, 6))
    sim.update(100)
    z_axis = body.get_local_pose(to_matrix=True)[0, :3, 2]
    torch.testing.assert_close(z_axis, torch.tensor([0.0, -1.0, 0.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(body.get_velocity()[0, 3:], torch.tensor([math.pi / 2, 0.0, 0.0]), atol=1e-4, rtol=0)


def test_clearing_dynamics_brings_the_named_envs_to_rest(body: RigidObject) -> None:
    body.set_velocity(torch.ones(3, 6))
    body.clear_dynamics(torch.tensor([0, 2]))
    assert body.get_velocity().abs().sum(dim=1).gt(0).tolist() == [False, True, False]
    body.clear_dynamics()
    assert (body.get_velocity() == 0).all()


def test_kinematic_body_moves_others_and_is_not_moved_by_them() -> None:
    pusher = RigidObjectCfg("pusher", shape=CubeCfg(), body_type="kinematic", init_pos=(0.0, 0.0, 0.05))
    box = RigidObjectCfg("box", shape=CubeCfg(), init_pos=(0.15, 0.0, 0.05))
    sim = simulate(pusher, box, num_envs=2)
    for step in range(1, 51):
        x = 0.002 * step
        sim.get_rigid_object("pusher").set_local_pose(
            torch.tensor([[x, 0, 0.05, 1, 0, 0, 0]]), env_ids=torch.tensor([1])
        )
        sim.update(2)
    # In the second environment the pusher's face came to 0.1 + 0.05, the box's centre is 0.05 further.
    assert sim.get_rigid_object("box").pos[:, 0].tolist() == [pytest.approx(0.15), pytest.approx(0.2, abs=5e-3)]
    assert sim.get_rigid_object("pusher").pos[:, 0].tolist() == [0.0, pytest.approx(0.1)]


BALL = {"shape": {"shape_type": "Sphere", "radius": 0.05}}


def build(**data: Any) -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.add_rigid_object_group(from_dict(RigidObjectGroupCfg, {"uid": "balls"} | data, "rigid_object_group[0]"))
    sim.build()
    return sim


def test_group_members_are_moved_together() -> None:
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


def test_folder_makes_a_member_of_each_mesh(tmp_path: Path) -> None:
    for name in ("cup", "bowl", "spoon"):
        (tmp_path / f"{name}.obj").write_text(TETRAHEDRON)
    (tmp_path / "note.txt").write_text("")
    template = {"any": {"shape": {"shape_type": "Mesh", "fpath": ""}}}
    sim = build(rigid_objects=template, folder_path=str(tmp_path), max_num=2)
    assert [member.uid for member in sim.get_rigid_object_group("balls").members] == ["balls_bowl", "balls_cup"]


def test_group_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rigid object group 'balls'.folder_path: no files '\*.obj' in"):
        build(rigid_objects={"a": BALL}, folder_path=str(tmp_path))
    with pytest.raises(ConfigError, match="rigid_objects"):
        build(rigid_objects={})
