"""Poses of a robot's tool. Shapes: B batch, N environments."""

from collections.abc import Iterator
from pathlib import Path

import mujoco
import pytest
import torch

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.cfg import JointDrivePropertiesCfg, RobotCfg, SolverCfg
from embodichain.lab.sim.objects import Robot
from embodichain.utils import ConfigError, replace
from tests.lab.scenes import HOME, simulate, ur10

TCP = SolverCfg(tcp=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0.16), (0, 0, 0, 1)))
PARTS = {"arm": [".*"], "wrist": ["wrist_2_joint", "wrist_3_joint"]}


@pytest.fixture(scope="module")
def built() -> SimulationManager:
    right = ur10(uid="right", init_pos=(2.0, 0.0, 0.5), init_rot=(0.0, 0.0, 90.0))
    return simulate(ur10(solver_cfg={"arm": TCP}, control_parts=PARTS), right, num_envs=3)


@pytest.fixture
def sim(built: SimulationManager) -> Iterator[SimulationManager]:
    yield built
    built.reset(torch.arange(3))


@pytest.fixture
def robot(sim: SimulationManager) -> Robot:
    return sim.get_robot("arm")


def test_ur_arm_answers_to_aliases_of_joints_and_flange() -> None:
    numbered = JointDrivePropertiesCfg(
        stiffness={"JOINT[12]": 4000.0, "JOINT3": 2000.0, "JOINT[4-6]": 400.0},
        damping={"JOINT[12]": 200.0, "JOINT3": 100.0, "JOINT[4-6]": 20.0},
    )
    solver = {"arm": replace(TCP, end_link_name="ee_link")}
    one = simulate(ur10(drive_pros=numbered, control_parts={"arm": ["JOINT[1-6]"]}, solver_cfg=solver)).get_robot("arm")
    other = simulate(ur10(control_parts=PARTS, solver_cfg={"arm": TCP})).get_robot("arm")
    assert one.control_parts["arm"] == one.joint_names == other.joint_names
    assert torch.equal(one.drives.read()["stiffness"], other.drives.read()["stiffness"])
    assert torch.equal(one.drives.read()["damping"], other.drives.read()["damping"])
    assert torch.equal(one.get_eef_pose(), other.get_eef_pose())


def flange(sim: SimulationManager, uid: str, env_id: int) -> torch.Tensor:
    """Compute the pose of a robot's flange with the engine."""
    data = mujoco.MjData(sim.model)
    data.qpos[:] = sim.backend.qpos[env_id]
    mujoco.mj_kinematics(sim.model, data)
    pose = torch.eye(4)
    pose[:3, :3] = torch.from_numpy(data.site(f"{uid}/tool0").xmat.reshape(3, 3))
    pose[:3, 3] = torch.from_numpy(data.site(f"{uid}/tool0").xpos)
    return pose


def test_tool_pose_is_the_engines_flange_moved_by_the_tcp(sim: SimulationManager, robot: Robot) -> None:
    for _ in range(3):
        robot.set_qpos(robot.get_qpos() + torch.tensor([[0.1], [0.2], [-0.1]]))
        sim.update(5)
        for env_id in range(3):
            pose = flange(sim, "arm", env_id)
            pose[:3, 3] += 0.16 * pose[:3, 2]  # 0.16 m along the flange's z axis
            torch.testing.assert_close(robot.get_eef_pose()[env_id], pose, atol=3e-6, rtol=0)


@pytest.mark.parametrize("to_matrix", [True, False])
def test_inverse_kinematics_takes_a_pose_in_either_form(robot: Robot, to_matrix: bool) -> None:
    target = robot.compute_fk(robot.get_qpos() + torch.tensor([[0.2], [-0.1], [0.3]]), to_matrix=to_matrix)
    success, qpos = robot.compute_ik(target)
    assert success.tolist() == [True] * 3
    expected = target[:, :3, 3] if to_matrix else target[:, :3]
    torch.testing.assert_close(robot.compute_fk(qpos)[:, :3, 3], expected, atol=1.1e-3, rtol=0)


def test_inverse_kinematics_takes_one_pose_for_all_or_one_each(robot: Robot) -> None:
    target = robot.compute_fk(robot.get_qpos() + 0.1)
    success, qpos = robot.compute_ik(target[:1])
    assert success.tolist() == [True] * 3
    torch.testing.assert_close(robot.compute_fk(qpos)[:, :3, 3], target[:1, :3, 3].expand(3, 3), atol=1.1e-3, rtol=0)


def test_inverse_kinematics_starts_at_the_given_seed(robot: Robot) -> None:
    wanted = torch.tensor([HOME] * 3) + 1.0
    _, qpos = robot.compute_ik(robot.compute_fk(wanted), joint_seed=wanted)
    torch.testing.assert_close(qpos, wanted, atol=1e-4, rtol=0)


def test_part_of_an_arm_has_its_own_kinematics(sim: SimulationManager, robot: Robot) -> None:
    robot.set_qpos(torch.tensor([[0.5, -0.4]] * 3), name="wrist", target=False)
    torch.testing.assert_close(
        robot.compute_fk(robot.get_qpos("wrist"), "wrist")[0], flange(sim, "arm", 0), atol=3e-6, rtol=0
    )


def test_tool_and_links_go_along_with_a_base_that_is_moved(sim: SimulationManager, robot: Robot) -> None:
    initial = robot.get_local_pose()[:1].clone()
    turned = torch.tensor([[0.5, -0.3, 0.2, 0.5**0.5, 0.0, 0.0, 0.5**0.5]])
    robot.set_local_pose(turned, torch.tensor([1]))
    for env_id in (0, 1):
        data = mujoco.MjData(sim.model)
        mujoco.mju_copy(data.qpos, sim.backend.qpos[env_id].double().numpy())
        mujoco.mj_kinematics(sim.model, data)
        pose = torch.eye(4)
        pose[:3, :3] = torch.from_numpy(data.body("arm/wrist_3_link").xmat.reshape(3, 3))
        pose[:3, 3] = torch.from_numpy(data.body("arm/wrist_3_link").xpos)
        if env_id == 1:  # a quarter turn about z, then the shift
            turn = torch.tensor([[0.0, -1, 0, 0.5], [1, 0, 0, -0.3], [0, 0, 1, 0.2], [0, 0, 0, 1]])
            pose = turn @ pose
        torch.testing.assert_close(robot.get_link_pose("wrist_3_link", True)[env_id], pose, atol=3e-6, rtol=0)
    target = robot.compute_fk(robot.get_qpos() + 0.1)
    success, qpos = robot.compute_ik(target)
    assert success.all()
    torch.testing.assert_close(robot.compute_fk(qpos)[:, :3, 3], target[:, :3, 3], atol=1e-3, rtol=0)
    robot.set_local_pose(initial, torch.tensor([1]))


def test_part_that_does_not_move_the_flange_has_no_tool_pose() -> None:
    hand = {"components": [{"component_type": "hand", "urdf_path": "dh_pgi_140_80"}]}
    soft = {"stiffness": 100.0, "damping": 5.0}
    cfg = RobotCfg(uid="r", robot_type="URRobot", urdf_cfg=hand, drive_pros=soft)  # type: ignore[arg-type]
    robot = simulate(cfg).get_robot("r")
    with pytest.raises(
        ConfigError, match=r"control part 'hand' has no tool pose.*does not pass gripper_finger1_joint_1.*end_link_name"
    ):
        robot.get_eef_pose("hand")


def test_joints_out_of_order_have_no_tool_pose(robot: Robot) -> None:
    robot.add_part("mixed", [0, 2, 1, 3, 4, 5])
    with pytest.raises(ConfigError, match="part 'mixed' has no tool pose: its joints must be in order from base to"):
        robot.get_eef_pose("mixed")


def test_part_without_a_flange_ends_at_its_last_link() -> None:
    soft = {"stiffness": 1.0, "damping": 0.1}
    parts = {"arm": ["slider_to_cart"]}
    cfg = RobotCfg(uid="cart", fpath="cart_pole", init_pos=(0, 0, 1), init_qpos=[0.5, 0], drive_pros=soft)  # type: ignore[arg-type]
    robot = simulate(replace(cfg, control_parts=parts)).get_robot("cart")
    # The cart's frame is on the rail at y = q.
    assert robot.get_eef_pose()[0, :3, 3].tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_chain_begins_and_ends_where_the_solver_says() -> None:
    solver = SolverCfg(root_link_name="upper_arm_link", end_link_name="forearm_link")
    cfg = ur10(control_parts={"elbow": ["elbow_joint"]}, solver_cfg={"elbow": solver})
    robot = simulate(cfg, num_envs=2).get_robot("arm")
    robot.set_qpos(torch.tensor([[0.3], [0.3]]), joint_ids=[0], target=False)
    robot.set_qpos(torch.tensor([[-1.0], [-2.0]]), joint_ids=[1], target=False)
    expected = robot.get_link_pose("forearm_link", to_matrix=True)
    torch.testing.assert_close(robot.get_eef_pose("elbow"), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (SolverCfg(end_link_name="wrist"), "control part 'arm': end_link_name: unknown link or site 'wrist'"),
        (
            SolverCfg(root_link_name="forearm_link", end_link_name="base_link"),
            "'forearm_link' does not carry 'base_link'",
        ),
        (SolverCfg(root_link_name="forearm_link"), "from 'forearm_link' to 'wrist_3_link' does not pass shoulder_pan"),
    ],
)
def test_mistake_in_the_solver_is_found_when_the_scene_is_built(solver: SolverCfg, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(ur10(solver_cfg={"arm": solver}))


LIFT = """<robot name="lift"><link name="base"/><link name="one">{0}</link><link name="two">{0}</link>
<joint name="j1" type="prismatic"><parent link="base"/><child link="one"/><axis xyz="0 0 1"/>
<limit lower="0" upper="1" effort="9" velocity="9"/></joint>
<joint name="j2" type="prismatic"><parent link="one"/><child link="two"/><axis xyz="0 0 1"/>
<limit lower="0" upper="1" effort="9" velocity="9"/>{1}</joint></robot>"""
MASS = '<inertial><mass value="1"/><inertia ixx=".1" ixy="0" ixz="0" iyy=".1" iyz="0" izz=".1"/></inertial>'


@pytest.mark.parametrize(("mimic", "joints"), [('<mimic joint="j1"/>', ["j1"]), ("", ["j2"])])
def test_tool_pose_is_refused_where_other_joints_move_the_tool(tmp_path: Path, mimic: str, joints: list[str]) -> None:
    (tmp_path / "lift.urdf").write_text(LIFT.format(MASS, mimic))
    solver = {"arm": SolverCfg(root_link_name="base", end_link_name="two")}
    cfg = RobotCfg(uid="r", fpath=str(tmp_path / "lift.urdf"), control_parts={"arm": joints}, solver_cfg=solver)
    other = {"j1", "j2"} - set(joints)
    with pytest.raises(ConfigError, match=f"from 'base' to 'two' passes {other.pop()}, which move without it"):
        simulate(cfg)


def test_kinematics_of_some_environments_are_their_own(sim: SimulationManager, robot: Robot) -> None:
    robot.set_qpos(torch.tensor([[0.4], [0.1], [-0.3]]), joint_ids=[0], target=False)
    some, present = torch.tensor([2, 0]), robot.get_eef_pose("wrist")
    pose = robot.compute_fk(robot.get_qpos("wrist")[some], "wrist", env_ids=some)
    torch.testing.assert_close(pose, present[some])
    success, qpos = robot.compute_ik(pose, name="wrist", env_ids=some)
    assert success.tolist() == [True, True]
    torch.testing.assert_close(qpos, robot.get_qpos("wrist")[some], atol=1e-3, rtol=0)
