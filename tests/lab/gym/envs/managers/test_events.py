"""Events about the scene, by hand. Shapes: N environments."""

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import events
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.utils import ConfigError
from tests.lab.legs import legs_env
from tests.lab.scenes import BOX, cart_cfg
from tests.lab.sim.objects.test_body_physics import write_box

BOX_CFG = SceneEntityCfg("box")
ALL = torch.arange(2)


def env_of(num_envs: int = 2, terms: dict[str, Any] | None = None, **cfg: Any) -> Any:
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": terms or {}}, **({"rigid_object": [BOX]} | cfg)))
    env.reset(seed=1)
    return env


# --- meshes --------------------------------------------------------------------------------------------------------


def meshes(folder: Path) -> dict[str, Any]:
    """Write three cubes, and return the config of a body with another."""
    for i, edge in enumerate((0.2, 0.3, 0.4)):
        write_box(folder / f"cup_{i}.obj", edge)
    (folder / "notes.txt").write_text("no mesh")
    own = write_box(folder.parent / "own.obj", 0.1)
    return {"uid": "cup", "shape": {"shape_type": "Mesh", "fpath": str(own)}, "init_pos": [3.0, 0.0, 0.2]}


def replacing(folder_path: str) -> dict[str, Any]:
    params = {"entity_cfg": {"uid": "cup"}, "folder_path": folder_path}
    return {"swap": {"func": "replace_assets_from_group", "mode": "reset", "params": params}}


def test_each_env_gets_one_of_the_folders_meshes(tmp_path: Path) -> None:
    folder = tmp_path / "cups"
    folder.mkdir()
    env = env_of(32, replacing(f"{folder}/"), rigid_object=[meshes(folder)])
    physics = env.sim.get_rigid_object("cup").physics
    assert physics.num_variants == 4
    # m a^2 / 6 of 1 kg
    edges = (6 * physics.get_inertia()[:, 0]).sqrt()
    found = {round(edge, 3) for edge in edges.tolist()}
    assert found == {0.2, 0.3, 0.4}
    few = env_of(4, replacing(f"{folder}/"), rigid_object=[meshes(folder)])
    torch.testing.assert_close(few.sim.get_rigid_object("cup").physics.get_inertia(), physics.get_inertia()[:4])


def test_pattern_chooses_some_of_a_folders_meshes(tmp_path: Path) -> None:
    folder = tmp_path / "cups"
    folder.mkdir()
    cup = meshes(folder)
    env = env_of(2, replacing(str(folder / "cup_[01].obj")), rigid_object=[cup])
    assert env.sim.get_rigid_object("cup").physics.num_variants == 3
    with pytest.raises(ConfigError, match=r"folder_path: no \.obj or \.stl file 'bowl_\*\.obj' in .*cups"):
        env_of(2, replacing(str(folder / "bowl_*.obj")), rigid_object=[cup])


# --- groups --------------------------------------------------------------------------------------------------------


def test_members_of_a_group_fall_one_after_the_other() -> None:
    boxes = {name: {"shape": BOX["shape"], "init_pos": [x, 0.0, 0.05]} for name, x in (("a", 2.0), ("b", 3.0))}
    env = env_of(rigid_object=[], rigid_object_group=[{"uid": "boxes", "rigid_objects": boxes}])
    members = env.sim.get_rigid_object_group("boxes").members
    at = ((0.0, 0.0, 0.0), (0.5, 0.0, 0.0))
    events.drop_rigid_object_group_sequentially(env, torch.tensor([1]), SceneEntityCfg("boxes"), (0.0, 0.0, 2.0), at, 5)
    # 10 and 5 substeps of 0.01 s: speeds g t with damping at 0.7/s, the first twice as fast
    fallen = [2.0 - member.pos[1, 2].item() for member in members]
    speeds = [member.get_velocity()[1, 2].item() for member in members]
    assert speeds == pytest.approx([-0.981, -0.4905], rel=0.05)
    assert fallen[0] > 2 * fallen[1] > 0.0
    assert all(0.0 <= member.pos[1, 0].item() < 0.5 for member in members)
    assert [member.pos[0, 0].item() for member in members] == [2.0, 3.0]  # env 0 was left alone
    assert all(member.get_velocity()[0].abs().max().item() < 1e-6 for member in members)


# --- what a reset leaves alone -------------------------------------------------------------------------------------


def test_detached_things_keep_their_state_at_a_reset() -> None:
    env = env_of()
    box, robot = env.sim.get_rigid_object("box"), env.robot
    pose = torch.tensor([[1.0, 2, 3, 1, 0, 0, 0], [4.0, 5, 6, 0, 1, 0, 0]])
    box.set_local_pose(pose)
    box.set_velocity(torch.ones(2, 6))
    robot.set_qpos(torch.full((2, 2), 0.5), target=False)
    events.set_detached_uids_for_env_reset(env, ALL, ["box"])
    env.reset(options={"reset_ids": [1]})
    torch.testing.assert_close(box.get_local_pose(), pose)
    torch.testing.assert_close(box.get_velocity(), torch.ones(2, 6))
    torch.testing.assert_close(robot.get_qpos(), torch.tensor([[0.5, 0.5], [-0.2, 0.07]]))
    events.set_detached_uids_for_env_reset(env, ALL, ["Cart"])
    robot.set_qpos(torch.full((2, 2), 0.25))
    robot.set_qpos(torch.full((2, 2), 0.75), target=False)
    robot.set_qpos(torch.full((2, 2), 0.25))
    env.reset()
    assert robot.get_qpos().tolist() == [[0.75, 0.75]] * 2
    assert robot.get_qpos_target().tolist() == [[0.25, 0.25]] * 2


def test_detached_robot_goes_on_as_fast_as_it_was() -> None:
    env = legs_env(2)
    env.reset(seed=1)
    falling = torch.tensor([[0.0, 0, -2, 0.1, 0, 0]] * 2)
    env.robot.base.set_velocity(falling, ALL)
    env.sim.detach_from_reset([env.robot.uid])
    env.sim.reset(ALL)
    torch.testing.assert_close(env.robot.base.velocity(), falling)


# --- affordances ---------------------------------------------------------------------------------------------------


def test_extra_attributes_are_values_or_what_methods_return() -> None:
    env = env_of()
    attrs: list[dict[str, Any]] = [
        {"name": "grasp_pose_object", "entity_cfg": {"uid": "box"}, "value": [0.0, 0, 0.1, 1, 0, 0, 0]},
        {"name": "weight", "mode": "callable", "entity_uids": "all_objects", "func_name": "get_mass"},
        {"name": "where", "mode": "callable", "entity_uids": ["Cart"], "func_name": "get_local_pose",
         "func_kwargs": {"to_matrix": False}},
    ]  # fmt: skip
    events.prepare_extra_attr(env, ALL, attrs)
    assert env.extra_attrs["box"]["grasp_pose_object"] == [0.0, 0, 0.1, 1, 0, 0, 0]
    assert env.extra_attrs["box"]["weight"].tolist() == [[1.0], [1.0]]
    assert env.extra_attrs["Cart"]["where"].tolist() == [[0, 0, 0.5, 1, 0, 0, 0]] * 2
    with pytest.raises(ConfigError, match="has no method 'get_maas'"):
        events.prepare_extra_attr(env, ALL, [attrs[1] | {"func_name": "get_maas"}])


def test_attributes_are_noted_of_the_envs_concerned() -> None:
    env = env_of()
    events.prepare_extra_attr(env, ALL, [{"name": "color", "entity_uids": "box", "value": "red"}])
    events.register_entity_attrs(env, ALL, BOX_CFG, attrs=["mass", "color"])
    assert env.affordance_datas["box_color"] == "red"
    assert env.affordance_datas["box_mass"].tolist() == [[1.0], [1.0]]
    env.sim.get_rigid_object("box").physics.set_mass(torch.tensor([2.0, 3.0]), ALL)
    events.register_entity_attrs(env, torch.tensor([1]), BOX_CFG, attrs=["mass"])
    assert env.affordance_datas["box_mass"].tolist() == [[1.0], [3.0]]
    events.register_entity_attrs(env, ALL, BOX_CFG, registration="facts", attrs=["mass"], prefix=False)
    assert env.facts["mass"].tolist() == [[2.0], [3.0]]
    for _ in range(2):  # of a shape that is no [N, ...]
        events.register_entity_attrs(env, torch.tensor([1]), BOX_CFG, attrs=["initial_mass"])
    with pytest.raises(ConfigError, match=r"'box' has no attribute 'maas'"):
        events.register_entity_attrs(env, ALL, BOX_CFG, attrs=["maas"])


def test_poses_are_noted_in_several_frames() -> None:
    env = env_of()
    half = 0.5**0.5
    # env 1's box is turned by 90 degrees about z, at (1, 2, 3)
    pose = torch.tensor([[0.0, 0, 1, 1, 0, 0, 0], [1.0, 2, 3, half, 0, 0, half]])
    env.sim.get_rigid_object("box").set_local_pose(pose)
    attr = {"name": "grasp_pose_object", "entity_uids": "box", "value": [0.1, 0.0, 0.0, 1, 0, 0, 0]}
    events.prepare_extra_attr(env, ALL, [attr])
    events.register_entity_pose(env, ALL, BOX_CFG, to_matrix=False)
    notes = env.affordance_datas
    assert set(notes) == {"box_pose", "Cart_pose_box", "box_grasp_pose_object", "box_grasp_pose"}
    torch.testing.assert_close(notes["box_pose"], pose)
    # The robot's base (0, 0, 0.5) seen from the box: env 1: R^T (-1, -2, -2.5) = (-2, 1, -2.5), turned back
    expected = torch.tensor([[0.0, 0, -0.5, 1, 0, 0, 0], [-2.0, 1, -2.5, half, 0, 0, -half]])
    torch.testing.assert_close(notes["Cart_pose_box"], expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(notes["box_grasp_pose_object"], torch.tensor([[0.1, 0, 0, 1, 0, 0, 0]]).expand(2, 7))
    # 0.1 along the box's x: along x in env 0, along y in env 1
    torch.testing.assert_close(notes["box_grasp_pose"][:, :3], torch.tensor([[0.1, 0, 1], [1.0, 2.1, 3]]))


def test_poses_of_other_things_may_be_left_out_or_named() -> None:
    env = env_of()
    events.register_entity_pose(env, ALL, BOX_CFG, compute_relative=False)
    assert set(env.affordance_datas) == {"box_pose"}
    assert env.affordance_datas["box_pose"].shape == (2, 4, 4)
    events.register_entity_pose(env, ALL, BOX_CFG, registration="other", compute_relative=["Cart"])
    assert set(env.other) == {"box_pose", "Cart_pose_box"}
    events.register_entity_pose(env, ALL, BOX_CFG, registration="all", compute_relative=True)
    assert set(env.all) == {"box_pose", "Cart_pose_box"}


def test_several_things_are_noted_after_they_came_to_rest() -> None:
    env = env_of(rigid_object=[{**BOX, "init_pos": [2.0, 0.0, 0.3]}])
    registry = [{"entity_cfg": {"uid": "box"}, "attrs": ["mass"], "pose_register_params": {"compute_relative": False}}]
    events.register_info_to_env(env, torch.tensor([1]), registry)
    # a box of 0.1 m: the centre is 0.05 above the ground; env 0 was not simulated
    z = env.affordance_datas["box_pose"][:, 2, 3]
    torch.testing.assert_close(z, torch.tensor([0.3, 0.05]), atol=2e-3, rtol=0)
    assert env.affordance_datas["box_mass"].tolist() == [[1.0], [1.0]]
