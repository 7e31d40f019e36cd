"""Contacts of a box that falls, and of a quadruped that stands. Shapes: N environments, F links."""

from typing import Any

import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import ArticulationCfg, ContactSensorCfg
from embodichain.lab.sim.sensors import ContactSensor
from embodichain.utils import ConfigError
from tests.lab.legs import FEET, legs_env

DT = 0.005  # of a substep, s
WEIGHT = 2.0 * 9.81  # of the box, N
BOX = """
<mujoco>
  <worldbody>
    <body name="box">
      <freejoint/>
      <geom name="hull" type="box" size="0.1 0.1 0.1" mass="1.9"/>
      <body name="lid" pos="0 0 0.1">
        <joint name="hinge" type="slide" axis="0 0 1" range="0 0.001" damping="1"/>
        <geom name="lamp" type="sphere" size="0.01" mass="0.1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def falling(tmp_path: Any, height: float, num_envs: int = 1, **cfg: Any) -> tuple[SimulationManager, ContactSensor]:
    """Return a scene with a box of 2 kg whose lower side is at a height (m), and its sensor."""
    path = tmp_path / "box.xml"
    path.write_text(BOX)
    sim = SimulationManager(SimulationManagerCfg(num_envs=num_envs, num_threads=1, physics_dt=DT))
    sim.add_articulation(ArticulationCfg(uid="crate", fpath=str(path), fix_base=False, init_pos=(0, 0, 0.1 + height)))
    sim.add_sensor(ContactSensorCfg("touch", **{"entity": "crate", "link_names": ["box"], **cfg}))
    sim.build()
    return sim, sim.get_contact_sensor("touch")


def test_box_lands_once_and_then_rests_with_its_weight(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=0.05)
    landed, heights = [], []
    for _ in range(100):
        sim.update(4)
        landed.append(bool(touch.first_contact[0, 0]))
        heights.append(float(touch.pos[0, 0, 2]))
    # sqrt(2 * 0.05 / 9.81) = 0.101 s: in the sixth control step of 0.02 s. The force of the last substep is that of
    # the state before it.
    assert landed.index(True) == 5
    assert sum(landed) == 1
    assert float(touch.last_air_time) == pytest.approx(6 * 0.02)
    assert float(touch.air_time) == 0.0
    # The step of the landing counts as air and as contact.
    assert float(touch.contact_time) == pytest.approx(95 * 0.02, abs=1e-5)
    torch.testing.assert_close(touch.force, torch.tensor([[[0.0, 0.0, WEIGHT]]]), atol=1e-2, rtol=0)
    assert heights[0] == pytest.approx(0.15, abs=2e-3)
    assert heights[-1] == pytest.approx(0.1, abs=1e-3)


def test_link_without_a_collision_shape_is_warned_of(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    falling(tmp_path, height=0.05)
    assert not caplog.messages
    falling(tmp_path, height=0.05, link_names=[".*"])
    (line,) = caplog.messages
    assert line.startswith(
        "sensor 'touch'.link_names: no collision shape, so that nothing is sensed there: lid (a robot's collision_links"
    )


def test_velocity_in_the_fall_is_that_before_the_last_substep(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=1.0)
    sim.update(4)
    # Three of the four substeps: -9.81 * 0.015
    torch.testing.assert_close(touch.vel[0, 0], torch.tensor([0.0, 0.0, -9.81 * 0.015]), atol=1e-5, rtol=0)
    assert not touch.in_contact.any()
    assert float(touch.air_time) == pytest.approx(0.02)


def test_box_that_is_lifted_has_completed_a_contact(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=0.0)
    for _ in range(5):
        sim.update(4)
    assert touch.in_contact.all()
    assert float(touch.contact_time) == pytest.approx(0.1)
    assert not touch.first_contact.any()
    assert float(touch.last_contact_time) == 0.0
    crate = sim.get_articulation("crate")
    crate.base.set(torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]]), torch.tensor([0]))
    sim.update(4)
    assert float(touch.last_contact_time) == pytest.approx(0.12)
    assert float(touch.contact_time) == 0.0
    assert float(touch.air_time) == pytest.approx(0.02)


def test_force_below_the_threshold_is_no_contact(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=0.0, force_threshold=WEIGHT + 1.0)
    for _ in range(50):
        sim.update(4)
    assert float(touch.force[0, 0, 2]) == pytest.approx(WEIGHT, abs=0.1)
    assert not touch.in_contact.any()


def test_reset_and_update_touch_only_their_rows(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=0.0, num_envs=2)
    for _ in range(3):
        sim.update(4)
    sim.reset(torch.tensor([1]))
    assert touch.contact_time[:, 0].tolist() == pytest.approx([0.06, 0.0])
    assert touch.in_contact[:, 0].tolist() == [True, False]
    force = touch.force.clone()
    sim.update(4, torch.tensor([1]))
    assert touch.contact_time[:, 0].tolist() == pytest.approx([0.06, 0.02])
    assert torch.equal(touch.force[0], force[0])


def test_shape_is_sensed_where_no_link_has_the_name(tmp_path: Any) -> None:
    sim, touch = falling(tmp_path, height=0.0, link_names=["hull"])
    assert touch.names == ["hull"]
    for _ in range(50):
        sim.update(4)
    assert float(touch.force[0, 0, 2]) == pytest.approx(WEIGHT, abs=0.1)
    assert float(touch.pos[0, 0, 2]) == pytest.approx(0.1, abs=1e-3)


def test_shape_that_collides_with_nothing_is_no_link_to_sense(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"sensor 'touch'.link_names: unknown link 'lamp'. .*Known: box, hull, lid"):
        falling(tmp_path, 0.0, link_names=["lamp"])


def test_feet_of_a_standing_robot_carry_its_weight() -> None:
    env = legs_env(1, max_episode_steps=200)
    env.reset(seed=1)
    for _ in range(80):  # 1.6 s
        env.step(torch.zeros(1, 12))
    feet = env.sim.get_contact_sensor("feet")
    assert feet.names == FEET
    weight = 9.81 * float(env.sim.model.body_mass.sum())
    assert float(feet.force[0, :, 2].sum()) == pytest.approx(weight, rel=0.01)
    assert feet.in_contact.all()
    assert (feet.force[0, :, 2] > 0.1 * weight).all()
