"""Joints by name and by index. Shapes: N environments, J joints."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.cfg import ArticulationCfg, JointDrivePropertiesCfg, RobotCfg
from embodichain.lab.sim.objects import Robot
from embodichain.utils import replace
from tests.lab.legs import GO2, legs_env, place_base
from tests.lab.scenes import CART, CART_DRIVES, HOME, simulate, ur10

INF = float("inf")
CART_CFG = RobotCfg(
    uid="cart",
    fpath="cart_pole",
    init_pos=(0.0, 3.0, 0.5),
    init_qpos=[1.0, 0.1],
    drive_pros=JointDrivePropertiesCfg("force", **CART_DRIVES),
    control_parts=CART["control_parts"],
)


@pytest.fixture(scope="module")
def built() -> SimulationManager:
    return simulate(ur10(), CART_CFG, num_envs=2)


@pytest.fixture
def sim(built: SimulationManager) -> Iterator[SimulationManager]:
    yield built
    built.reset(torch.arange(2))


@pytest.fixture
def arm(sim: SimulationManager) -> Robot:
    return sim.get_robot("arm")


@pytest.fixture
def cart(sim: SimulationManager) -> Robot:
    return sim.get_robot("cart")


def test_joints_and_targets_start_at_configured_positions(arm: Robot, cart: Robot) -> None:
    torch.testing.assert_close(arm.get_qpos(), torch.tensor([HOME] * 2))
    torch.testing.assert_close(cart.get_qpos(), torch.tensor([[1.0, 0.1]] * 2))
    assert torch.equal(arm.get_qpos_target(), arm.get_qpos())
    assert torch.equal(cart.get_qpos_target(), cart.get_qpos())
    torch.testing.assert_close(cart.body_data.default_qpos, torch.tensor([[1.0, 0.1]] * 2))


def test_joint_limits_are_infinite_where_there_are_none(arm: Robot, cart: Robot) -> None:
    assert cart.body_data.qpos_limits.tolist() == [[[-4, 4], [-INF, INF]]] * 2
    # max_effort of the config; the arm has the maker's own
    torch.testing.assert_close(cart.body_data.qf_limits, torch.tensor([[100.0, 0.1]] * 2))
    assert arm.body_data.qf_limits[0].tolist() == [330, 330, 150, 56, 56, 56]


def test_drive_pushes_and_pulls_as_far_as_the_files_actuator(tmp_path: Path) -> None:
    path = tmp_path / "arm.xml"
    path.write_text(
        '<mujoco><worldbody><body name="b" pos="0 0 1"><joint name="j" axis="0 1 0"/><geom size=".1" mass="1"/></body>'
        '</worldbody><actuator><position joint="j" forcerange="-30 5"/></actuator></mujoco>'
    )
    drive = JointDrivePropertiesCfg("force", stiffness=100.0, damping=0.0)
    robot = simulate(RobotCfg("r", fpath=str(path), drive_pros=drive), num_envs=2).get_robot("r")
    robot.set_qpos(torch.tensor([[1.0], [-1.0]]))  # 100 Nm/rad x 1 rad: beyond both limits
    assert robot.get_qf().tolist() == [[5.0], [-30.0]]
    assert robot.effort_limits.tolist() == [[-30.0], [5.0]]
    assert robot.body_data.qf_limits.tolist() == [[30.0]] * 2


def test_base_is_the_robots_though_a_loose_thing_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(
        '<mujoco><worldbody><body name="box" pos="1 0 1"><freejoint/><geom size=".1"/><body><joint/><geom size=".1"/>'
        '<body><geom size=".1"/></body></body></body><body name="base"><freejoint/><geom size=".1"/><body>'
        '<joint name="j"/><geom size=".1"/></body></body></worldbody><actuator><motor joint="j"/></actuator></mujoco>'
    )
    sim = simulate(RobotCfg("r", fpath=str(path), fix_base=False))
    assert sim.model.body(sim.get_robot("r").base.root).name == "r/base"


def test_targets_are_written_for_named_joints_and_envs_only(arm: Robot) -> None:
    home = torch.tensor([HOME] * 2)
    arm.set_qpos(torch.tensor([[0.5, 0.6]]), joint_ids=[4, 1], env_ids=torch.tensor([1]))
    expected = home.clone()
    expected[1, 4], expected[1, 1] = 0.5, 0.6
    torch.testing.assert_close(arm.get_qpos_target(), expected)
    torch.testing.assert_close(arm.get_qpos(), home)
    arm.set_qvel(torch.tensor([[0.7]]), joint_ids=[2], env_ids=torch.tensor([0]))
    assert arm.get_qvel().tolist() == [[0, 0, pytest.approx(0.7), 0, 0, 0], [0] * 6]


def test_efforts_are_the_drives_formula_within_the_limit(cart: Robot) -> None:
    # slider: 10 (1.5 - 1) - 1 * 2 = 3; pole: 0.01 (20.1 - 0.1) - 0.001 * 0 = 0.2, limited to 0.1
    cart.set_qpos(torch.tensor([[1.5, 20.1]] * 2))
    cart.set_qvel(torch.tensor([[2.0, 0.0]] * 2))
    torch.testing.assert_close(cart.get_qf(), torch.tensor([[3.0, 0.1]] * 2))
    torch.testing.assert_close(cart.get_qf("hand"), torch.tensor([[0.1]] * 2))


def mimicking(folder: Path) -> RobotCfg:
    """A robot whose second joint is where the first one tells it: q2 = 0.1 - 2 q1."""
    path = folder / "r.xml"
    path.write_text(
        '<mujoco><compiler angle="radian"/><worldbody><body name="one"><joint name="q1" range="-1 1" limited="true"/>'
        '<geom size="0.1" mass="1"/><body name="two"><joint name="q2"/><geom size="0.1" mass="1"/></body></body>'
        '</worldbody><equality><joint joint1="q2" joint2="q1" polycoef="0.1 -2 0 0 0"/></equality></mujoco>'
    )
    drives = JointDrivePropertiesCfg(stiffness={"q.": 2.0}, damping=0.2)
    return RobotCfg(uid="r", fpath=str(path), init_pos=(0.0, 0.0, 1.0), init_qpos=[0.3, 9.0], drive_pros=drives)


def test_mimic_joint_follows_and_is_not_driven(tmp_path: Path) -> None:
    sim = simulate(mimicking(tmp_path), num_envs=2)
    robot = sim.get_robot("r")
    assert robot.joint_names == ["q1", "q2"]
    assert robot.driven_ids == [0]
    assert robot.control_parts == {"arm": ["q1"]}
    # The configured position of a follower does not count: 0.1 - 2 * 0.3
    torch.testing.assert_close(robot.get_qpos(), torch.tensor([[0.3, -0.5]] * 2))
    robot.set_qpos(torch.tensor([[0.2, 5.0]]), env_ids=torch.tensor([1]), target=False)
    torch.testing.assert_close(robot.get_qpos(), torch.tensor([[0.3, -0.5], [0.2, -0.3]]))
    torch.testing.assert_close(robot.get_qpos_target(), robot.get_qpos())
    robot.set_qvel(torch.tensor([[0.5, 7.0]]), env_ids=torch.tensor([1]))
    assert robot.get_qvel().tolist() == [[0, 0], [0.5, -1.0]]  # the derivative: -2 times the leader's
    robot.clear_dynamics(torch.tensor([1]))
    assert robot.get_qf().tolist() == [[0, 0]] * 2
    assert robot.body_data.qf_limits[0].tolist() == [INF, 0]
    robot.set_qpos(torch.tensor([[-0.2], [-0.2]]), name="arm")
    sim.update(800)
    torch.testing.assert_close(robot.get_qpos(), torch.tensor([[-0.2, 0.5]] * 2), atol=2e-2, rtol=0)


def cabinet(**changes: Any) -> ArticulationCfg:
    loose = JointDrivePropertiesCfg(stiffness=0.0, damping=0.0)
    cfg = ArticulationCfg("cabinet", fpath="drawer_cabinet", init_pos=(1.0, 0.0, 0.0), drive_pros=loose)
    return replace(cfg, **changes)


def test_drawer_opens_by_a_force_as_newton_says() -> None:
    sim = simulate(cabinet(), num_envs=2)
    drawer = sim.get_articulation("cabinet")
    drawer.set_qf(torch.tensor([[5.0], [1.0]]), joint_ids=[0])
    sim.update(20)
    # m = 1.5 + 0.1 (handle) + 0.1 (armature) kg, dry friction 2 N, damping c = 5 N s/m: v = F / c (1 - exp(-c t / m))
    # with F = 5 - 2 and t = 0.2 s; 1 N does not move it.
    speed = 3.0 / 5.0 * (1.0 - math.exp(-5.0 * 0.2 / 1.7))
    assert drawer.get_qvel()[0, 0].item() == pytest.approx(speed, rel=0.02)
    opening = drawer.get_qpos()[:, 0].tolist()
    assert opening[0] == pytest.approx(3.0 / 5.0 * (0.2 - 1.7 / 5.0 * (1.0 - math.exp(-5.0 * 0.2 / 1.7))), rel=0.1)
    assert abs(opening[1]) < 2e-3
    assert drawer.get_qpos()[:, 1].abs().max().item() < 1e-5
    # At the stop.
    drawer.set_qf(torch.tensor([[20.0], [20.0]]), joint_ids=[0])
    sim.update(200)
    torch.testing.assert_close(drawer.get_qpos()[:, 0], torch.tensor([0.3, 0.3]), atol=5e-3, rtol=0)
    sim.reset(torch.arange(2))
    sim.update(50)
    assert drawer.get_qpos().abs().max().item() < 1e-5  # efforts end with the episode


def test_pose_of_a_link_of_a_free_base_is_the_engines() -> None:
    sim = simulate(cabinet(fix_base=False, init_pos=(0.0, 0.0, 1.0)))
    sim.update(10)
    # 1 + 0.48 - 9.81 * 0.01^2 * (1 + 2 + ... + 10)
    height = sim.get_articulation("cabinet").get_link_pose("drawer_top_handle")[0, 2].item()
    assert height == pytest.approx(1.48 - 9.81e-4 * 55, abs=1e-3)


BOX = """<robot name="box"><link name="box"><inertial><mass value="1"/>
<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


@pytest.mark.parametrize(("fix_base", "fallen"), [(True, 0.0), (False, 9.81e-4 * 10)])
def test_articulation_without_joints_is_its_base_alone(tmp_path: Path, fix_base: bool, fallen: float) -> None:
    (tmp_path / "box.urdf").write_text(BOX, encoding="utf-8")
    cfg = ArticulationCfg("box", fpath=str(tmp_path / "box.urdf"), fix_base=fix_base, init_pos=(0.0, 0.0, 1.0))
    sim = simulate(cfg, num_envs=2)
    box, all_envs = sim.get_articulation("box"), torch.arange(2)
    sim.update(4)  # free fall: (1 + 2 + 3 + 4) g dt^2, dt 0.01 s
    assert box.get_local_pose()[:, 2].tolist() == pytest.approx([1.0 - fallen] * 2, abs=1e-6)
    for value in (box.get_qpos(), box.get_qvel(), box.get_qf(), box.get_qpos_target(), box.body_data.default_qpos):
        assert value.shape == (2, 0)
    assert box.body_data.qpos_limits.shape == (2, 0, 2)
    state = box.get_state(all_envs)
    sim.update(4)
    box.set_state(state, all_envs)
    assert torch.equal(box.get_state(all_envs), state)
    box.clear_dynamics(all_envs)
    sim.reset(all_envs)
    assert box.get_local_pose()[:, 2].tolist() == [1.0, 1.0]


def test_base_moves_with_everything_on_it_in_the_named_envs_only() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    torch.testing.assert_close(cart.get_local_pose(), torch.tensor([[0.0, 3.0, 0.5, 1, 0, 0, 0]] * 2))
    pole = sim.model.body("cart/pole").id
    before = sim.backend.read("xpos")[:, pole].clone()
    half = 0.5**0.5
    cart.set_local_pose(torch.tensor([[1.0, 0.0, 0.5, half, 0, 0, half]]), torch.tensor([1]))
    after = sim.backend.read("xpos")[:, pole]
    assert torch.equal(after[0], before[0])
    # a quarter turn about z through the base: (x, y) from (0, 3) becomes (-y, x) from (1, 0)
    x, y, z = (before[1] - torch.tensor([0.0, 3.0, 0.5])).tolist()
    torch.testing.assert_close(after[1], torch.tensor([1.0 - y, x, 0.5 + z]))
    torch.testing.assert_close(cart.get_local_pose()[1], torch.tensor([1.0, 0, 0.5, half, 0, 0, half]))


def test_base_of_a_file_with_a_low_floor_is_where_the_file_stands(tmp_path: Path) -> None:
    file = tmp_path / "arm.xml"
    link = '<body name="arm"><joint name="j" damping="1"/><geom size=".1"/></body>'
    file.write_text(f'<mujoco><worldbody><geom type="plane" size="1 1 1" pos="0 0 -.5"/>{link}</worldbody></mujoco>')
    arm = simulate(ArticulationCfg("arm", fpath=str(file))).get_articulation("arm")
    assert arm.get_local_pose()[0].tolist() == [0, 0, 0.5, 1, 0, 0, 0]
    torch.testing.assert_close(arm.get_link_pose("arm"), arm.get_local_pose())
    arm.set_local_pose(torch.tensor([[1.0, 0, 0.2, 1, 0, 0, 0]]), torch.tensor([0]))
    assert arm.get_link_pose("arm")[0, :3].tolist() == pytest.approx([1, 0, 0.2])


QUARTER = math.pi / 2
UP = [[0.0, 0.0, 1.0]] * 2


@pytest.fixture(scope="module")
def env() -> LocomotionEnv:
    env = legs_env(2)
    env.reset(seed=1)
    return env


def test_angular_velocity_is_in_the_frame_of_the_base(env: LocomotionEnv) -> None:
    # Rolled a quarter, a turn about the world's z is one about the base's y. The engine's free joint has it in the
    # frame of the body: the orientation after a step shows it.
    place_base(env, UP, [[0.0, 0.0, 0.0], [QUARTER, 0.0, 0.0]])
    env.robot.base.set_velocity(torch.tensor([[0.0] * 5 + [2.0], [0.0] * 4 + [2.0, 0.0]]), env.all_env_ids)
    torch.testing.assert_close(
        env.robot.base.angular_velocity(), torch.tensor([[0.0, 0.0, 2.0], [0.0, 2.0, 0.0]]), atol=1e-6, rtol=0
    )
    before = env.robot.base.heading()
    env.sim.update(1)
    # Both turn about the world's z axis: 2 rad/s * 0.005 s.
    torch.testing.assert_close(env.robot.base.heading() - before, torch.full((2,), 0.01), atol=2e-3, rtol=0)


def test_heading_is_the_x_axis_whatever_the_lean(env: LocomotionEnv) -> None:
    place_base(env, UP, [[0.3, 0.0, 2.5], [0.0, 0.6, -1.0]])
    torch.testing.assert_close(env.robot.base.heading(), torch.tensor([2.5, -1.0]), atol=1e-6, rtol=0)


def test_fixed_base_has_no_velocity() -> None:
    env = legs_env(1, robot=GO2 | {"fix_base": True, "init_pos": [0.0, 0.0, 1.0]})
    env.reset(seed=1)
    env.step(torch.ones(1, 12))
    base = env.robot.base
    assert not base.is_free
    assert not base.linear_velocity().any()
    assert not base.angular_velocity().any()
    torch.testing.assert_close(base.projected_gravity(), torch.tensor([[0.0, 0.0, -1.0]]))


def test_velocity_and_effort_drives_follow_their_formulas() -> None:
    # The cart's drive: stiffness 10, damping 1.
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("velocity", [0])
    assert cart.get_qpos_target()[:, 0].tolist() == [0.0, 0.0]
    cart.set_qvel(torch.tensor([[0.5], [0.0]]), [0])
    cart.drives.set_targets(torch.tensor([[2.0], [-3.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [1.5, -3.0]  # 1 (2 - 0.5), 1 (-3 - 0)
    engine = sim.backend.read("actuator_force")[:, 0]
    torch.testing.assert_close(engine, torch.tensor([1.5, -3.0]))
    cart.drives.set_mode("effort", [0])
    cart.drives.set_targets(torch.tensor([[7.0], [-200.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [7.0, -100.0]  # the limit
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([7.0, -100.0]))


def test_velocity_and_effort_targets_are_zero_after_reset() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("effort", [0])
    cart.drives.set_targets(torch.full((2, 1), 5.0), [0])
    sim.reset(torch.tensor([1]))
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[5.0, 0.1], [0.0, 0.1]]))
    cart.drives.set_mode("position", [0])
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[1.0, 0.1], [1.0, 0.1]]))
    sim.reset(torch.arange(2))
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[1.0, 0.1], [1.0, 0.1]]))


def test_joints_that_are_moved_leave_velocity_and_effort_targets_alone() -> None:
    cart = simulate(CART_CFG, num_envs=2).get_robot("cart")
    for mode in ("velocity", "effort"):
        cart.drives.set_mode(mode, [0])
        cart.set_qpos(torch.tensor([[0.3, 0.2]] * 2), target=False)
        torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[0.0, 0.2]] * 2))


def test_gains_are_scaled_in_the_named_envs_and_joints_only() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    before = cart.drives.read()
    torch.testing.assert_close(before["stiffness"], torch.tensor([[10.0, 0.01]] * 2))
    torch.testing.assert_close(before["damping"], torch.tensor([[1.0, 0.001]] * 2))
    cart.drives.scale(torch.tensor([[2.0]]), torch.tensor([[0.5]]), [0], torch.tensor([1]))
    drive = cart.drives.read()
    torch.testing.assert_close(drive["stiffness"], torch.tensor([[10.0, 0.01], [20.0, 0.01]]))
    torch.testing.assert_close(drive["damping"], torch.tensor([[1.0, 0.001], [0.5, 0.001]]))
    torch.testing.assert_close(before["stiffness"], torch.tensor([[10.0, 0.01]] * 2))
    cart.set_qpos(torch.tensor([[1.5], [1.5]]), [0])
    cart.set_qvel(torch.ones(2, 1), [0])
    assert cart.get_qf()[:, 0].tolist() == [4.0, 9.5]  # 10 * 0.5 - 1 * 1, 20 * 0.5 - 0.5 * 1
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([4.0, 9.5]))


def test_factors_belong_to_the_joints_in_the_given_order() -> None:
    cart = simulate(CART_CFG, num_envs=2).get_robot("cart")
    cart.drives.scale(torch.tensor([[2.0, 3.0]]), torch.ones(1, 2), [1, 0], torch.tensor([1]))
    torch.testing.assert_close(cart.drives.read()["stiffness"], torch.tensor([[10.0, 0.01], [30.0, 0.02]]))


def test_drive_mode_and_gains_do_not_undo_each_other() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("velocity", [0])
    cart.drives.scale(torch.tensor([[2.0]]), torch.tensor([[3.0]]), [0], torch.tensor([1]))
    cart.drives.set_targets(torch.tensor([[2.0], [2.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [2.0, 6.0]
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([2.0, 6.0]))
