"""Physics on threads: what one environment does is its own affair. Shapes: N environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.backend.mujoco_batch import Coordinates
from embodichain.lab.sim.cfg import RigidBodyAttributesCfg, RigidObjectCfg
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from embodichain.utils import ConfigError
from tests.lab.scenes import HOME, simulate, ur10

CUBE = RigidObjectCfg(uid="cube", shape=CubeCfg(), init_pos=(-0.6, 0.0, 0.2), init_rot=(20.0, 10.0, 0.0))
BALL = RigidObjectCfg(
    uid="ball", shape=SphereCfg(), init_pos=(0.0, 0.0, 5.0), attrs=RigidBodyAttributesCfg(linear_damping=0.0)
)


def scene(num_envs: int, num_threads: int = 1) -> SimulationManager:
    return simulate(ur10(), CUBE, num_envs=num_envs, num_threads=num_threads)


def push(sim: SimulationManager, start: int = 0) -> None:
    """Give environment i the drive targets and the cube position of index start + i."""
    index = torch.arange(start, start + sim.num_envs, dtype=torch.float32)[:, None]
    sim.get_robot("arm").set_qpos(torch.tensor([HOME]) + 0.05 * index)
    pose = sim.get_rigid_object("cube").get_local_pose().clone()
    pose[:, :1] += 0.01 * index
    sim.get_rigid_object("cube").set_local_pose(pose)


def physics(sim: SimulationManager) -> Tensor:
    return torch.cat((sim.backend.qpos, sim.backend.qvel), dim=1)


def fresh(sim: SimulationManager, env_id: int) -> mujoco.MjData:
    """Compute everything that follows from one environment's state."""
    data = mujoco.MjData(sim.model)
    for name in ("qpos", "qvel", "ctrl"):
        getattr(data, name)[:] = getattr(sim.backend, name)[env_id]
    mujoco.mj_forward(sim.model, data)
    return data


def test_same_scene_gives_the_same_bits_at_one_and_two_threads() -> None:
    results = []
    for threads in (1, 2, 2):
        sim = scene(3, threads)
        push(sim)
        sim.update(60)
        results.append(physics(sim))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[1], results[2])


def test_moving_one_env_leaves_the_bits_of_the_others_alone() -> None:
    one, two = scene(3), scene(3)
    cube = two.get_rigid_object("cube")
    cube.set_local_pose(torch.tensor([[0.3, 0.4, 0.5, 1.0, 0.0, 0.0, 0.0]]), torch.tensor([1]))
    cube.set_velocity(torch.full((1, 6), 2.0), torch.tensor([1]))
    for sim in (one, two):
        sim.update(60)
    assert torch.equal(physics(one)[[0, 2]], physics(two)[[0, 2]])
    assert not torch.equal(physics(one)[1], physics(two)[1])


def test_eight_envs_are_eight_times_one_env() -> None:
    together = scene(8, 2)
    push(together)
    together.update(60)
    for i in range(8):
        alone = scene(1)
        push(alone, start=i)
        alone.update(60)
        assert torch.equal(physics(alone)[0], physics(together)[i])


def test_partial_reset_touches_only_its_rows() -> None:
    sim = scene(3)
    initial = physics(sim)
    push(sim)
    sim.update(60)
    moved = physics(sim)
    sim.reset(torch.tensor([1]))
    assert torch.equal(physics(sim)[[0, 2]], moved[[0, 2]])
    assert torch.equal(physics(sim)[1], initial[1])
    assert sim.backend.ctrl[1].tolist() == pytest.approx(HOME)
    assert sim.backend.ctrl[0].tolist() == pytest.approx(HOME)  # env 0's index is 0: its target was home
    assert sim.backend.ctrl[2].tolist() == pytest.approx([q + 0.1 for q in HOME])


def test_envs_after_a_reset_run_as_new_ones_do() -> None:
    sim, new = scene(2), scene(2)
    push(sim)
    sim.update(60)
    sim.reset(torch.arange(2))
    for each in (sim, new):
        push(each)
        each.update(60)
    assert torch.equal(physics(sim), physics(new))


@pytest.mark.parametrize("change", ["step", "write", "reset"])
def test_derived_field_is_of_the_current_state_after_every_change(change: str) -> None:
    sim = scene(2)
    push(sim)
    sim.backend.read("xpos")
    sim.backend.read("qfrc_actuator")
    if change == "step":
        sim.update(7)
    elif change == "write":
        sim.backend.write("qpos", slice(0, 2), torch.tensor([[0.3, -1.0]]), torch.tensor([1]))
    else:
        sim.update(7)
        sim.reset(torch.tensor([0]))
    for env_id in range(2):
        data = fresh(sim, env_id)
        np.testing.assert_allclose(sim.backend.read("xpos")[env_id], data.xpos, atol=1e-6)
        np.testing.assert_allclose(sim.backend.read("qfrc_actuator")[env_id], data.qfrc_actuator, atol=2e-3)


def test_field_that_is_asked_for_first_after_a_step_is_current() -> None:
    sim = scene(1)
    push(sim, start=1)
    sim.update(7)
    np.testing.assert_allclose(sim.backend.read("xquat")[0], fresh(sim, 0).xquat, atol=1e-6)


def test_asking_for_derived_fields_does_not_change_what_happens() -> None:
    asked, left = scene(1), scene(1)
    for _ in range(20):
        asked.backend.read("xpos")
        asked.backend.read("cacc")
        asked.update(3)
        left.update(3)
    assert torch.equal(physics(asked), physics(left))


def test_tensors_handed_out_never_change_afterwards() -> None:
    sim = scene(2)
    tensors = [sim.backend.read(name) for name in ("qpos", "qvel", "ctrl", "xpos")]
    copies = [tensor.clone() for tensor in tensors]
    push(sim)
    sim.update(10)
    for tensor in tensors:
        assert tensor.dtype == torch.float32
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda sim: sim.update(1),
        lambda sim: sim.reset(torch.tensor([0])),
        lambda sim: sim.backend.write("ctrl", slice(0, 1), torch.zeros(1, 1)),
    ],
    ids=["step", "reset", "write"],
)
def test_version_changes_with_every_change_and_with_no_reading(change: Callable[[SimulationManager], None]) -> None:
    sim = simulate(ur10())
    before = sim.backend.version
    sim.backend.read("xpos")
    assert sim.backend.version == before
    change(sim)
    assert sim.backend.version != before


def test_columns_by_index_are_written_in_the_named_envs_only() -> None:
    sim = simulate(ur10(), num_envs=3)
    sim.backend.write("ctrl", torch.tensor([4, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2, 0]))
    expected = torch.tensor([HOME] * 3)
    expected[2, 4], expected[2, 1], expected[0, 4], expected[0, 1] = 1.0, 2.0, 3.0, 4.0
    torch.testing.assert_close(sim.backend.ctrl, expected)


def test_model_field_gives_every_env_a_value_of_its_own() -> None:
    sim = simulate(BALL, num_envs=2)
    sim.backend.write_model("dof_damping", 2, torch.tensor(5.0), torch.tensor([1]))  # 1 kg: 5 N s/m
    assert sim.backend.read_model("dof_damping")[:, 2].tolist() == [0.0, 5.0]
    sim.update(10)
    # v <- (v - g dt) / (1 + c/m dt), ten times
    free = damped = 0.0
    for _ in range(10):
        free, damped = free - 0.0981, (damped - 0.0981) / 1.05
    assert sim.backend.qvel[:, 2].tolist() == pytest.approx([free, damped], rel=1e-6)


def test_model_field_that_was_never_written_is_the_same_in_every_env() -> None:
    sim = simulate(BALL, num_envs=2)
    assert sim.backend.read_model("body_mass").tolist() == [[0.0, 1.0]] * 2


def test_part_of_a_model_field_is_written_in_the_named_envs_only() -> None:
    sim = simulate(ur10(), num_envs=3)
    before = sim.backend.read_model("actuator_biasprm").clone()
    values = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]], [[-5.0, -6.0], [-7.0, -8.0]]])
    sim.backend.write_model("actuator_biasprm", ([4, 1], slice(1, 3)), values, torch.tensor([2, 0]))
    before[2, [4, 1], 1:3], before[0, [4, 1], 1:3] = values.double()
    assert torch.equal(sim.backend.read_model("actuator_biasprm"), before)


def test_constants_follow_the_model_field_before_the_next_step() -> None:
    sim = simulate(BALL, num_envs=2)
    sim.backend.write_model("body_mass", 1, torch.tensor([4.0]), torch.tensor([1]))
    before = sim.backend.version
    sim.update(1)
    assert sim.backend.version > before
    # Of a free body: 1 / mass.
    assert sim.backend.read_model("body_invweight0")[:, 1, 0].tolist() == [1.0, 0.25]


def test_derived_field_follows_a_written_model_field() -> None:
    sim = simulate(ur10(), num_envs=2)
    base = sim.model.body("arm/base_link").id
    before = sim.backend.read("xpos")[:, base].clone()
    sim.backend.write_model("body_pos", base, torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([1]))
    moved = sim.backend.read("xpos")[:, base] - before
    torch.testing.assert_close(moved, torch.tensor([[0.0, 0, 0], [0, 2, 1]]))


def test_reset_puts_what_was_written_as_initial() -> None:
    sim = simulate(ur10(), BALL, num_envs=2)
    sim.backend.write_initial("ctrl", torch.tensor([4, 1]), torch.tensor([7.0, 8.0]))
    sim.backend.write_initial("qvel", slice(0, 2), torch.tensor([0.5, 0.25]))
    sim.reset(torch.tensor([1]))
    assert sim.backend.ctrl[1].tolist() == pytest.approx([HOME[0], 8.0, HOME[2], HOME[3], 7.0, HOME[5]])
    assert sim.backend.ctrl[0].tolist() == pytest.approx(HOME)
    assert sim.backend.qvel[1].tolist() == [0.5, 0.25, *[0.0] * 10]


def test_named_envs_step_alone() -> None:
    sim = simulate(BALL, num_envs=3)
    sim.backend.step(2, torch.tensor([2, 0]))
    # -g t after two substeps of 0.01 s
    assert sim.backend.qvel[:, 2].tolist() == pytest.approx([-0.1962, 0.0, -0.1962])


def diverge(sim: SimulationManager) -> None:
    """Make the physics of environment 1 invalid."""
    sim.backend.write("qvel", slice(0, 3), torch.full((1, 3), 1e15), torch.tensor([1]))


def test_divergence_is_of_its_env_alone_and_ends_with_a_reset() -> None:
    sim, other = simulate(BALL, num_envs=3), simulate(BALL, num_envs=3)
    sim.update(4)
    assert sim.backend.diverged() is None
    diverge(sim)
    sim.update(4)
    diverged = sim.backend.diverged()
    assert diverged is not None
    assert diverged.tolist() == [False, True, False]
    other.update(8)
    assert torch.equal(physics(sim)[[0, 2]], physics(other)[[0, 2]])
    sim.reset(torch.tensor([1]))
    assert sim.backend.diverged() is None
    sim.update(4)
    other.reset(torch.tensor([1]))
    other.update(4)
    assert torch.equal(physics(sim), physics(other))


def test_control_that_is_no_number_counts_as_divergence() -> None:
    sim = simulate(ur10(), num_envs=2)
    sim.backend.write("ctrl", slice(0, 1), torch.tensor([[float("nan")]]), torch.tensor([0]))
    sim.update(1)
    diverged = sim.backend.diverged()
    assert diverged is not None
    assert diverged.tolist() == [True, False]


def test_engine_writes_no_log_file_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = simulate(BALL, num_envs=2)
    diverge(sim)
    sim.update(4)
    assert sim.backend.diverged() is not None
    assert list(tmp_path.iterdir()) == []
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_render_data_are_of_the_env_that_is_asked_for() -> None:
    sim = simulate(BALL, num_envs=2)
    sim.get_rigid_object("ball").set_local_pose(torch.tensor([[1.0, 2, 3, 1, 0, 0, 0]]), torch.tensor([1]))
    data = mujoco.MjData(sim.backend.visual_model)
    sim.backend.load_render_data(1, data)
    np.testing.assert_allclose(data.body("ball").xpos, [1, 2, 3])
    sim.backend.load_render_data(0, data)
    np.testing.assert_allclose(data.geom("ball").xpos, [0, 0, 5])


def test_zero_threads_means_one_for_each_processor() -> None:
    assert simulate(BALL, num_envs=2, num_threads=0).backend.num_envs == 2


def test_exact_reads_have_all_digits_of_the_state() -> None:
    sim = simulate(BALL)
    third = torch.tensor([[1 / 3]], dtype=torch.float64)

    sim.backend.write("qpos", slice(0, 1), third)

    assert sim.backend.read_exact("qpos")[0, 0].item() == 1 / 3
    assert sim.backend.read("qpos")[0, 0].item() != 1 / 3  # float32


def test_refreshed_rows_have_the_fields_of_their_present_state_and_others_keep_the_last_ones() -> None:
    sim = simulate(BALL, num_envs=2)
    sim.backend.read_last("xpos")
    sim.update(3)
    last = sim.backend.read_last_exact("xpos")[:, 1]

    sim.backend.refresh(torch.tensor([1]))

    now, height = sim.backend.read_last_exact("xpos")[:, 1], sim.backend.read_exact("qpos")[1, :3]
    assert torch.equal(now[0], last[0])
    assert torch.equal(now[1], height)
    assert now[1, 2] < last[1, 2]  # it falls


FREE = mujoco.MjModel.from_xml_string(
    """
    <mujoco><worldbody>
      <body><freejoint/><geom size="1"/><body><joint/><geom size="1"/></body></body>
      <body pos="5 0 0"><joint type="ball"/><geom size="1"/></body>
    </worldbody></mujoco>
    """
)
RESTING = """
<mujoco>
  <option timestep="0.01" gravity="0 0 -10" integrator="INTEGRATOR"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="ball" pos="0 0 0.1"><freejoint/><geom size="0.1" mass="2"/></body>
  </worldbody>
</mujoco>
"""


def random_state(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions [2, nq] and velocities [2, nv] of ``FREE``."""
    random = np.random.default_rng(seed)
    qpos, qvel = random.normal(size=(2, FREE.nq)), random.normal(size=(2, FREE.nv))
    for part in (slice(3, 7), slice(8, 12)):
        qpos[:, part] /= np.linalg.norm(qpos[:, part], axis=1, keepdims=True)
    return qpos, qvel


def test_positions_move_as_mujocos_do() -> None:
    qpos, qvel = random_state(0)

    moved = Coordinates(FREE).moved(qpos, 0.3 * qvel)

    for row, wanted in enumerate(qpos.copy()):
        mujoco.mj_integratePos(FREE, wanted, qvel[row], 0.3)
        assert moved[row] == pytest.approx(wanted, abs=1e-14)


def test_an_increment_grows_so_that_its_position_moves_with_the_velocity() -> None:
    qpos, qvel = random_state(1)
    coordinates, increment, dt = Coordinates(FREE), 0.4 * random_state(2)[1], 1e-6

    grown = coordinates.moved(qpos, increment + dt * coordinates.rate_of(increment, qvel))
    moved = coordinates.moved(coordinates.moved(qpos, increment), dt * qvel)

    assert grown == pytest.approx(moved, abs=1e-11)  # the error is of the order of dt^2


def test_no_increment_grows_with_the_velocity() -> None:
    _, qvel = random_state(1)

    assert (Coordinates(FREE).rate_of(np.zeros_like(qvel), qvel) == qvel).all()


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_the_ground_carries_a_ball_that_rests(tmp_path: Path, integrator: str) -> None:
    (tmp_path / "ball.xml").write_text(RESTING.replace("INTEGRATOR", integrator))
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.use_scene_file(str(tmp_path / "ball.xml"), external_forces=True)
    sim.build()
    sim.update(300)

    forces = sim.backend.read_last_exact("cfrc_ext")

    # On the ball, torque and force: 2 kg at 10 m/s^2. What acts on the world is not computed.
    assert forces[:, 1].flatten().tolist() == pytest.approx([0, 0, 0, 0, 0, 20] * 2, abs=0.05)
    assert (forces[:, 0] == 0).all()


def test_an_episode_begins_without_forces(tmp_path: Path) -> None:
    (tmp_path / "ball.xml").write_text(RESTING.replace("INTEGRATOR", "RK4"))
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.use_scene_file(str(tmp_path / "ball.xml"), external_forces=True)
    sim.build()
    sim.update(300)

    sim.reset(torch.tensor([0]))
    sim.backend.refresh(torch.tensor([0]))

    forces = sim.backend.read_last_exact("cfrc_ext")
    assert (forces[0] == 0).all()
    assert forces[1, 1, 5] > 19


def test_the_sensor_changes_nothing_in_the_physics(tmp_path: Path) -> None:
    (tmp_path / "ball.xml").write_text(RESTING.replace("INTEGRATOR", "RK4").replace("0 0 0.1", "0 0 0.13"))
    states = []
    for forces in (False, True):
        sim = SimulationManager(SimulationManagerCfg(num_threads=1))
        sim.use_scene_file(str(tmp_path / "ball.xml"), external_forces=forces)
        sim.build()
        sim.update(50)
        sim.update(1)
        states.append(torch.cat((sim.backend.read_exact("qpos"), sim.backend.read_exact("qvel")), dim=1))

    assert torch.equal(*states)


def test_forces_of_single_environments_are_those_of_their_own_steps(tmp_path: Path) -> None:
    (tmp_path / "ball.xml").write_text(RESTING.replace("INTEGRATOR", "RK4"))
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.use_scene_file(str(tmp_path / "ball.xml"), external_forces=True)
    sim.build()

    sim.update(3, torch.tensor([1]))

    forces, time = sim.backend.read_last_exact("cfrc_ext"), sim.backend.read_exact("time")
    assert (forces[0] == 0).all()
    assert (forces[1] != 0).any()
    assert time.tolist() == pytest.approx([0, 0.03])


def test_an_engine_that_does_not_compute_them_says_so_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^sim_device: contact forces on bodies .* by the engine 'cpu' alone$"):
        Backend.compute_external_forces(Mock(spec=Backend))
