"""Contact forces on bodies after a step. Shapes: N simulations."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.backend.external_forces import Coordinates
from embodichain.utils import ConfigError

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
