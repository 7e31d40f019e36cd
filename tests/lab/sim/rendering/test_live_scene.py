"""Environments in a page's scene; a recorder stands for viser."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import CameraCfg, ExtrinsicsCfg, MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.rendering.live_scene import (
    LiveScene,
    add_geom,
    geom_looks,
    places_in_grid,
    seen_box,
    soft_shapes,
    texture_colours,
)
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from tests.lab.scenes import needs_gl, simulate
from tests.lab.sim.rendering.test_renderer import shift_soft, soft_sim
from tests.lab.terrain_scenes import ball_env, terrain_cfg
from tests.lab.warp_scenes import needs_warp


class Node:
    """One thing in the scene; notes how often it was moved."""

    visible = True
    points: np.ndarray

    def __init__(self, scene: "Recorder", name: str, **props: Any) -> None:
        self.scene, self.name, self.moves = scene, name, -2  # both parts of the first pose are no moves
        self.position, self.wxyz = np.zeros(3), np.array([1.0, 0, 0, 0])
        vars(self).update(props)
        scene.nodes[name] = self

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("position", "wxyz"):
            super().__setattr__("moves", self.moves + 1)

    def remove(self) -> None:
        del self.scene.nodes[self.name]


class Recorder:
    """Takes viser's calls."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def __getattr__(self, call: str) -> Any:
        return lambda name, **props: Node(self, name, call=call, **props)


def scene_of(sim: SimulationManager, followed: Any = None) -> tuple[LiveScene, dict[str, Node]]:
    recorder = Recorder()
    server = SimpleNamespace(scene=recorder, initial_camera=SimpleNamespace())
    return LiveScene(server, sim.backend, sim.appearance, followed), recorder.nodes


@pytest.fixture
def sim() -> SimulationManager:
    box = RigidObjectCfg("box", shape=CubeCfg(size=(0.2, 0.4, 0.6)), init_pos=(1.0, 0.0, 0.3), rgba=(1, 0, 0, 1))
    goal = MarkerCfg("goal", shape=SphereCfg(radius=0.1), init_pos=(0.0, 1.0, 0.1), rgba=(0, 1, 0, 0.5))
    return simulate(box, goal, num_envs=3)


def body_frame(nodes: dict[str, Node], sim: SimulationManager, env_id: int, name: str) -> Node:
    return nodes[f"/env_{env_id}/body_{sim.backend.visual_model.body(name).id}"]


def test_of_many_environments_the_first_four_are_shown() -> None:
    scene, nodes = scene_of(simulate(RigidObjectCfg("box", shape=CubeCfg()), num_envs=6))
    assert scene.count == 4
    assert "/env_3" in nodes
    assert "/env_4" not in nodes


def test_environments_stand_in_rows_around_the_origin() -> None:
    # Three in rows of two, 2 m apart in x and 3 m in y.
    assert places_in_grid(3, (2.0, 3.0)).tolist() == [[-1, -1.5, 0], [1, -1.5, 0], [-1, 1.5, 0]]
    assert places_in_grid(1, (2.0, 3.0)).tolist() == [[0, 0, 0]]


def test_body_is_at_its_pose_in_its_environments_place(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    # What is seen reaches from (-0.1, -0.2) to (1.1, 1.1): with 0.6 m between neighbours, an environment takes 1.8 m in
    # x and 1.9 m in y, and has its middle at (0.5, 0.45). The second one's is at (0.9, -0.95).
    assert scene.places[1] == pytest.approx([0.9 - 0.5, -0.95 - 0.45, 0], abs=1e-6)
    assert nodes["/env_1"].position == pytest.approx(scene.places[1])
    pose = torch.tensor([[0.5, -0.25, 2.0, 0.0, 1.0, 0.0, 0.0]])
    sim.get_rigid_object("box").set_local_pose(pose, torch.tensor([1]))
    scene.update()
    box = body_frame(nodes, sim, 1, "box")
    assert box.position == pytest.approx([0.5, -0.25, 2.0])
    assert np.abs(box.wxyz) == pytest.approx([0, 1, 0, 0])
    assert body_frame(nodes, sim, 0, "box").position == pytest.approx([1, 0, 0.3])


def test_only_what_has_moved_is_sent(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    before = {name: node.moves for name, node in nodes.items()}
    scene.update()
    assert {name: node.moves for name, node in nodes.items()} == before
    sim.get_marker("goal").set_pos(torch.tensor([[0.0, 1.0, 0.1], [0.0, 1.0, 0.1], [0.0, 1.2, 0.1]]))
    scene.update()
    moved = {name for name, node in nodes.items() if node.moves != before[name]}
    assert moved == {body_frame(nodes, sim, 2, "goal").name}


def test_followed_body_stays_in_place_and_the_ground_moves(sim: SimulationManager) -> None:
    box = sim.get_rigid_object("box")
    scene, nodes = scene_of(sim, box)
    # The body's box is as large in x and y as before, with 2.5 m around it; its middle is 0.5 m left of the body.
    assert scene.places[1] - scene.places[0] == pytest.approx([1.2 + 2.5, 0, 0])
    pose = torch.tensor([[7.2, 2.9, 0.3, 1.0, 0.0, 0.0, 0.0]])
    box.set_local_pose(pose, torch.tensor([1]))
    scene.update()
    assert nodes["/env_1"].position + pose[0, :3].numpy() == pytest.approx(scene.places[1] + [0, 0, 0.3])
    (ground,) = (key.removesuffix("/grid") for key in nodes if key.startswith("/env_1/") and key.endswith("/grid"))
    assert nodes[ground].position == pytest.approx([7.2, 2.9, 0])
    # Lines every 0.5 m, at 7.0 and 2.5 m of the environment.
    assert nodes[f"{ground}/grid"].position[:2] == pytest.approx([-0.2, -0.4])
    scene.follows = False
    box.set_local_pose(torch.tensor([[9.0, 9.0, 0.3, 1.0, 0.0, 0.0, 0.0]]), torch.tensor([1]))
    before = nodes["/env_1"].position.copy()
    scene.update()
    assert nodes["/env_1"].position == pytest.approx(before)


def test_view_climbs_a_terrain_slowly_with_the_first_robot(tmp_path: Path) -> None:
    env = ball_env(tmp_path, num_envs=2)
    env.reset()
    ball = env.robot
    scene, nodes = scene_of(env.sim, ball)
    first = ball.get_local_pose()[0].clone()
    assert nodes["/env_1"].position == pytest.approx(scene.places[0] - first[:3].numpy(), abs=1e-5)
    ball.set_local_pose((first + torch.tensor([1.0, 0, 1.0, 0, 0, 0, 0]))[None], torch.tensor([0]))
    scene.update()
    moved = scene.places[0] - first[:3].numpy() - [1.0, 0.0, 0.05]  # a twentieth of the height
    assert nodes["/env_0"].position == pytest.approx(moved, abs=1e-5)
    assert nodes["/env_1"].position == pytest.approx(moved, abs=1e-5)


def test_contacts_and_the_number_of_environments_are_chosen(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    scene.update()
    pose = torch.tensor([[1.0, 0.0, 0.2999, 1.0, 0.0, 0.0, 0.0]])
    sim.get_rigid_object("box").set_local_pose(pose, torch.tensor([1]))
    scene.count, scene.shows_contacts = 2, True
    scene.update()
    assert [nodes[f"/env_{i}"].visible for i in range(3)] == [True, True, False]
    assert len(nodes["/env_2/contacts"].points) == 0
    points = nodes["/env_1/contacts"].points.astype(float).round(3)
    corners = {(x, y) for x, y, _ in points.tolist()}
    assert corners == {(0.9, -0.2), (0.9, 0.2), (1.1, -0.2), (1.1, 0.2)}
    scene.count, scene.shows_contacts = 3, False
    scene.update()
    assert len(nodes["/env_1/contacts"].points) == 0


def test_new_colour_is_drawn_where_it_is_new(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    before = dict(nodes)
    sim.appearance.set_color("box", torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([2]))
    scene.update()
    name = f"{body_frame(nodes, sim, 2, 'box').name}/geom_{sim.backend.visual_model.geom('box').id}"
    assert {key for key, node in nodes.items() if node is not before[key]} == {name}
    props: Any = nodes[name]
    assert props.color == (0, 0, 255)
    sim.appearance.set_color("box", torch.zeros(1, 4), torch.tensor([2]))
    scene.update()
    assert name not in nodes


def test_cloth_and_tendon_move_with_their_environment(tmp_path: Path) -> None:
    sim = soft_sim(tmp_path)
    scene, nodes = scene_of(sim)
    cloth: Any = nodes["/env_1/flex_0"]
    cord: Any = nodes["/env_1/tendon_0"]
    assert (len(cloth.vertices), cloth.faces.shape, cloth.color) == (9, (8, 3), (0, 0, 255))
    assert (cord.thickness, cord.colors) == (0.04, (0, 255, 0))
    shift_soft(sim)
    scene.update()
    assert cloth.vertices[:, 1].max() == pytest.approx(0.3 + 0.1 + 0.1)  # the middle, half of the edge, the shift
    assert cord.points[0] == pytest.approx(np.array([[0, -0.3, 1.3], [0, -0.3, 1.1]]))
    still: Any = nodes["/env_0/tendon_0"]
    assert still.points[0, 1] == pytest.approx([0, -0.3, 0.9])


@pytest.mark.parametrize(
    ("kind", "shape", "points"),
    [
        ('dim="1" count="4 1 1" radius=".01"', "add_line_segments", (3, 2, 3)),  # three edges
        ('dim="3" count="2 2 2"', "add_mesh_simple", (8, 3)),  # a cube: twelve triangles of its surface
        ('dim="3" count="4 4 4" dof="trilinear"', "add_mesh_simple", (64, 3)),
    ],
)
def test_flexes_are_lines_or_surfaces(kind: str, shape: str, points: tuple[int, ...]) -> None:
    text = (
        f'<mujoco><worldbody><flexcomp name="f" type="grid" spacing=".1 .1 .1" mass="1" {kind}/></worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ((name, call, props),) = soft_shapes(model, data)
    assert (name, call) == ("flex_0", shape)
    assert props["points" if call == "add_line_segments" else "vertices"].shape == points
    if points == (8, 3):
        assert props["faces"].shape == (12, 3)


ENDLESS = np.array([[-1.0, -2.0], [3.0, 4.0]])
TETRAHEDRON = '<mesh name="t" vertex="0 0 0  1 0 0  0 1 0  0 0 1" inertia="exact"/>'


def compiled(geoms: str, asset: str = "") -> mujoco.MjModel:
    body = f'<body name="b" pos="5 0 0">{geoms}</body>'
    return mujoco.MjModel.from_xml_string(f"<mujoco><asset>{asset}</asset><worldbody>{body}</worldbody></mujoco>")


def nodes_of(geom: str, asset: str = "") -> dict[str, Any]:
    """Return the nodes of the first geom of a body, by name."""
    model, recorder = compiled(f"<geom {geom}/>", asset), Recorder()
    add_geom(recorder, "g", model, 0, geom_looks(model, texture_colours(model))[0], ENDLESS)
    return recorder.nodes


@pytest.mark.parametrize(
    ("geom", "call", "props"),
    [
        ('type="box" size="0.1 0.2 0.3"', "add_box", {"dimensions": [0.2, 0.4, 0.6]}),
        ('type="sphere" size="0.5"', "add_icosphere", {"radius": 0.5}),
        ('type="ellipsoid" size="0.1 0.2 0.3"', "add_icosphere", {"scale": [0.1, 0.2, 0.3]}),
        ('type="cylinder" size="0.5 0.2"', "add_cylinder", {"radius": 0.5, "height": 0.4}),
    ],
)
def test_geom_has_its_size_pose_and_colour(geom: str, call: str, props: dict[str, Any]) -> None:
    (node,) = nodes_of(f'{geom} pos="1 2 3" quat="0 1 0 0" rgba="1 0 0 0.5"').values()
    assert (node.call, node.color, node.opacity) == (call, (255, 0, 0), 0.5)
    assert node.position == pytest.approx([1, 2, 3])
    assert node.wxyz == pytest.approx([0, 1, 0, 0])
    for name, value in props.items():
        assert getattr(node, name) == pytest.approx(value)


def test_capsule_is_a_cylinder_between_two_balls() -> None:
    nodes = nodes_of('type="capsule" size="0.5 0.2"')
    assert (nodes["g/side"].height, nodes["g/upper"].radius) == (0.4, 0.5)
    assert [nodes[f"g/{end}"].position[2] for end in ("upper", "lower")] == [0.2, -0.2]


def test_mesh_is_where_its_file_has_it() -> None:
    # The engine keeps it around its centre of mass and along its axes of inertia.
    (node,) = nodes_of('type="mesh" mesh="t" pos="0 0 1"', TETRAHEDRON).values()
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, node.wxyz)
    vertices = node.vertices @ rotation.reshape(3, 3).T + node.position
    assert vertices.min(axis=0) == pytest.approx([0, 0, 1], abs=1e-6)
    assert vertices.max(axis=0) == pytest.approx([1, 1, 2], abs=1e-6)
    a, b, c = (vertices[node.faces[:, i]] for i in range(3))
    assert (a * np.cross(b, c)).sum() / 6 == pytest.approx(1 / 6)  # its volume: the triangles are seen from outside


def test_endless_plane_is_cut_off() -> None:
    (node,) = nodes_of('type="plane" size="0.5 0 1"').values()
    assert node.vertices.min(axis=0) == pytest.approx([-0.5, -2, 0])
    assert node.vertices.max(axis=0) == pytest.approx([0.5, 4, 0])


def test_colour_is_the_geoms_else_its_materials() -> None:
    asset = """
        <texture name="t" type="2d" builtin="checker" width="8" height="8" rgb1="1 1 1" rgb2="0 0.2 1"/>
        <material name="plain" rgba="0.2 0.4 0.6 1"/>
        <material name="checked" texture="t" rgba="0.5 1 1 1"/>
    """
    ball = 'type="sphere" size="1"'
    model = compiled(
        f'<geom {ball} material="plain"/><geom {ball} material="plain" rgba="1 0 0 1"/>'
        f'<geom {ball} material="checked"/><geom {ball}/>',
        asset,
    )
    looks = geom_looks(model, texture_colours(model))
    assert looks[:, :4] == pytest.approx(
        np.array([[0.2, 0.4, 0.6, 1], [1, 0, 0, 1], [0.25, 0.6, 1, 1], [0.5, 0.5, 0.5, 1]]), abs=0.005
    )


def test_box_around_visible_geoms_leaves_out_planes() -> None:
    model = compiled('<geom type="box" size="0.1 0.2 0.3" euler="0 0 90"/><geom type="plane" size="0 0 1"/>')
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    low, high = seen_box(model, data, geom_looks(model, texture_colours(model)))
    # The body is at x = 5; the origin is in the box, too.
    assert low == pytest.approx([0, -0.1, -0.3])
    assert high == pytest.approx([5.2, 0.1, 0.3])


@pytest.mark.e2e
@pytest.mark.parametrize("enable_rt", [pytest.param(False, marks=needs_gl), pytest.param(True, marks=needs_warp)])
def test_images_from_above_have_the_terrains_heights(enable_rt: bool) -> None:
    sim = SimulationManager(SimulationManagerCfg(num_threads=1, enable_rt=enable_rt))
    sim.add_terrain(terrain_cfg())
    above = ExtrinsicsCfg(eye=(0.0, -2.0, 5.0), target=(0.0, -2.0, 0.0), up=(0.0, 1.0, 0.0))
    lens: dict[str, Any] = {"width": 48, "height": 48, "intrinsics": (60.0, 60.0, 24.0, 24.0), "far": 20.0}
    sim.add_sensor(CameraCfg("above", extrinsics=above, enable_depth=True, enable_mask=True, **lens))
    sim.build()
    images = sim.get_sensor("above").get_data()
    depth = images["depth"][0].squeeze(-1)
    offset = (torch.arange(48) + 0.5 - 24.0) / 60.0
    # x grows with the column, y against the row.
    xy = torch.stack((offset.expand(48, 48) * depth, -2.0 - offset[:, None].expand(48, 48) * depth), dim=-1)
    assert sim.terrain is not None
    error = (5.0 - depth - sim.terrain.height_at(xy)).abs()
    assert float(error.max()) < 0.02
    assert float(depth[24, 24]) == pytest.approx(4.7, abs=1e-3)
    assert (images["mask"] == 1).all()  # the ground
    sim.close()


def test_height_fields_mesh_is_its_collision_surface() -> None:
    sim = simulate(terrain=terrain_cfg(border=0.0, kinds=[{"kind": "rough", "amplitude": [0.1, 0.1]}]))
    assert sim.terrain is not None
    model = sim.backend.visual_model
    recorder: Any = Recorder()
    add_geom(recorder, "g", model, 0, geom_looks(model, texture_colours(model))[0], ENDLESS)
    light, dark = recorder.nodes.values()  # squares of two shades
    assert dark.color < light.color
    faces = np.concatenate([light.faces, dark.faces])
    assert faces.shape == (2 * 48 * 32, 3)
    corners = torch.from_numpy(light.vertices + light.position).float()[torch.from_numpy(faces)]  # [F, 3, 3]
    middles = corners.mean(dim=1)
    torch.testing.assert_close(sim.terrain.height_at(middles[:, :2]), middles[:, 2], atol=1e-5, rtol=0.0)
    normals = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (normals[:, 2] > 0).all()  # seen from above


def test_live_view_has_one_terrain_with_all_robots_on_it(tmp_path: Path) -> None:
    env = ball_env(tmp_path, num_envs=3)
    env.reset()
    scene, nodes = scene_of(env.sim)
    body = mujoco.mj_name2id(env.sim.backend.visual_model, mujoco.mjtObj.mjOBJ_BODY, "ball/arm")

    def position(env_id: int) -> np.ndarray:
        robot: Node = nodes[f"/env_{env_id}/body_{body}"]
        return nodes[f"/env_{env_id}"].position + robot.position

    # The first robot is in the middle of the page; the others are on the same ground, as far from it as they are.
    assert position(0)[:2] == pytest.approx([0.0, 0.0], abs=0.2)
    offsets = env.robot.get_local_pose()[:, :3] - env.robot.get_local_pose()[:1, :3]
    for env_id in range(3):
        np.testing.assert_allclose(position(env_id) - position(0), offsets[env_id].numpy(), atol=1e-5)
    assert {name.split("/")[1] for name in nodes if "/body_0/" in name} == {"env_0"}
    assert len(scene.places) == 3
