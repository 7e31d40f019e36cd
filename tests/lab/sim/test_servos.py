"""Servos and play of gears: formulas by hand, and the engine's own forces. One hinge with 0.001 kg m^2."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.cfg import JointDrivePropertiesCfg, RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.objects import Robot
from embodichain.lab.sim.servos import SERVOS
from embodichain.utils import ConfigError

WHEEL = """<mujoco><worldbody><body name="wheel"><joint name="hinge" axis="0 1 0"/>
<inertial pos="0 0 0" mass="1" diaginertia="0.001 0.001 0.001"/></body></worldbody></mujoco>"""
PENDULUM = WHEEL.replace('pos="0 0 0" mass="1"', 'pos="0.05 0 0" mass="0.2"')
XL330 = SERVOS["xl330"]
Make = Callable[..., tuple[SimulationManager, Robot, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        text: str = WHEEL, num_envs: int = 1, init_qpos: list[float] | None = None, dt: float = 0.005, **drive: Any
    ) -> tuple[SimulationManager, Robot, Any]:
        path = tmp_path / "wheel.xml"
        path.write_text(text, encoding="utf-8")
        sim = SimulationManager(SimulationManagerCfg(num_envs=num_envs, physics_dt=dt, sim_device="cpu"))
        properties = JointDrivePropertiesCfg(**drive)
        sim.add_robot(RobotCfg("r", fpath=str(path), init_qpos=init_qpos, drive_pros=properties))
        sim.build()
        return sim, sim.get_robot("r"), sim.backend

    return build


def test_friction_is_coulombs_and_stribecks_at_rest_and_fast() -> None:
    friction = XL330.friction
    # 0.004771183 + 0.004676346 at rest; at 30 rad/s exp(-(30 / 2.890372)^8.68) is 0.
    assert friction.limit(0.0, 0.0, 0.0) == pytest.approx(0.009447529)
    assert friction.limit(0.0, 0.0, -30.0) == pytest.approx(0.004771183)
    # At the Stribeck speed 1 / e of it is left.
    assert friction.limit(0.0, 0.0, 2.890372) == pytest.approx(0.004771183 + 0.004676346 / np.e)


@pytest.mark.parametrize(
    ("motor", "external", "expected"),
    [
        # drives: 0.2667861 * 0.3 + 0.08077929 * 0.1 + 0.004902566 * 0.1^2, and what is there at rest
        (0.3, -0.1, 0.009447529 + 0.08003583 + 0.008077929 + 0.00004902566),
        # is driven: 0.2667861 * 0.1 + 0.08077929 * 0.3 + 0.009972471 * 0.1^2
        (0.1, -0.3, 0.009447529 + 0.02667861 + 0.024233787 + 0.00009972471),
        # both push one way: no quadratic part
        (-0.1, -0.3, 0.009447529 + 0.02667861 + 0.024233787),
    ],
)
def test_friction_grows_with_the_load_of_the_gears(motor: float, external: float, expected: float) -> None:
    # The two smallest load coefficients of the XL330 add less than 1e-5 Nm.
    assert XL330.friction.limit(motor, external, 0.0) == pytest.approx(expected, abs=1e-5)


def test_drive_has_the_gain_and_the_limits_of_the_voltage(make: Make) -> None:
    model = make(servo="xl330", servo_gain=200.0)[2].model
    # 200 * 4096 / (2 pi) / (256 * 885) duty/rad, 7.5 V * 0.366013 / 2.811392 Nm
    assert model.actuator_gainprm[0, 0] == pytest.approx(0.57546 * 0.97642, rel=1e-4)
    np.testing.assert_allclose(model.actuator_forcerange, [[-0.97642, 0.97642]], rtol=1e-4)
    # 0.366013^2 / 2.811392 of back-EMF and 0.00536 of viscous friction
    assert model.dof_damping[0] == pytest.approx(0.047651 + 0.005360, rel=1e-4)
    assert model.dof_armature[0] == pytest.approx(0.001807743)


def test_free_wheel_turns_as_fast_as_the_voltage_allows(make: Make) -> None:
    sim, robot, _ = make(servo="xl330")
    for _ in range(100):
        robot.set_qpos(robot.get_qpos() + 3.0)
        sim.update(4)
    # Nm: 0.97642 - 0.047651 w of the motor; its friction 0.004771 + 0.2667861 (0.97642 - 0.047651 w) + 0.005360 w.
    speed = (0.97642 * (1 - 0.2667861) - 0.004771) / (0.047651 * (1 - 0.2667861) + 0.005360)
    assert float(robot.get_qvel()) == pytest.approx(speed, rel=2e-3)


@pytest.mark.parametrize("dt", [0.005, 0.02])  # beyond 0.005 s the engine bounds the constraint's time constant
def test_share_of_friction_in_the_constraint_force_is_the_engines(make: Make, dt: float) -> None:
    sim, robot, backend = make(PENDULUM, dt=dt, servo="xl330", servo_gain=200.0)
    model, data = backend.model, mujoco.MjData(backend.model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    servos = backend.servos
    rng = np.random.default_rng(0)
    for _ in range(60):
        target = np.float32(rng.normal(0.0, 0.3))
        robot.set_qpos(torch.tensor([[target]]))
        limit, speed = float(servos._limits[0, 0]), data.qvel[0]
        sim.update(1)
        model.dof_frictionloss[0], data.ctrl[0] = limit, target
        mujoco.mj_step(model, data)
        engine = data.efc_force[data.efc_type == mujoco.mjtConstraint.mjCNSTR_FRICTION_DOF].sum()
        own = np.clip(-servos._efc_d / model.dof_invweight0 * (data.qacc + servos._efc_b * speed), -limit, limit)
        assert own == pytest.approx(engine, abs=1e-9)
        assert float(robot.get_qpos()) == pytest.approx(data.qpos[0], abs=1e-6)
        # The load is gravity's torque alone: the hinge touches nothing.
        motor = data.qfrc_actuator[0] - XL330.back_emf * speed
        expected = XL330.friction.limit(motor, -data.qfrc_bias[0], data.qvel[0])
        assert servos._limits[0, 0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("delay", [0, 3, 6, 16])
def test_command_arrives_after_its_substeps(make: Make, delay: int) -> None:
    _, robot, backend = make(servo="xl330")
    backend.servos.delay[:] = delay
    robot.set_qpos(torch.ones(1, 1))
    speeds: list[float] = []

    def advance() -> None:
        backend._batch.step(None)
        speeds.append(float(backend._batch.qvel[0, 0]))

    for _ in range(delay // 4 + 1):
        backend.servos.step(slice(None), 4, advance)
    assert speeds[:delay] == [0.0] * delay
    assert all(speeds[delay:])


def test_supply_sags_with_the_torque_of_the_servos(make: Make) -> None:
    sim, robot, backend = make(servo="xl330")
    backend.servos.sag[:], backend.servos.lowest_voltage = 2.0, 6.0
    robot.set_qpos(torch.full((1, 1), 3.0))
    sim.update(1)
    first = backend.read_last("qfrc_actuator").clone()
    sim.update(1)
    # 0.97642 Nm at rest, no load before; then 2 V/Nm * 0.97642 Nm would be 1.95 V, of which 1.5 V are allowed.
    torch.testing.assert_close(first, torch.full((1, 1), 0.97642), rtol=1e-4, atol=0.0)
    torch.testing.assert_close(backend.read_last("qfrc_actuator"), first * (6.0 / 7.5))
    # Between the steps the drives are those of the full supply.
    assert backend.read_model("actuator_forcerange")[0, 0, 1] == pytest.approx(0.97642, rel=1e-4)


def test_goal_of_an_sts3215_moves_at_its_own_speed(make: Make) -> None:
    sim, robot, backend = make(servo="sts3215")
    robot.set_qpos(torch.full((1, 1), 1.0))
    sim.update(4)
    assert backend.servos._goal[0, 0] == pytest.approx(4 * 0.005 * 5.095754)
    for _ in range(100):
        sim.update(4)
    assert float(robot.get_qpos()) == pytest.approx(1.0, abs=0.02)


def test_encoder_is_behind_the_play_of_the_gears(make: Make) -> None:
    angle = 0.0175
    sim, robot, backend = make(PENDULUM, stiffness=20.0, damping=0.3, armature=0.002, backlash=angle)
    assert robot.joint_names == ["hinge"]
    for _ in range(200):
        sim.update(4)
    # 0.2 kg * 9.81 * 0.05 m pull the gears to one end of the play; the drive holds what the encoder sees.
    hinge, motor = backend._batch.qpos[0]
    assert hinge - motor == pytest.approx(angle, abs=1e-3)
    assert float(robot.get_qpos()) == pytest.approx(hinge)
    assert float(robot.get_qpos()) == pytest.approx(0.2 * 9.81 * 0.05 / 20.0, rel=0.02)
    assert float(robot.get_qpos_target()) == 0.0


def test_servos_with_play_follow_their_targets(make: Make) -> None:
    sim, robot, _ = make(PENDULUM, servo="xl330", servo_gain=400.0, backlash=0.0175)
    robot.set_qpos(torch.full((1, 1), 0.3))
    for _ in range(200):
        sim.update(4)
    # Stuck by dry friction near the target, less what gravity's 0.098 Nm need at 1.12 Nm/rad.
    assert float(robot.get_qpos()) == pytest.approx(0.3 + 0.098 / 1.124, abs=0.07)


def test_load_does_not_move_the_motor_but_a_set_joint_does(make: Make) -> None:
    play, apart = 0.0002, []
    sim, robot, backend = make(PENDULUM, servo="xl330", servo_gain=400.0, backlash=play)
    qpos = backend._batch.qpos
    for step in range(60):
        robot.set_qpos(torch.full((1, 1), 0.3 * math.sin(0.1 * step)))
        sim.update(4)
        before = qpos[0].copy()
        backend.servos.step(slice(None), 1, lambda: None)
        assert qpos[0].tolist() == before.tolist()
        apart.append(abs(before[0] - before[1]))
    assert max(apart) > 2 * play  # the teeth give way
    robot.set_qpos(torch.full((1, 1), 0.05), target=False)
    backend.servos.step(slice(None), 1, lambda: None)
    assert qpos[0].tolist() == pytest.approx([0.05, 0.05], abs=1e-6)


def run(make: Make, num_envs: int, steps: int, changes: dict[int, float]) -> torch.Tensor:
    """Positions [N, 1] after random targets, equal in environment i for any N; ``changes``: sag by environment."""
    sim, robot, backend = make(PENDULUM, num_envs, servo="xl330", backlash=0.01)
    for env_id, sag in changes.items():
        backend.servos.sag[env_id], backend.servos.delay[env_id] = sag, 3
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        robot.set_qpos(torch.randn(8, 1, generator=generator)[:num_envs])
        sim.update(4)
    return robot.get_qpos()


def test_rows_are_independent_of_each_other(make: Make) -> None:
    together = run(make, 8, 30, {2: 0.5})
    assert torch.equal(together[:1], run(make, 1, 30, {}))
    assert torch.equal(together[3:], run(make, 8, 30, {})[3:])
    assert together[2] != run(make, 8, 30, {})[2]


def test_reset_of_some_rows_leaves_the_others_alone(make: Make) -> None:
    sim, robot, backend = make(PENDULUM, 3, servo="xl330")
    backend.servos.delay[:] = 3
    robot.set_qpos(torch.ones(3, 1))
    for _ in range(5):
        sim.update(4)
    others = [values[[0, 2]].copy() for values in (backend.servos._limits, backend.servos._commands)]
    sim.reset(torch.tensor([1]))
    assert robot.get_qpos()[1] == 0.0
    assert backend.servos._limits[1, 0] == pytest.approx(0.009447529)
    assert backend.servos._begins.tolist() == [False, True, False]
    for values, before in zip((backend.servos._limits, backend.servos._commands), others, strict=True):
        np.testing.assert_array_equal(values[[0, 2]], before)


def test_saved_servos_continue_bit_for_bit(make: Make) -> None:
    sim, robot, backend = make(PENDULUM, 2, servo="xl330", backlash=0.01)
    backend.servos.sag[:], backend.servos.delay[:] = 0.3, 5
    robot.set_qpos(torch.ones(2, 1))
    sim.update(4)
    saved = copy.deepcopy(sim.state_dict())
    expected = [float(robot.get_qpos()[1]) for _ in range(5) if sim.update(4) is None]
    again, robot, _ = make(PENDULUM, 2, servo="xl330", backlash=0.01)
    again.load_state_dict(saved)
    assert [float(robot.get_qpos()[1]) for _ in range(5) if again.update(4) is None] == expected


def test_servo_refuses_numbers_that_it_sets_itself() -> None:
    with pytest.raises(ValueError, match="servo 'xl330' sets stiffness, armature: give either"):
        JointDrivePropertiesCfg(servo="xl330", stiffness=3.0, armature=0.1)
    with pytest.raises(ValueError, match="servo 'xl330' sets drive_type"):
        JointDrivePropertiesCfg(servo="xl330", drive_type="acceleration")
    with pytest.raises(ValueError, match="servo_gain needs a servo"):
        JointDrivePropertiesCfg(servo_gain=3.0)


def test_servos_need_physics_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_warp")
    (tmp_path / "wheel.xml").write_text(WHEEL, encoding="utf-8")
    sim = SimulationManager(SimulationManagerCfg(sim_device="warp:cpu"))
    drive = JointDrivePropertiesCfg(servo="xl330")
    sim.add_robot(RobotCfg("r", fpath=str(tmp_path / "wheel.xml"), drive_pros=drive))
    with pytest.raises(ConfigError, match=r"drive_pros\.servo and drive_pros\.backlash need sim_device 'cpu'"):
        sim.build()


def test_derived_fields_follow_steps_without_a_new_target(make: Make) -> None:
    sim, robot, backend = make(PENDULUM, servo="xl330")
    robot.set_qpos(torch.ones(1, 1))
    for _ in range(3):
        backend.read("xquat")
        sim.update(4)
        assert float(backend.read("xquat")[0, -1, 0]) == pytest.approx(np.cos(float(robot.get_qpos()) / 2), abs=1e-6)


@pytest.mark.parametrize("servo", ["xl330", "sts3215"])  # commands that are late, a goal of limited speed
def test_episode_begins_by_holding_the_pose_that_its_reset_sets(make: Make, servo: str) -> None:
    sim, robot, backend = make(servo=servo)
    for _ in range(2):
        backend.servos.delay[:] = 8
        sim.reset(torch.tensor([0]))
        robot.set_qpos(torch.ones(1, 1), target=False)
        for _ in range(5):
            sim.update(2)
            assert float(robot.get_qpos()) == pytest.approx(1.0, abs=1e-6)


def test_joint_with_play_is_where_it_was_set(make: Make) -> None:
    sim, robot, _ = make(PENDULUM, num_envs=2, servo="xl330", backlash=0.02)
    sim.update(40)
    before = robot.get_qpos()[0].clone()
    robot.set_qpos(torch.full((1, 1), 0.5), env_ids=torch.tensor([1]), target=False)
    assert robot.get_qpos()[:, 0].tolist() == pytest.approx([float(before), 0.5], abs=1e-6)
    state = sim.get_robot("r").get_state(torch.tensor([0, 1]))
    robot.set_state(state, torch.tensor([0, 1]))
    torch.testing.assert_close(robot.get_state(torch.tensor([0, 1])), state)


def test_velocity_that_is_set_is_the_motors_too_and_motors_are_no_links(make: Make) -> None:
    speeds = []
    for backlash in (0.0, 0.02):
        sim, robot, _ = make(servo="xl330", backlash=backlash)
        sim.reset(torch.tensor([0]))
        robot.set_qvel(torch.full((1, 1), 6.0))
        sim.update(3)
        speeds.append(float(robot.get_qvel()))
        assert robot.get_user_ids().shape == (1, len(robot.link_names))
    assert min(speeds) > 3.0  # and not stopped by a resting motor


def test_joints_of_one_body_have_play_of_their_own(make: Make) -> None:
    two = WHEEL.replace(
        '<joint name="hinge" axis="0 1 0"/>',
        '<joint name="a" axis="0 1 0"/><joint name="b" axis="1 0 0" damping="0.1"/>',
    )
    sim, robot, _ = make(two, stiffness=1.0, damping=0.1, armature=0.002, backlash={"b": 0.02})
    robot.set_qpos(torch.tensor([[0.3, 0.4]]))
    for _ in range(300):
        sim.update(4)
    assert robot.joint_names == ["a", "b"]
    assert robot.get_qpos()[0].tolist() == pytest.approx([0.3, 0.4], abs=0.025)
    assert float(robot.drives.read()["armature"][0, 1]) == pytest.approx(0.002)


def test_joint_that_mimics_another_follows_it_behind_its_play(make: Make) -> None:
    other = WHEEL[len("<mujoco><worldbody>") : WHEEL.index("</worldbody>")].replace("wheel", "other")
    mimic = '</worldbody><equality><joint joint1="free" joint2="hinge" polycoef="0.1 2 0 0 0"/></equality>'
    text = PENDULUM.replace("</worldbody>", other.replace("hinge", "free") + mimic)
    sim, robot, backend = make(text, servo="xl330", backlash=0.05)
    assert robot.get_qpos().tolist() == [[0.0, pytest.approx(0.1)]]
    for _ in range(100):
        sim.update(4)
    hinge, motor, free = backend._batch.qpos[0]
    assert hinge - motor == pytest.approx(0.05, abs=3e-3)
    assert free == pytest.approx(0.1 + 2 * hinge, abs=1e-3)
    robot.set_qpos(torch.full((1, 1), 0.3), [0], target=False)
    assert robot.get_qpos().tolist() == [[pytest.approx(0.3), pytest.approx(0.7)]]


@pytest.mark.parametrize("drive", [{"servo": "xl330"}, {"backlash": 0.01, "stiffness": 1.0}])
def test_servos_and_play_refuse_targets_that_are_no_positions(make: Make, drive: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^velocity targets: servos and drives with play"):
        make(**drive)[1].drives.set_mode("velocity", [0])


def test_servo_of_a_slide_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="servo: joint 'hinge' is not a hinge"):
        make(WHEEL.replace('<joint name="hinge"', '<joint type="slide" name="hinge"'), servo="xl330")


def test_servos_of_two_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wheel.xml").write_text(WHEEL, encoding="utf-8")
    sim = SimulationManager(SimulationManagerCfg(num_envs=1, physics_dt=0.005, sim_device="cpu"))
    for servo in ("xl330", "sts3215"):
        drive = JointDrivePropertiesCfg(servo=servo)
        sim.add_robot(RobotCfg(servo, fpath=str(tmp_path / "wheel.xml"), drive_pros=drive))
    with pytest.raises(ValueError, match="of different kinds"):
        sim.build()
