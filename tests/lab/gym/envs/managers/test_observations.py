"""Every observation term by hand. Shapes: N = 2 environments."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import observations
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, ObservationCfg, SceneEntityCfg
from embodichain.lab.gym.envs.managers.observations import (
    ExteroceptionSource,
    ObservationManager,
    compute_exteroception,
    compute_semantic_mask,
    get_sensor_intrinsics,
    get_sensor_pose_in_robot_frame,
)
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.sim.sensors import Camera
from embodichain.utils import ConfigError
from embodichain.utils.observations import flatten_dict_observation
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import BOX, CART, cart_cfg, env_of, needs_gl

CUBE = SceneEntityCfg("cube")
HALF = math.sqrt(0.5)


@pytest.fixture(scope="module")
def env() -> EmbodiedEnv:
    env = env_of(PUSH_CUBE, 2)
    env.reset(seed=1)
    return env


def test_pose_is_a_matrix_or_seven_numbers(env: EmbodiedEnv) -> None:
    pose = torch.tensor([[1.0, 2, 3, 1, 0, 0, 0], [4.0, 5, 6, HALF, 0, 0, HALF]])
    env.sim.get_rigid_object("cube").set_local_pose(pose)
    torch.testing.assert_close(observations.get_rigid_object_pose(env, CUBE, to_matrix=False), pose)
    matrices = observations.get_rigid_object_pose(env, CUBE)
    # env 1: a quarter turn about z
    expected = torch.tensor([[0.0, -1, 0, 4], [1, 0, 0, 5], [0, 0, 1, 6], [0, 0, 0, 1]])
    torch.testing.assert_close(matrices[1], expected, atol=1e-6, rtol=0)
    assert torch.equal(observations.get_object_pose(env, CUBE), matrices)


def test_velocity_is_in_the_world_frame(env: EmbodiedEnv) -> None:
    cube = env.sim.get_rigid_object("cube")
    cube.set_local_pose(torch.tensor([[0.0, 0, 1, HALF, 0, 0, HALF]]).expand(2, 7))
    # MuJoCo keeps the spin in the body's frame: about the body's x axis, which is the world's y axis here.
    first = int(env.sim.model.joint("cube").dofadr[0])
    env.sim.backend.write("qvel", slice(first, first + 6), torch.tensor([[1.0, 2, 3, 4, 0, 0]]))
    velocity = observations.get_rigid_object_velocity(env, CUBE)
    torch.testing.assert_close(velocity, torch.tensor([[1.0, 2, 3, 0, 4, 0]]).expand(2, 6), atol=1e-6, rtol=0)


def test_tool_pose_is_a_matrix_or_seven_numbers(env: EmbodiedEnv) -> None:
    env.robot.set_qpos(torch.zeros(2, 6), name="arm", target=False)
    pose = observations.get_robot_eef_pose(env, part_name="arm")
    # At zero the flange is at (-0.612 - 0.5723, -0.163941 - 0.0922, 0.1273 - 0.1157), its z axis along -y; the tool is
    # 0.16 m further.
    expected = torch.tensor([-1.1843, -0.256141 - 0.16, 0.0116])
    torch.testing.assert_close(pose[0, :3, 3], expected, atol=1e-5, rtol=0)
    seven = observations.get_robot_eef_pose(env, part_name="arm", to_matrix=False)
    # its x axis stays, z goes to -y: a quarter turn about x
    torch.testing.assert_close(seven[0], torch.cat((expected, torch.tensor([HALF, HALF, 0, 0]))), atol=1e-5, rtol=0)


def test_target_position_is_that_of_the_named_pose(env: EmbodiedEnv) -> None:
    pose = torch.eye(4).repeat(2, 1, 1)
    pose[:, :3, 3] = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    env.elsewhere = pose  # type: ignore[attr-defined]
    assert observations.target_position(env, "elsewhere").tolist() == [[1, 2, 3], [4, 5, 6]]


def test_offsets_lead_from_tool_and_target_to_the_body(env: EmbodiedEnv) -> None:
    poses = torch.tensor([[1.0, 2, 3, 1, 0, 0, 0], [4.0, 5, 6, 1, 0, 0, 0]])
    env.sim.get_rigid_object("cube").set_local_pose(poses)
    env.elsewhere = torch.eye(4).repeat(2, 1, 1)  # type: ignore[attr-defined]
    env.elsewhere[:, :3, 3] = torch.tensor([[1.0, 1, 1], [2, 2, 2]])  # type: ignore[attr-defined]
    assert observations.offset_from_target(env, CUBE, "elsewhere").tolist() == [[0, 1, 2], [2, 3, 4]]
    tool = observations.get_robot_eef_pose(env, position_only=True)
    torch.testing.assert_close(observations.offset_from_eef(env, CUBE), poses[:, :3] - tool)


def test_joint_data_are_minus_one_and_one_at_the_limits(env: EmbodiedEnv) -> None:
    limits = env.robot.body_data.qpos_limits[0]
    params: dict[str, Any] = {"joint_ids": [0, 2, 6]}
    term = observations.normalize_robot_joint_data(FunctorCfg(func="", params=params), env)
    data = torch.stack((limits[:, 0], limits[:, 1]))
    result = term(env, data, **params)
    expected = data.clone()
    expected[0, [0, 2, 6]], expected[1, [0, 2, 6]] = -1.0, 1.0  # the others stay as they are
    torch.testing.assert_close(result, expected)
    middle = limits.mean(dim=1).expand(2, 8)
    torch.testing.assert_close(term(env, middle, **params)[:, [0, 2, 6]], torch.zeros(2, 3), atol=1e-6, rtol=0)


# --- the manager ------------------------------------------------------------------------------------------------------


def halve(env: EmbodiedEnv, data: torch.Tensor) -> torch.Tensor:
    return data / 2


def ones(env: EmbodiedEnv) -> torch.Tensor:
    return torch.ones(env.num_envs, 1)


def test_terms_are_added_and_modified_in_the_order_of_the_config() -> None:
    terms = {
        "first": {"func": ones, "name": "own/one"},
        "half": {"func": halve, "mode": "modify", "name": "own/one"},
        "again": {"func": halve, "mode": "modify", "name": "own/one"},
        "plain": {"func": ones},
    }
    env = EmbodiedEnv(cart_cfg(2, {"observations": terms}))
    obs, _ = env.reset()
    assert obs["own", "one"].tolist() == [[0.25], [0.25]]
    assert obs["plain"].tolist() == [[1.0], [1.0]]
    assert obs["robot", "qpos"].shape == (2, 2)


def test_pose_of_any_thing_is_that_of_its_base(env: EmbodiedEnv) -> None:
    robot = SceneEntityCfg("Manipulator")
    assert observations.get_object_pose(env, robot, to_matrix=False).tolist() == [[0, 0, 0, 1, 0, 0, 0]] * 2
    assert torch.equal(observations.get_object_pose(env, robot), torch.eye(4).expand(2, 4, 4))


def test_subclass_of_a_normalisation_has_parameters_of_its_own() -> None:
    class Scaled(observations.normalize_robot_joint_data):
        def __call__(self, env: Any, data: torch.Tensor, factor: float = 1.0) -> torch.Tensor:  # type: ignore[override]
            return factor * super().__call__(env, data)

    env = EmbodiedEnv(cart_cfg(1))
    params = {"factor": 2.0}
    # The cart's limits are -4, 4; the pole has none.
    assert Scaled(FunctorCfg("", params), env)(env, torch.tensor([[2.0, 1.0]]), **params).tolist() == [[1.0, 2.0]]


def test_normalised_range_may_be_another_one_and_of_velocities() -> None:
    robot = {**CART, "drive_pros": {**CART["drive_pros"], "max_velocity": {"slider_to_cart": 2.0}}}
    env = EmbodiedEnv(cart_cfg(2, robot=robot))
    data = torch.tensor([[-4.0, 1.0], [2.0, 1.0]])
    # The cart's limits -4, 4 become 0, 1; the pole has none.
    term = observations.normalize_robot_joint_data(FunctorCfg("", {"range": [0.0, 1.0]}), env)
    assert term(env, data).tolist() == [[0.0, 1.0], [0.75, 1.0]]
    # Velocities from -2, 2 to 0, 10: 5 + 2.5 v
    params = {"range": [0.0, 10.0], "limit": "qvel_limits"}
    term = observations.normalize_robot_joint_data(FunctorCfg("", params), env)
    assert term(env, data / 2).tolist() == [[0.0, 0.5], [7.5, 0.5]]
    with pytest.raises(ConfigError, match="needs an entry of all 2 joints, got one of 1 numbers"):
        term(env, data[:, :1])


def test_numbers_of_things_are_those_of_the_scene(env: EmbodiedEnv) -> None:
    number = env.sim.model.body("cube").id
    assert observations.get_object_uid(env, CUBE).tolist() == [number] * 2
    assert observations.get_object_uid(env, CUBE).dtype == torch.int32
    links = observations.get_object_uid(env, SceneEntityCfg("Manipulator"))
    assert links.shape[0] == 2
    assert [env.sim.model.body(i).name.partition("/")[0] for i in links[0].tolist()] == ["Manipulator"] * links.shape[1]


def test_marker_has_no_pose_to_observe() -> None:
    env = env_of(PUSH_CUBE, 1)
    with pytest.raises(KeyError, match="unknown entity 'goal'"):
        observations.get_object_pose(env, SceneEntityCfg("goal"))


def test_attributes_of_a_body_are_a_group_of_the_observation() -> None:
    terms = {
        "what": {"func": "get_rigid_object_physics_attributes", "name": "box", "params": {"entity_cfg": {"uid": "box"}}}
    }
    env = EmbodiedEnv(cart_cfg(2, {"observations": terms}, rigid_object=[BOX]))
    env.sim.get_rigid_object("box").physics.set_mass(torch.tensor([3.0]), torch.tensor([1]))
    obs, _ = env.reset(seed=1)
    assert obs["box", "mass"].tolist() == [[1.0], [3.0]]
    assert obs["box", "friction"].tolist() == [[0.5], [0.5]]
    torch.testing.assert_close(obs["box", "damping"], torch.full((2, 1), 0.7))
    # a cube of 0.1 m: m a^2 / 6
    torch.testing.assert_close(obs["box", "inertia"], torch.tensor([[0.01 / 6] * 3, [0.03 / 6] * 3]))


def test_size_of_a_body_is_a_factor_of_the_configured_one() -> None:
    env = EmbodiedEnv(cart_cfg(2, rigid_object=[BOX]))
    env.sim.get_rigid_object("box").physics.set_body_scale(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]))
    scale = observations.get_object_body_scale(env, SceneEntityCfg("box"))
    assert scale.tolist() == [[1.0, 1.0, 1.0], [2.0, 1.0, 0.5]]


def test_drives_are_observed_as_they_are() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.robot.drives.scale(torch.tensor([[2.0]]), torch.tensor([[0.5]]), [0], torch.tensor([1]))
    drive = observations.get_articulation_joint_drive(env, SceneEntityCfg("Cart"))
    torch.testing.assert_close(drive["stiffness"], torch.tensor([[10.0, 0.01], [20.0, 0.01]]))
    torch.testing.assert_close(drive["damping"], torch.tensor([[1.0, 0.001], [0.5, 0.001]]))
    torch.testing.assert_close(drive["max_effort"], torch.tensor([[100.0, 0.1]] * 2))
    assert drive["max_velocity"].tolist() == [[0.0, 0.0]] * 2  # the config has none
    assert {name: value.shape for name, value in drive.items()} == dict.fromkeys(drive, (2, 2))
    env.robot.drives.set_strength(torch.tensor([[0.5]]), [0], torch.tensor([1]))
    drive = observations.get_articulation_joint_drive(env, SceneEntityCfg("Cart"))
    torch.testing.assert_close(drive["max_effort"], torch.tensor([[100.0, 0.1], [50.0, 0.1]]))


@pytest.mark.parametrize(("mode", "name"), [("add", "mine"), ("modify", "robot/qpos")])
@pytest.mark.parametrize(
    ("returned", "found"),
    [(torch.ones(3), r"a tensor \[3\]"), (torch.tensor(1.0), r"a tensor \[\]"), (None, "NoneType")],
)
def test_observation_without_a_row_per_environment(
    env: EmbodiedEnv, mode: Any, name: str, returned: Any, found: str
) -> None:
    def add(env: Any) -> Any:
        return returned

    def modify(env: Any, obs: Any) -> Any:
        return returned

    func = add if mode == "add" else modify
    manager = ObservationManager({"tool": ObservationCfg(func, mode=mode, name=name)}, env)
    message = rf"^env\.observations\.tool: .*{mode} must return a tensor \[N, \.\.\.\] with N = 2, .* not {found}$"
    with pytest.raises(ConfigError, match=message):
        manager.compute({"robot/qpos": torch.zeros(2, 6)})


def test_observation_that_writes_into_the_state_is_an_error(env: EmbodiedEnv) -> None:
    shared = torch.ones(2, 6)

    def slow(env: Any) -> Any:
        return shared.mul_(0.1)  # what robot.get_qpos() returns is the entry itself

    manager = ObservationManager({"slow": ObservationCfg(slow, mode="add", name="mine")}, env)
    with pytest.raises(ConfigError, match=r"^env\.observations\.slow: .*slow writes into 'robot/qpos'"):
        manager.compute({"robot/qpos": shared})


# Looks along -x at the cart: right in the image is +y, down is -z.
CAMERA: dict[str, Any] = {
    "uid": "cam",
    "width": 64,
    "height": 48,
    "intrinsics": [60, 60, 32, 24],
    "enable_mask": True,
    "enable_depth": True,
    "extrinsics": {"eye": [3, 0, 1], "target": [0, 0, 1]},
}
STEREO = CAMERA | {"uid": "two", "sensor_type": "StereoCamera", "intrinsics_right": [50, 50, 32, 24]}
STEREO |= {"left_to_right_pos": [0.1, 0, 0]}


def make(num_envs: int = 2, sensors: Any = (CAMERA,)) -> CartPoleEnv:
    robot = CART | {"init_rot": [0.0, 0.0, 90.0]}
    return CartPoleEnv(cart_cfg(num_envs, rigid_object=[BOX], sensor=list(sensors), robot=robot))


@pytest.fixture
def cart(monkeypatch: pytest.MonkeyPatch) -> CartPoleEnv:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})
    return make(sensors=(CAMERA, STEREO))


CAM, TWO = SceneEntityCfg("cam"), SceneEntityCfg("two")


def test_camera_pose_in_the_robots_frame(cart: CartPoleEnv) -> None:
    pose = get_sensor_pose_in_robot_frame(cart, CAM)
    # the base is at (0, 0, 0.5), turned by 90 degrees about z: the world's (3, 0, 1) is its (0, -3, 0.5)
    assert pose.shape == (2, 4, 4)
    assert pose[0, :3, 3].tolist() == pytest.approx([0, -3, 0.5], abs=1e-6)
    # the view is along the world's -x, which is the base's +y
    assert (-pose[0, :3, 2]).tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    right = get_sensor_pose_in_robot_frame(cart, TWO, "Cart", is_right=True)
    assert right[0, :3, 3].tolist() == pytest.approx([0.1, -3, 0.5], abs=1e-6)


def test_camera_pose_is_in_the_frame_of_a_base_without_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})
    (tmp_path / "arm.xml").write_text(
        '<mujoco><worldbody><body name="l1" pos="0 0 .5"><joint name="j" axis="0 0 1"/><geom size=".1"/></body>'
        "</worldbody></mujoco>"
    )
    robot = {"uid": "Cart", "fpath": str(tmp_path / "arm.xml"), "init_pos": [1.0, 0.0, 0.0]}
    env = EmbodiedEnv(cart_cfg(2, robot=robot, sensor=[CAMERA]))
    before = get_sensor_pose_in_robot_frame(env, CAM)
    env.robot.set_qpos(torch.tensor([[1.0]] * 2), target=False)
    torch.testing.assert_close(get_sensor_pose_in_robot_frame(env, CAM), before)
    assert before[0, :3, 3].tolist() == pytest.approx([2.0, 0.0, 1.0 - env.robot.get_local_pose()[0, 2].item()])


def test_intrinsics_are_those_of_either_lens(cart: CartPoleEnv) -> None:
    assert get_sensor_intrinsics(cart, CAM)[1].tolist() == [[60, 0, 32], [0, 60, 24], [0, 0, 1]]
    assert get_sensor_intrinsics(cart, TWO, is_right=True)[0, 0, 0] == 50
    with pytest.raises(ConfigError, match=r"is_right: sensor 'cam' is no stereo camera"):
        get_sensor_intrinsics(cart, CAM, is_right=True)


def test_points_are_where_the_pinhole_puts_them(cart: CartPoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cart, "affordance_datas", {"handle": torch.eye(4)}, raising=False)
    pose = torch.tensor([[0.0, 0.5, 1.25, 1, 0, 0, 0]]).repeat(2, 1)
    cart.sim.get_rigid_object("box").set_local_pose(pose)
    source = ExteroceptionSource(type="affordance", obj_uid="box", key="handle")
    points = compute_exteroception(cart, {"cam": [source]}, x_interval=1.0, y_interval=0.3, kpnts_number=2)
    assert points.shape == (2, 5, 2)
    # depth 3: u = 32 + 60 * 0.5 / 3 = 42 of 64, v = 24 - 60 * 0.25 / 3 = 19 of 48
    expected = [[42 / 64, 19 / 48]]
    # x of -1 and 1: depths 4 and 2
    expected += [[(32 + 60 * 0.5 / d) / 64, (24 - 60 * 0.25 / d) / 48] for d in (4, 2)]
    # y of -0.3 and 0.3
    expected += [[(32 + 20 * y) / 64, 19 / 48] for y in (0.2, 0.8)]
    assert torch.allclose(points[0], torch.tensor(expected), atol=1e-5)


def test_points_beyond_the_edge_are_on_it(cart: CartPoleEnv) -> None:
    far = torch.tensor([[0.0, 9.0, 1.0, 1, 0, 0, 0]]).repeat(2, 1)
    cart.sim.get_rigid_object("box").set_local_pose(far)
    source = ExteroceptionSource(type="affordance", obj_uid="box", key="no such key")
    points = compute_exteroception(cart, {"all_sensors": [source]}, kpnts_number=1)
    # one camera and two lenses, 3 points each
    assert points.shape == (2, 9, 2)
    assert (points[..., 0] == 1.0).all()


@needs_gl
def test_semantic_mask_of_background_foreground_and_robot() -> None:
    group = {"uid": "pair", "rigid_objects": {"box": {k: v for k, v in BOX.items() if k != "uid"}}}
    cart = CartPoleEnv(cart_cfg(2, rigid_object_group=[group], sensor=[CAMERA]))
    pose = torch.tensor([[0.0, 0.5, 1.25, 1, 0, 0, 0]]).repeat(2, 1)
    cart.sim.get_rigid_object("pair_box").set_local_pose(pose)
    mask = compute_semantic_mask(cart, CAM, ["pair"])
    assert (mask.shape, mask.dtype) == ((2, 48, 64, 3), torch.uint8)
    assert (mask.sum(dim=-1) == 1).all()
    assert mask[0, 19, 42].tolist() == [0, 1, 0]
    assert mask[0, 0, 0].tolist() == [1, 0, 0]
    assert mask[..., 2].any()
    cart.close()


def test_semantic_mask_needs_the_cameras_mask() -> None:
    cart = make(sensors=[CAMERA | {"enable_mask": False}])
    with pytest.raises(ConfigError, match="camera 'cam' needs enable_mask"):
        compute_semantic_mask(cart, CAM, ["box"])


@pytest.mark.ext
@needs_gl
def test_images_are_no_part_of_the_flat_observation() -> None:
    from embodichain.ext.gymnasium.vector_env import GymnasiumVectorEnv  # noqa: PLC0415 (an extension)

    cart = make()
    obs, _ = cart.reset(seed=1)
    images = obs["sensor", "cam"]
    assert {str(k): (tuple(v.shape), v.dtype) for k, v in images.items()} == {
        "color": ((2, 48, 64, 3), torch.uint8),
        "depth": ((2, 48, 64, 1), torch.float32),
        "mask": ((2, 48, 64, 1), torch.int32),
    }
    assert flatten_dict_observation(obs).shape == (2, 6)
    assert cart.flattened_observation_space.shape == (6,)
    envs = GymnasiumVectorEnv(cart)
    arrays, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(arrays)
    cart.close()


@needs_gl
def test_images_are_of_the_present_state() -> None:
    cart = make(num_envs=1)
    cart.reset(seed=1)
    cart.robot.set_qpos(cart.robot.get_qpos() * 0 + torch.tensor([0.0, 1.0]), target=False)
    obs, _, terminated, _, info = cart.step(torch.zeros(1, 1))
    assert terminated.all()  # the pole lies beyond the angle of failure
    now, final = obs["sensor", "cam", "mask"], info["final_obs"]["sensor", "cam", "mask"]
    assert not torch.equal(now, final)
    assert torch.equal(cart.get_obs()["sensor", "cam", "mask"], now)
    cart.close()
