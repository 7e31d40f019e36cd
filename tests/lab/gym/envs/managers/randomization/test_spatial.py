"""What random poses are, and whose. Shapes: N environments."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.lab.gym.envs.managers.randomization import (
    randomize_camera_extrinsics,
    randomize_camera_intrinsics,
    randomize_emission_light,
    randomize_light,
    randomize_robot_eef_pose,
    set_rigid_object_group_visual_material,
    set_rigid_object_visual_material,
)
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.sim.cfg import VisualMaterialCfg
from embodichain.lab.sim.math import quat_from_euler, quat_mul
from embodichain.lab.sim.sensors import Camera
from embodichain.utils import ConfigError
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import BOX, CART, cart_cfg, env_of

N = 64
AT = [2.0, -1.0, 0.5]
TURNED = {**BOX, "init_pos": AT, "init_rot": [0.0, 0.0, 90.0]}


def env_with(func: str, num_envs: int = N, **params: Any) -> EmbodiedEnv:
    events = {"draw": {"func": func, "mode": "reset", "params": params}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": events}, rigid_object=[TURNED]))
    env.reset(seed=1)
    return env


def box_at(**params: Any) -> tuple[Tensor, Tensor]:
    box = env_with("randomize_rigid_object_pose", entity_cfg={"uid": "box"}, **params).sim.get_rigid_object("box")
    return box.pos, box.quat


def assert_fills(values: Tensor, low: list[float], high: list[float]) -> None:
    """Check that 64 values a column lie in the range and come near both its ends."""
    span = torch.tensor(high) - torch.tensor(low)
    assert (values >= torch.tensor(low) - 1e-6).all()
    assert (values <= torch.tensor(high) + 1e-6).all()
    # The chance that 64 uniform numbers leave out a fifth at one end is 0.8^64 = 6e-7.
    assert (values.amin(dim=0) <= torch.tensor(low) + 0.2 * span + 1e-6).all()
    assert (values.amax(dim=0) >= torch.tensor(high) - 0.2 * span - 1e-6).all()


def test_relative_position_is_around_the_configured_one() -> None:
    pos, quat = box_at(position_range=[[-0.1, -0.2, 0.0], [0.1, 0.2, 0.0]])
    assert_fills(pos, [1.9, -1.2, 0.5], [2.1, -0.8, 0.5])
    half = math.sqrt(0.5)
    torch.testing.assert_close(quat, torch.tensor([half, 0, 0, half]).expand(N, 4))


def test_absolute_position_is_in_the_environments_frame() -> None:
    pos, _ = box_at(position_range=[[-0.1, -0.2, 1.0], [0.1, 0.2, 1.5]], relative_position=False)
    assert_fills(pos, [-0.1, -0.2, 1.0], [0.1, 0.2, 1.5])


def test_rotation_range_is_degrees_after_the_configured_one() -> None:
    # 30 degrees about the fixed x axis exactly, on top of 90 degrees about z
    pos, quat = box_at(rotation_range=[[30.0, 0.0, 0.0], [30.0, 0.0, 0.0]])
    x, z = quat_from_euler(torch.deg2rad(torch.tensor([[30.0, 0, 0], [0, 0, 90.0]])))
    torch.testing.assert_close(quat, quat_mul(x, z).expand(N, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(pos, torch.tensor(AT).expand(N, 3))


def test_absolute_rotation_replaces_the_configured_one() -> None:
    _, quat = box_at(rotation_range=[[0.0, 0.0, -45.0], [0.0, 0.0, 45.0]], relative_rotation=False)
    yaw = torch.rad2deg(2 * torch.atan2(quat[:, 3:], quat[:, :1]))
    assert_fills(yaw, [-45.0], [45.0])
    assert quat[:, 1:3].abs().max().item() < 1e-6


def test_body_is_at_rest_in_the_envs_that_were_reset() -> None:
    env = env_with("randomize_rigid_object_pose", 2, entity_cfg={"uid": "box"})
    box = env.sim.get_rigid_object("box")
    # Written between the scene's reset and the event, as another event could.
    box.set_velocity(torch.ones(2, 6))
    env.event_manager.apply("reset", torch.tensor([1]))
    assert (box.get_velocity()[1] == 0).all()
    assert (box.get_velocity()[0] != 0).all()


def test_target_pose_is_stored_under_its_key_with_its_rotation() -> None:
    env: Any = env_with(
        "randomize_target_pose",
        position_range=[[0.0, 1.0, 2.0], [1.0, 2.0, 2.0]],
        rotation_range=[[0.0, 0.0, 90.0], [0.0, 0.0, 90.0]],
        store_key="place_to_be",
    )
    assert env.place_to_be.shape == (N, 4, 4)
    assert_fills(env.place_to_be[:, :3, 3], [0.0, 1.0, 2.0], [1.0, 2.0, 2.0])
    turn = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    torch.testing.assert_close(env.place_to_be[:, :3, :3], turn.expand(N, 3, 3), atol=1e-6, rtol=0)
    assert env.place_to_be[:, 3].tolist() == [[0, 0, 0, 1]] * N


def test_target_pose_may_be_drawn_around_a_body() -> None:
    zero = [[0.0, 0.0, 0.1], [0.0, 0.0, 0.1]]
    params = {"position_range": zero, "relative_position": True, "reference_entity_cfg": {"uid": "box"}}
    env: Any = env_with("randomize_target_pose", 2, **params)
    env.sim.get_rigid_object("box").set_local_pose(torch.tensor([[7.0, 8, 9, 1, 0, 0, 0]]), torch.tensor([1]))
    env.event_manager.apply("reset", torch.tensor([1]))
    torch.testing.assert_close(env.target_pose[:, :3, 3], torch.tensor([[2.0, -1, 0.6], [7, 8, 9.1]]))


def test_target_poses_read_before_a_reset_stay_what_they_were() -> None:
    env: Any = env_with("randomize_target_pose", 2, position_range=[[0.0, 0, 0], [1.0, 1, 1]])
    poses = env.target_pose
    copy = poses.clone()
    env.reset(options={"reset_ids": [0]})
    assert torch.equal(poses, copy)
    assert not torch.equal(env.target_pose[0], copy[0])
    assert torch.equal(env.target_pose[1], copy[1])


def test_joints_are_drawn_around_their_initial_positions() -> None:
    env = env_with("randomize_robot_qpos", qpos_range=[[-0.5, -0.1], [0.5, 0.1]])
    assert_fills(env.robot.get_qpos(), [-0.7, -0.03], [0.3, 0.17])  # -0.2 +- 0.5 and 0.07 +- 0.1
    assert torch.equal(env.robot.get_qpos_target(), env.robot.get_qpos())
    assert (env.robot.get_qvel() == 0).all()


SLIDER = (
    {"joint_ids": [0]},
    {"entity_cfg": {"uid": "Cart", "joint_names": "slider.*"}},
    {"entity_cfg": {"uid": "Cart", "control_parts": ["arm"]}},
)


@pytest.mark.parametrize("chosen", SLIDER)
def test_named_joints_may_be_drawn_within_their_limits(chosen: dict[str, Any]) -> None:
    env = env_with("randomize_robot_qpos", qpos_range=[[3.0], [9.0]], relative_qpos=False, **chosen)
    cart, pole = env.robot.get_qpos().unbind(dim=1)
    assert cart.max().item() == 4.0  # the slider's limit
    assert cart.min().item() >= 3.0
    torch.testing.assert_close(pole, torch.full((N,), 0.07))


def test_ranges_are_in_the_order_of_the_names() -> None:
    cart, pole = (name for name in env_with("randomize_robot_qpos", 1, qpos_range=[[0.0], [0.0]]).robot.joint_names)
    ranges = {"qpos_range": [[0.1, 0.2], [0.1, 0.2]], "relative_qpos": False}
    for names, expected in (([pole, cart], [0.2, 0.1]), ([".*"], [0.1, 0.2])):
        env = env_with("randomize_robot_qpos", 1, entity_cfg={"uid": "Cart", "joint_names": names}, **ranges)
        assert env.robot.get_qpos()[0].tolist() == pytest.approx(expected)


def test_unknown_control_part_of_an_entity_is_named() -> None:
    with pytest.raises(ConfigError, match=r"entity_cfg: unknown control part 'leg'"):
        env_with("randomize_robot_qpos", qpos_range=[[0.0], [0.0]], entity_cfg={"uid": "Cart", "control_parts": "leg"})


def test_base_of_an_articulation_is_drawn() -> None:
    door = {key: value for key, value in CART.items() if key != "control_parts"}
    door |= {"uid": "door", "init_pos": [0.0, 2.0, 0.5]}
    params = {"entity_cfg": {"uid": "door"}, "position_range": [[-0.1, 0.0, 0.0], [0.1, 0.2, 0.0]]}
    params["rotation_range"] = [[0.0, 0.0, 90.0], [0.0, 0.0, 90.0]]
    events = {"draw": {"func": "randomize_articulation_root_pose", "params": params}}
    env = EmbodiedEnv(cart_cfg(N, {"events": events}, articulation=[door]))
    env.reset(seed=1)
    pose = env.sim.get_articulation("door").get_local_pose()
    assert_fills(pose[:, :3], [-0.1, 2.0, 0.5], [0.1, 2.2, 0.5])
    half = math.sqrt(0.5)
    torch.testing.assert_close(pose[:, 3:], torch.tensor([half, 0, 0, half]).expand(N, 4))
    # The engine has it there, too: the slider's body is the first.
    slider = env.sim.model.body("door/slider").id
    torch.testing.assert_close(env.sim.backend.read("xpos")[:, slider, :2], pose[:, :2], atol=0.3, rtol=0)


def test_shapes_in_the_world_of_a_moved_file_come_along(tmp_path: Path) -> None:
    (tmp_path / "gate.xml").write_text(
        '<mujoco><worldbody><geom name="pillar" size=".1" pos="0 0 1"/><site name="hook" pos="0 .5 1"/>'
        '<body name="bar" pos=".5 0 1"><joint axis="0 1 0"/><geom size=".1"/></body></worldbody></mujoco>'
    )
    gate = {"uid": "gate", "fpath": str(tmp_path / "gate.xml"), "init_pos": [0.0, 2.0, 0.0]}
    params = {"entity_cfg": {"uid": "gate"}, "position_range": [[1.0, 0.0, 0.0]] * 2}
    params["rotation_range"] = [[0.0, 0.0, 90.0]] * 2
    events = {"draw": {"func": "randomize_articulation_root_pose", "params": params}}
    env = EmbodiedEnv(cart_cfg(1, {"events": events}, articulation=[gate]))
    env.reset(seed=1)
    model, read = env.sim.model, env.sim.backend.read
    found = [read("geom_xpos")[0, model.geom("gate/pillar").id], read("site_xpos")[0, model.site("gate/hook").id]]
    found.append(read("xpos")[0, model.body("gate/bar").id])
    # turned by a quarter: x to y, y to -x
    expected = torch.tensor([[1.0, 2.0, 1.0], [0.5, 2.0, 1.0], [1.0, 2.5, 1.0]])
    torch.testing.assert_close(torch.stack(found), expected, atol=1e-2, rtol=0)


def test_tool_is_put_around_its_present_pose_at_rest() -> None:
    params = {"entity_cfg": {"uid": "Manipulator"}, "position_range": [[-0.05, -0.05, 0.0], [0.05, 0.05, 0.1]]}
    events = {"draw": {"func": "randomize_robot_eef_pose", "mode": "reset", "params": params}}
    gym = {**PUSH_CUBE, "env": {**PUSH_CUBE["env"], "events": {**PUSH_CUBE["env"]["events"], **events}}}
    env = env_of(gym, N)
    home = env.robot.compute_fk(env.robot.body_data.default_qpos[:, :6])
    env.reset(seed=1)
    pose = env.robot.get_eef_pose()
    moved = pose[:, :3, 3] - home[:, :3, 3]
    assert_fills(moved * 0.98, [-0.05, -0.05, 0.0], [0.05, 0.05, 0.1])  # the search ends within 1 mm
    torch.testing.assert_close(pose[:, :3, :3], home[:, :3, :3], atol=0.02, rtol=0)
    assert torch.equal(env.robot.get_qpos_target(), env.robot.get_qpos())
    assert (env.robot.get_qvel() == 0).all()
    few = env_of(gym, 2)
    few.reset(seed=1)
    torch.testing.assert_close(few.robot.get_qpos(), env.robot.get_qpos()[:2], atol=1e-5, rtol=0)


def test_unreachable_tool_pose_leaves_the_joints_where_they_are() -> None:
    env = env_of(PUSH_CUBE, 2)
    env.reset(seed=1)
    before = env.robot.get_qpos().clone()
    far = ((5.0, 5.0, 5.0), (5.0, 5.0, 5.0))
    randomize_robot_eef_pose(env, torch.arange(2), SceneEntityCfg("Manipulator", control_parts="arm"), far)
    assert torch.equal(env.robot.get_qpos(), before)


def grid_env(num_envs: int, cells: list[int]) -> EmbodiedEnv:
    bodies = [{**BOX, "uid": f"box{i}", "init_pos": [2.0 + i, 0.0, 0.05]} for i in range(3)]
    params = {
        "position_range": [[0.0, 1.0], [0.6, 1.4]],
        "reference_height": 0.3,
        "object_uid_list": ["box0", "box1", "box2"],
        "grid_size": cells,
    }
    events = {"place": {"func": "planner_grid_cell_sampler", "mode": "reset", "params": params}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": events}, rigid_object=bodies))
    env.reset(seed=1)
    return env


def test_bodies_are_put_at_the_centres_of_different_cells() -> None:
    env = grid_env(N, [3, 2])
    pos = torch.stack([env.sim.get_rigid_object(f"box{i}").pos for i in range(3)], dim=1)
    # cells of 0.2 x 0.2 m: centres at 0.1, 0.3, 0.5 and 1.1, 1.3
    column, row = (pos[..., 0] - 0.1) / 0.2, (pos[..., 1] - 1.1) / 0.2
    torch.testing.assert_close(column, column.round(), atol=1e-5, rtol=0)
    torch.testing.assert_close(row, row.round(), atol=1e-5, rtol=0)
    cells = (column.round() + 3 * row.round()).long()
    assert set(cells.flatten().tolist()) == {0, 1, 2, 3, 4, 5}
    assert all(len(set(cell)) == 3 for cell in cells.tolist())
    torch.testing.assert_close(pos[..., 2], torch.full((N, 3), 0.3))
    few = grid_env(2, [3, 2])
    torch.testing.assert_close(few.sim.get_rigid_object("box1").pos, pos[:2, 1])


def test_grid_with_too_few_cells_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 x 1 cells are too few for 3 objects"):
        grid_env(1, [2, 1])


CAMERAS = [
    {"uid": "high", "extrinsics": {"eye": [2, 0, 1], "target": [0, 0, 1]}},
    {"uid": "wrist", "extrinsics": {"parent": "pole", "pos": [0, 0, 0.5]}},
]
LIGHT = {
    "direct": [{"uid": "lamp", "init_pos": [0, 0, 2], "intensity": 50}],
    "indirect": {"emission_light": {"intensity": 80}},
}
GROUP = {"uid": "pair", "rigid_objects": {n: {k: v for k, v in BOX.items() if k != "uid"} for n in ("a", "b")}}


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})  # nothing here needs one


@pytest.fixture
def lit() -> CartPoleEnv:
    return make_lit()


def make_lit(events: dict[str, Any] | None = None, num_envs: int = 4) -> CartPoleEnv:
    scene: dict[str, Any] = {"sensor": CAMERAS, "light": LIGHT, "rigid_object_group": [GROUP]}
    return CartPoleEnv(cart_cfg(num_envs, {"events": events or {}}, rigid_object=[BOX], **scene))


ONES = torch.tensor([1, 3])


def entity(uid: str) -> SceneEntityCfg:
    return SceneEntityCfg(uid)


def test_light_is_drawn_within_its_ranges(lit: CartPoleEnv) -> None:
    randomize_light(
        lit,
        ONES,
        entity("lamp"),
        ((-1, -1, 0), (1, 1, 0)),
        ((0.5, 0.5, 0.5), (1, 1, 1)),
        (50.0, 100.0),
        ((0.1, 0, 0), (0.2, 0, 0)),
    )
    pos, diffuse = (lit.sim.appearance.read(name)[:, 0] for name in ("light_pos", "light_diffuse"))
    assert np.allclose(pos[[0, 2]], [0, 0, 2])
    assert np.allclose(diffuse[[0, 2]], 0.5)
    assert (pos[[1, 3], 2] == 2).all()
    assert (pos[1] != pos[3]).any()
    assert (abs(pos[[1, 3], :2]) <= 1).all()
    # colour of at least 0.5 at an intensity of at least 50 per cent
    assert (diffuse[[1, 3]] >= 0.25).all()
    assert len(np.unique(diffuse[[1, 3]])) > 2
    # around straight down: x of 0.1 to 0.2 beside 1
    assert (lit.sim.appearance.read("light_dir")[[1, 3], 0, 0] > 0.09).all()


def test_ambient_light_is_drawn_around_the_configured_one(lit: CartPoleEnv) -> None:
    randomize_emission_light(lit, ONES, intensity_range=(160.0, 160.0))
    ambient = lit.sim.appearance.read("headlight_ambient")
    assert np.allclose(ambient[[1, 3]], 2 * ambient[[0, 2]])
    randomize_emission_light(lit, ONES, color_range=((1, 0, 0), (1, 0, 0)))
    assert np.allclose(lit.sim.appearance.read("headlight_ambient")[1], [ambient[0, 0], 0, 0])


def test_lens_is_drawn_around_the_configured_one(lit: CartPoleEnv) -> None:
    randomize_camera_intrinsics(lit, ONES, entity("high"), focal_x_range=(-50, 50), cy_range=(5, 5))
    matrix = lit.sim.get_sensor("high").get_intrinsics()
    assert matrix[0].tolist() == [[600, 0, 320], [0, 600, 240], [0, 0, 1]]
    assert 550 <= matrix[1, 0, 0] <= 650
    assert matrix[1, 0, 0] != matrix[3, 0, 0]
    assert matrix[1, 1].tolist() == [0, 600, 245]


def test_looking_camera_moves_its_eye_and_mounted_one_its_place(lit: CartPoleEnv) -> None:
    high, wrist = lit.sim.get_sensor("high"), lit.sim.get_sensor("wrist")
    before = high.get_local_pose(to_matrix=True).clone()
    randomize_camera_extrinsics(lit, ONES, entity("high"), eye_range=((0, 0, 0.5), (0, 0, 0.5)))
    pose = high.get_local_pose(to_matrix=True)
    assert torch.equal(pose[0], before[0])
    assert pose[1, :3, 3].tolist() == [2, 0, 1.5]
    # it still looks at (0, 0, 1): 0.5 down on 2 m
    assert (-pose[1, :3, 2]).tolist() == pytest.approx((np.array([-2, 0, -0.5]) / 4.25**0.5).tolist(), abs=1e-6)
    quarter = ((0.0, 0.0, 90.0), (0.0, 0.0, 90.0))
    randomize_camera_extrinsics(lit, ONES, entity("wrist"), pos_range=((0.1, 0, 0), (0.1, 0, 0)), euler_range=quarter)
    pose = wrist.get_local_pose(to_matrix=True)
    assert pose[0, :3, 3].tolist() == pytest.approx([0, 0, 0.5])
    assert pose[1, :3, 3].tolist() == pytest.approx([0.1, 0, 0.5])
    assert torch.allclose(pose[1, :3, :3], torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]), atol=1e-6)
    with pytest.raises(ConfigError, match=r"^'high' is placed by eye: give eye_range, target_range and up_range$"):
        randomize_camera_extrinsics(lit, ONES, entity("high"), pos_range=quarter)
    with pytest.raises(ConfigError, match=r"^'wrist' is placed by pos: give pos_range and euler_range$"):
        randomize_camera_extrinsics(lit, ONES, entity("wrist"), up_range=quarter)


def rgba(lit: CartPoleEnv, body: str) -> np.ndarray:
    model = lit.sim.backend.visual_model
    geom = int(model.body(body).geomadr[0])
    return lit.sim.appearance.read("geom_rgba")[:, geom]


def test_material_gives_bodies_and_groups_a_colour(lit: CartPoleEnv) -> None:
    green = VisualMaterialCfg(base_color=(0, 1, 0))
    set_rigid_object_visual_material(lit, ONES, entity("box"), green)
    assert rgba(lit, "box")[1].tolist() == [0, 1, 0, 1]
    assert rgba(lit, "box")[0].tolist() != [0, 1, 0, 1]
    set_rigid_object_group_visual_material(lit, ONES, entity("pair"), VisualMaterialCfg(base_color=(1, 0, 0, 0.5)))
    assert rgba(lit, "pair_a")[3].tolist() == rgba(lit, "pair_b")[3].tolist() == [1, 0, 0, 0.5]


def test_colours_are_drawn_for_things_links_and_the_ground() -> None:
    def event(uid: str, **params: Any) -> dict[str, Any]:
        return {"func": "randomize_visual_material", "params": {"entity_cfg": {"uid": uid} | params}}

    lit = make_lit({"a": event("box"), "b": event("Cart", link_names=["po.*"]), "c": event("default_plane")})
    slider = rgba(lit, "Cart/slider").copy()
    lit.reset(seed=1)
    for body in ("box", "Cart/pole", "world"):
        colors = rgba(lit, body)
        assert len({tuple(color) for color in colors.tolist()}) == 4
        assert (colors[:, 3] == 1).all()
    assert np.array_equal(rgba(lit, "Cart/slider"), slider)
    first = rgba(lit, "box").copy()
    lit.reset(seed=1)
    assert np.array_equal(rgba(lit, "box"), first)


def test_textures_are_accepted_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    params = {"entity_cfg": {"uid": "box"}, "texture_path": "CocoBackground/coco"}
    make_lit({"a": {"func": "randomize_visual_material", "params": params}})
    assert "randomize_visual_material: without counterpart, not used: texture_path" in capsys.readouterr().err
