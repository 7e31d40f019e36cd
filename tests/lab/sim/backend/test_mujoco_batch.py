"""Physics on threads: what one environment does is its own affair. Shapes: N environments."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from mujoco.batch import Batch
from torch import Tensor

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend
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


def push(sim: SimulationManager) -> None:
    """Give environment i the drive targets and the cube position of index i."""
    index = torch.arange(sim.num_envs, dtype=torch.float32)[:, None]
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


def test_reading_poses_keeps_the_forces_of_the_last_substep() -> None:
    sim = scene(2)
    sim.backend.read_last("actuator_force")
    sim.update(1)
    forces = sim.backend.read_last("actuator_force").clone()
    push(sim)
    sim.backend.read("xpos")
    assert torch.equal(sim.backend.read_last("actuator_force"), forces)
    assert not torch.equal(sim.backend.read("actuator_force"), forces)


def test_moving_one_env_leaves_the_bits_of_the_others_alone() -> None:
    one, two = scene(3), scene(3)
    cube = two.get_rigid_object("cube")
    cube.set_local_pose(torch.tensor([[0.3, 0.4, 0.5, 1.0, 0.0, 0.0, 0.0]]), torch.tensor([1]))
    cube.set_velocity(torch.full((1, 6), 2.0), torch.tensor([1]))
    for sim in (one, two):
        sim.update(60)
    assert torch.equal(physics(one)[[0, 2]], physics(two)[[0, 2]])
    assert not torch.equal(physics(one)[1], physics(two)[1])


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
def test_derived_field_is_current_after_every_change(change: str) -> None:
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


def test_partial_reset_recomputes_derived_fields_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, forward = scene(3), Batch.forward
    computed: list[list[int]] = []

    def record(batch: Batch, ids: np.ndarray, stage: int) -> None:
        computed.append(ids.tolist())
        forward(batch, ids, stage)

    sim.backend.read("xpos")
    sim.update(7)
    sim.backend.read("xpos")
    monkeypatch.setattr(Batch, "forward", record)
    sim.reset(torch.tensor([1]))
    pos = sim.backend.read("xpos")
    assert computed == [[1]]
    for env_id in range(3):
        np.testing.assert_allclose(pos[env_id], fresh(sim, env_id).xpos, atol=1e-6)


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


def test_part_of_a_model_field_is_written_in_the_named_envs_only() -> None:
    sim = simulate(ur10(), num_envs=3)
    before = sim.backend.read_model("actuator_biasprm").clone()
    values = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]], [[-5.0, -6.0], [-7.0, -8.0]]])
    sim.backend.write_model("actuator_biasprm", ([4, 1], slice(1, 3)), values, torch.tensor([2, 0]))
    before[2, [4, 1], 1:3], before[0, [4, 1], 1:3] = values.double()
    assert torch.equal(sim.backend.read_model("actuator_biasprm"), before)


def test_derived_field_follows_a_written_model_field() -> None:
    sim = simulate(ur10(), num_envs=2)
    base = sim.model.body("arm/base_link").id
    before = sim.backend.read("xpos")[:, base].clone()
    sim.backend.write_model("body_pos", base, torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([1]))
    moved = sim.backend.read("xpos")[:, base] - before
    torch.testing.assert_close(moved, torch.tensor([[0.0, 0, 0], [0, 2, 1]]))


def test_engine_writes_no_log_file_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = simulate(BALL, num_envs=2)
    sim.backend.write("qvel", slice(0, 3), torch.full((1, 3), 1e15), torch.tensor([1]))
    sim.update(4)
    assert sim.backend.diverged() is not None
    assert list(tmp_path.iterdir()) == []
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_field_that_only_sensors_need_is_refused_without_them(tmp_path: Path) -> None:
    def read(sensors: str) -> Tensor:
        body = "<body name='b' pos='0 0 1'><freejoint/><geom size='.1'/><site name='s'/></body>"
        path = tmp_path / "scene.xml"
        path.write_text(
            f"<mujoco><worldbody>{body}</worldbody><sensor>{sensors}</sensor><keyframe><key/></keyframe></mujoco>"
        )
        model = mujoco.MjModel.from_xml_path(str(path))
        return MujocoBatchBackend(model, model, 1, 1).read("cacc")

    assert read("<accelerometer site='s'/>")[0, 1, 5] == pytest.approx(0.0, abs=1e-6)  # it falls freely
    assert read("<framelinacc objtype='site' objname='s'/>")[0, 0, 5] == pytest.approx(9.81)  # the world does not
    with pytest.raises(ConfigError, match="'cacc' is computed for sensors alone, and the model has none of accelero"):
        read("<gyro site='s'/>")


def test_exact_reads_have_all_digits_of_the_state() -> None:
    sim = simulate(BALL)
    third = torch.tensor([[1 / 3]], dtype=torch.float64)
    sim.backend.write("qpos", slice(0, 1), third)
    assert sim.backend.read_exact("qpos")[0, 0].item() == 1 / 3
    assert sim.backend.read("qpos")[0, 0].item() != 1 / 3  # float32
