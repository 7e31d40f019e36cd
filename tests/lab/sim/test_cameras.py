"""Images are [N, H, W, ...]; a pixel is (u, v): column, row."""

from typing import Any

import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import CameraCfg, ExtrinsicsCfg, LightCfg, RigidObjectCfg, SensorCfg, StereoCameraCfg
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from embodichain.utils import ConfigError, configclass, from_dict
from tests.lab.scenes import needs_gl, ur10, without_opengl

pytestmark = pytest.mark.e2e


# At (2, 0, 1), looking along -x: right in the image is +y, down is -z. fx is not fy, and (cx, cy) is not the middle.
VIEW: dict[str, Any] = {
    "width": 96,
    "height": 64,
    "intrinsics": (80.0, 60.0, 40.0, 30.0),
    "extrinsics": ExtrinsicsCfg(eye=(2, 0, 1), target=(0, 0, 1)),
}
BALL = RigidObjectCfg("ball", shape=SphereCfg(radius=0.06), rgba=(1, 0, 0, 1), body_type="kinematic")
WALL = RigidObjectCfg(
    "wall", shape=CubeCfg(size=(0.2, 9, 9)), rgba=(0, 0, 1, 1), body_type="static", init_pos=(-1.1, 0, 0)
)


@configclass
class SensorList:
    """A block of a config."""

    sensor: list[SensorCfg] = []


def scene(*cfgs: Any, num_envs: int = 2, threads: int = 2) -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=num_envs, num_threads=threads))
    for cfg in cfgs:
        sim.add(cfg)
    sim.build()
    return sim


def place(sim: SimulationManager, *ball: tuple[float, float, float]) -> None:
    pose = torch.zeros(len(ball), 7)
    pose[:, :3], pose[:, 3] = torch.tensor(ball), 1.0
    sim.get_rigid_object("ball").set_local_pose(pose)


def centre(is_there: torch.Tensor) -> tuple[float, float]:
    rows, columns = np.nonzero(is_there.numpy())
    assert len(rows) > 5
    return float(columns.mean()), float(rows.mean())


def red(image: torch.Tensor) -> torch.Tensor:
    color = image.int()
    return color[..., 0] > 2 * color[..., 1:].amax(dim=-1) + 30


@needs_gl
@pytest.mark.parametrize("threads", [1, 3])
def test_each_env_has_its_own_image_at_any_thread_count(threads: int) -> None:
    sim = scene(BALL, CameraCfg("cam", **VIEW), num_envs=4, threads=threads)
    place(sim, *[(0.0, y, 1.25) for y in (0.5, -0.5, 0.25, 0.0)])
    color = sim.get_sensor("cam").get_data()["color"]
    assert (color.shape, color.dtype) == ((4, 64, 96, 3), torch.uint8)
    # depth 2: u = 40 + 80 y / 2, v = 30 - 60 * 0.25 / 2 = 22.5
    for image, u in zip(color, (60, 20, 50, 40), strict=True):
        assert centre(red(image)) == pytest.approx((u, 22.5), abs=1)
    sim.close()


@needs_gl
def test_depth_is_along_the_view_and_mask_names_entities() -> None:
    sim = scene(BALL, WALL, CameraCfg("cam", **VIEW, enable_color=False, enable_depth=True, enable_mask=True, far=30.0))
    place(sim, (0.0, 0.5, 1.25), (0.0, -9.0, 1.0))
    camera = sim.get_sensor("cam")
    data = camera.get_data()
    assert set(data) == {"depth", "mask"}
    depth, mask = data["depth"], data["mask"]
    assert (depth.shape, depth.dtype) == ((2, 64, 96), torch.float32)
    assert (mask.shape, mask.dtype) == ((2, 64, 96), torch.int32)
    # the wall's face is at x = -1, 3 m away, also at the image's edge; the ball's nearest point 2 - 0.06 m
    assert depth[1, 0].sub(3.0).abs().max() < 0.01
    assert depth[0, :45].min().item() == pytest.approx(1.94, abs=0.02)
    numbers = camera.mask_numbers
    assert centre(mask[0] == numbers["ball"]) == pytest.approx((60, 22.5), abs=1)
    assert not (mask[1] == numbers["ball"]).any()
    assert (mask[1] == numbers["wall"]).float().mean() > 0.5
    # the ground meets the wall 1 m below the eye: v = 30 + 60 / 3 = 50
    assert (mask[1, 52:] == numbers["ground"]).all()
    sim.close()


@needs_gl
def test_sky_is_as_far_as_can_be_seen_and_nothing_in_the_mask() -> None:
    up = ExtrinsicsCfg(eye=(0, 0, 1), target=(0, 0, 2), up=(1, 0, 0))
    sim = scene(CameraCfg("cam", width=32, height=32, extrinsics=up, far=30.0, enable_depth=True, enable_mask=True))
    data = sim.get_sensor("cam").get_data()
    assert data["depth"].min().item() == pytest.approx(30.0, rel=1e-3)
    assert (data["mask"] == 0).all()
    sim.close()


@needs_gl
def test_camera_rides_on_a_link() -> None:
    robot = ur10(uid="ur")
    hand = ExtrinsicsCfg(parent="ee_link", pos=(0.0, 0.1, 0.2), quat=(0.0, 1.0, 0.0, 0.0))
    sim = scene(robot, BALL, CameraCfg("cam", width=64, height=64, intrinsics=(64, 64, 32, 32), extrinsics=hand))
    camera, arm = sim.get_sensor("cam"), sim.get_robot("ur")
    flange = arm.compute_fk(arm.get_qpos())
    offset = torch.eye(4)
    # a quaternion of x alone: half a turn about x
    offset[1, 1] = offset[2, 2] = -1.0
    offset[:3, 3] = torch.tensor([0.0, 0.1, 0.2])
    assert torch.allclose(camera.get_arena_pose(to_matrix=True), flange @ offset, atol=1e-5)
    # the view's direction is the flange's z: what lies on it is in the image's middle
    ahead = flange @ torch.tensor([0.0, 0.1, 0.7, 1.0])
    place(sim, *ahead[:, :3].tolist())
    assert centre(red(camera.get_data()["color"][0])) == pytest.approx((31.5, 31.5), abs=1)
    arm.set_qpos(arm.get_qpos() + torch.tensor([0.3, 0, 0, 0, 0, 0]), target=False)
    place(sim, *((arm.compute_fk(arm.get_qpos()) @ torch.tensor([0.0, 0.1, 0.7, 1.0]))[:, :3].tolist()))
    assert centre(red(camera.get_data()["color"][0])) == pytest.approx((31.5, 31.5), abs=1)
    sim.close()


@needs_gl
def test_only_what_has_changed_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = scene(BALL, CameraCfg("cam", **VIEW), num_envs=3)
    camera = sim.get_sensor("cam")
    drawn: list[list[int]] = []
    drawer = sim._drawer()
    draw = drawer.draw

    def record(shot: Any, ids: list[int]) -> None:
        drawn.append(ids)
        draw(shot, ids)

    monkeypatch.setattr(drawer, "draw", record)
    first = camera.get_data()["color"]
    camera.get_data()
    one = torch.tensor([1])
    sim.get_rigid_object("ball").set_local_pose(torch.tensor([[0.0, 0.0, 1.0, 1, 0, 0, 0]]), one)
    second = camera.get_data()["color"]
    camera.set_intrinsics(torch.tensor([[90.0, 90, 48, 32]]), torch.tensor([2]))
    camera.get_data()
    sim.appearance.set_color("ball", torch.tensor([[0.0, 1, 0, 1]]), torch.tensor([0]))
    camera.get_data()
    sim.get_rigid_object("ball").physics.set_body_scale(torch.tensor([[2.0, 2.0, 2.0]]), one)
    third = camera.get_data()["color"]
    assert drawn == [[0, 1, 2], [1], [2], [0], [1]]
    assert red(third[1]).sum() > 2 * red(second[1]).sum()
    assert [torch.equal(a, b) for a, b in zip(first, second, strict=True)] == [True, False, True]
    sim.close()


@needs_gl
def test_colours_and_lights_differ_between_environments() -> None:
    sun = LightCfg("lamp", light_type="direction", direction=(-1, 0, 0), intensity=0.0)
    sim = scene(BALL, sun, CameraCfg("cam", **VIEW))
    place(sim, (0.0, 0.0, 1.0), (0.0, 0.0, 1.0))
    camera, one = sim.get_sensor("cam"), torch.tensor([1])
    dark = camera.get_data()["color"][:, 30, 40].int()
    sim.get_light("lamp").set_intensity(torch.tensor([100.0]), one)
    lit = camera.get_data()["color"][:, 30, 40].int()
    assert torch.equal(lit[0], dark[0])
    assert lit[1, 0] > dark[1, 0] + 50
    sim.appearance.set_color("ball", torch.tensor([[0.0, 1.0, 0.0, 1.0]]), one)
    green = camera.get_data()["color"][:, 30, 40].int()
    assert torch.equal(green[0], dark[0])
    assert green[1, 1] > 2 * green[1, 0]
    sim.close()


def test_colours_keep_the_opacity_and_grey_is_no_material() -> None:
    sim = scene(BALL)
    sim.appearance.set_color("ground", torch.tensor([[0.5, 0.5, 0.5, 1.0]]))
    ground = sim.appearance.read("geom_rgba")[:, sim.backend.visual_model.geom_bodyid == 0]
    assert ground == pytest.approx(np.broadcast_to((0.5, 0.5, 0.5, 1.0), ground.shape), abs=1e-3)
    assert not (ground == (0.5, 0.5, 0.5, 1.0)).all(axis=-1).any()
    sim.appearance.set_color("ball", torch.tensor([[0.0, 1.0, 0.0, 0.25]]))
    (ball,) = np.flatnonzero(sim.appearance.read("geom_rgba")[0, :, 3] == 0.25)  # it is configured as opaque
    sim.appearance.set_color("ball", torch.tensor([[0.5, 0.5, 0.5]]))
    assert sim.appearance.read("geom_rgba")[0, ball, 3] == 1.0
    sim.close()


@needs_gl
def test_stereo_disparity_is_the_shift_between_the_images() -> None:
    view = VIEW | {"intrinsics": (80.0, 80.0, 48.0, 32.0)}
    stereo = StereoCameraCfg(
        "cam",
        **view,
        intrinsics_right=(80.0, 80.0, 48.0, 32.0),
        left_to_right_pos=(0.2, 0, 0),
        enable_depth=True,
        enable_disparity=True,
    )
    sim = scene(BALL, WALL, stereo)
    place(sim, (0.0, 0.0, 1.0), (0.0, 0.0, 1.0))
    data = sim.get_sensor("cam").get_data()
    assert set(data) == {"color", "depth", "color_right", "depth_right", "disparity"}
    left, right = centre(red(data["color"][0])), centre(red(data["color_right"][0]))
    # 80 * 0.2 / 2 = 8 pixels at the ball, 80 * 0.2 / 3 = 5.3 at the wall
    assert left[0] - right[0] == pytest.approx(8.0, abs=0.5)
    assert data["disparity"][0, 32, 48].item() == pytest.approx(8.0, abs=0.3)
    assert data["disparity"][0, 0, 0].item() == pytest.approx(16 / 3, abs=0.05)
    sim.close()


def test_lens_that_is_left_out_sees_the_middle_with_both_eyes() -> None:
    left, right = {"width": 96, "height": 64}, {"intrinsics": (80.0, 60.0, 40.0, 30.0), "width": 96, "height": 64}
    sim = scene(StereoCameraCfg("a", **left), StereoCameraCfg("b", **right))  # type: ignore[arg-type]
    for uid, lens in (("a", [80, 80, 48, 32]), ("b", [80, 60, 40, 30])):
        camera: Any = sim.get_sensor(uid)
        for matrix in (camera.get_intrinsics()[0], camera.right.get_intrinsics()[0]):
            assert matrix[[0, 1, 0, 1], [0, 1, 2, 2]].tolist() == lens
    sim.close()


def test_intrinsics_and_poses_are_read_and_written() -> None:
    sim = scene(CameraCfg("cam", **VIEW))
    camera, one = sim.get_sensor("cam"), torch.tensor([1])
    expected = torch.tensor([[80.0, 0, 40], [0, 60, 30], [0, 0, 1]])
    assert torch.equal(camera.get_intrinsics(), expected.repeat(2, 1, 1))
    camera.set_intrinsics(expected[None] * 2.0, one)
    assert camera.get_intrinsics()[:, 0, 0].tolist() == [80.0, 160.0]
    # looks along -x with z up: its x axis is +y, its y axis +z, its z axis +x
    axes = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
    pose = camera.get_arena_pose(to_matrix=True)
    assert torch.allclose(pose[0, :3, :3], axes, atol=1e-6)
    assert pose[0, :3, 3].tolist() == [2, 0, 1]
    camera.set_local_pose(torch.tensor([[1.0, 2, 3, 1, 0, 0, 0]]), one)
    assert camera.get_local_pose()[1].tolist() == pytest.approx([1, 2, 3, 1, 0, 0, 0])
    assert camera.get_local_pose()[0, :3].tolist() == [2, 0, 1]


def test_images_without_opengl_are_an_error_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    without_opengl(monkeypatch)
    sim = scene(CameraCfg("cam", **VIEW))
    problem = r"sensor 'cam': its images are needed, but .* OpenGL .* apt-get install .*pip install .*'mujoco-warp"
    with pytest.raises(ConfigError, match=problem):
        sim.get_sensor("cam").get_data()
    sim.close()


@pytest.mark.parametrize(
    ("parent", "problem"),
    [
        ("ee_lnk", r"unknown link or site 'ee_lnk'.*Known: .*ur/tool0"),
        ("tool0", r"'tool0' may be any of ur/tool0, vr/tool0"),
    ],
)
def test_parent_must_be_one_link(parent: str, problem: str) -> None:
    robots = [ur10(uid="ur"), ur10(uid="vr", init_pos=(0.0, 3.0, 0.0))]
    with pytest.raises(ConfigError, match=problem):
        scene(*robots, CameraCfg("cam", extrinsics=ExtrinsicsCfg(parent=parent)))
    sim = scene(*robots, CameraCfg("cam", extrinsics=ExtrinsicsCfg(parent="vr/tool0")), num_envs=1)
    assert sim.get_sensor("cam").get_arena_pose()[0, 1].item() == pytest.approx(
        sim.get_robot("ur").get_eef_pose()[0, 1, 3].item() + 3.0, abs=1e-4
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"extrinsics": {"eye": [1, 0, 0]}}, "eye and target belong together"),
        ({"extrinsics": {"eye": [1, 0, 1], "target": [1, 0, 0]}}, "must not be zero or along up"),
        ({"extrinsics": {"quat": [0, 0, 0, 0]}}, "quat must not be zero"),
        ({"near": 2.0, "far": 1.0}, "near must be less than far"),
        (
            {"width": 64, "intrinsics": [600, 600, 320, 240]},
            r"cx, cy must be inside 64 x 480 pixels, got \(320.0, 240.0\)",
        ),
        ({"sensor_type": "StereoCamera", "intrinsics_right": [60, 60, 32, 481]}, "intrinsics_right: cx, cy must be"),
        ({"sensor_type": "StereoCamera", "enable_disparity": True}, "enable_disparity needs enable_depth"),
    ],
)
def test_camera_that_cannot_be_is_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_dict(SensorList, {"sensor": [{"uid": "cam"} | data]}, "")
