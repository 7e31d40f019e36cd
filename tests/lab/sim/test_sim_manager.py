import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    JointDrivePropertiesCfg,
    MarkerCfg,
    RigidBodyAttributesCfg,
    RigidObjectCfg,
)
from embodichain.lab.sim.objects import Articulation, Marker, RigidObject, Robot
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from embodichain.utils import replace
from tests.lab.scenes import simulate, ur10

SOFT = JointDrivePropertiesCfg(stiffness=1.0, damping=0.1)
CUBE = RigidObjectCfg(uid="cube", shape=CubeCfg(), init_pos=(1.0, 0.0, 0.05))


@pytest.fixture(scope="module")
def sim() -> SimulationManager:
    cart = ArticulationCfg(uid="cart", fpath="cart_pole", init_pos=(0.0, 2.0, 0.5), drive_pros=SOFT)
    return simulate(ur10(), CUBE, cart, MarkerCfg(uid="goal", shape=SphereCfg()), num_envs=2)


def test_entities_are_found_by_kind_and_name(sim: SimulationManager) -> None:
    assert type(sim.get_robot("arm")) is Robot
    assert type(sim.get_articulation("cart")) is Articulation
    assert type(sim.get_rigid_object("cube")) is RigidObject
    assert type(sim.get_marker("goal")) is Marker
    assert sim.entity_uids == ["arm", "cart", "cube", "goal"]


def test_unknown_entity_is_a_key_error_with_known_names(sim: SimulationManager) -> None:
    with pytest.raises(KeyError, match=r"unknown rigid object 'cub'\. Did you mean 'cube'\? Known: cube"):
        sim.get_rigid_object("cub")
    with pytest.raises(KeyError, match=r"unknown robot 'cart'\..* Known: arm"):
        sim.get_robot("cart")
    with pytest.raises(KeyError, match=r"unknown articulation 'arm'\..* Known: cart"):
        sim.get_articulation("arm")


@pytest.mark.parametrize("damping", [0.0, 0.7])
def test_free_fall_is_the_integrators_exact_sum(damping: float) -> None:
    attrs = RigidBodyAttributesCfg(mass=2.0, linear_damping=damping)
    sim = simulate(RigidObjectCfg(uid="ball", shape=SphereCfg(), init_pos=(0.0, 0.0, 5.0), attrs=attrs))
    sim.update(substeps=50)
    # Damping is implicit: v <- (v - g dt) / (1 + rate dt), then z <- z + v dt. Without: z = 5 - g dt^2 (1 + ... + 50).
    speed, height = 0.0, 5.0
    for _ in range(50):
        speed = (speed - 9.81 * 0.01) / (1 + damping * 0.01)
        height += speed * 0.01
    if not damping:
        assert height == pytest.approx(5 - 9.81e-4 * 50 * 51 / 2)
    ball = sim.get_rigid_object("ball")
    assert ball.pos[0].tolist() == pytest.approx([0, 0, height], abs=1e-6)
    assert ball.get_velocity()[0, :3].tolist() == pytest.approx([0, 0, speed], abs=1e-6)


def test_body_rests_at_its_rest_offset_above_the_ground() -> None:
    cfg = {"shape": CubeCfg(), "attrs": RigidBodyAttributesCfg(rest_offset=0.01, contact_offset=0.02)}
    sim = simulate(RigidObjectCfg(uid="cube", init_pos=(0.0, 0.0, 0.08), **cfg))  # type: ignore[arg-type]
    sim.update(substeps=200)
    # half an edge, 0.05, plus 0.01; a kilogram presses soft contacts by a fraction of a millimetre
    assert sim.get_rigid_object("cube").pos[0, 2].item() == pytest.approx(0.06, abs=1e-4)


def test_contact_force_is_the_weight_that_is_carried() -> None:
    box = RigidObjectCfg("box", shape=CubeCfg(), init_pos=(1.0, 0, 0.05), sense_contacts=True)
    drawer = ArticulationCfg(
        "cabinet",
        fpath="drawer_cabinet",
        init_pos=(0.0, 0.0, 0.0),
        sense_contacts=["cabinet", "drawer_.*_handle"],
        drive_pros=JointDrivePropertiesCfg(stiffness=0.0, damping=0.0),
    )
    top = RigidObjectCfg(
        "top", shape=CubeCfg(), init_pos=(-0.2, 0, 0.674), attrs=RigidBodyAttributesCfg(mass=2.0), sense_contacts=True
    )
    flying = RigidObjectCfg("flying", shape=CubeCfg(), init_pos=(3.0, 0, 50.0), sense_contacts=True)
    sim = simulate(box, drawer, top, flying, num_envs=2)
    sim.update(100)
    for uid, link, force in (
        ("box", None, 9.81),  # 1 kg
        ("top", None, 2 * 9.81),
        ("cabinet", "cabinet", -2 * 9.81),
        ("cabinet", "drawer_top_handle", 0.0),
        ("flying", None, 0.0),
    ):
        expected = torch.tensor([[0.0, 0.0, force]] * 2)
        torch.testing.assert_close(sim.get_contact_force(uid, link), expected, atol=0.05, rtol=0)
    with pytest.raises(KeyError, match="unknown body with sense_contacts 'cabinet/drawer_top'"):
        sim.get_contact_force("cabinet", "drawer_top")


def test_physics_before_build_is_an_error() -> None:
    sim = SimulationManager(SimulationManagerCfg())
    sim.add_rigid_object(CUBE)
    with pytest.raises(RuntimeError, match=r"not built yet: call SimulationManager\.build"):
        sim.update()


@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu"])
def test_sim_device_is_a_name_or_a_torch_device(device: str | torch.device) -> None:
    given = SimulationManagerCfg(sim_device=device)
    assert given.sim_device == "cpu"
    assigned = SimulationManagerCfg()
    assigned.sim_device = device
    for cfg in (given, assigned, replace(assigned, num_envs=2)):
        sim = SimulationManager(cfg)
        sim.add_rigid_object(CUBE)
        sim.build()
        assert sim.device == torch.device("cpu")


def test_softened_drives_are_one_warning_at_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    gains = {".*": 100.0, "wrist_[23]_joint": 1e5}, {".*": 5.0, "wrist_[23]_joint": 1e3}
    stiff = JointDrivePropertiesCfg(stiffness=gains[0], damping=gains[1])
    sim = simulate(ur10(drive_pros=stiff))
    sim.get_robot("arm").drives.set_mode("effort", [4])
    assert capsys.readouterr().err == ""
    for _ in range(2):
        sim.update()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] drives too stiff for physics_dt 0.01, softened: arm/wrist_3_joint stiffness ")
    assert "wrist_2" not in line
    assert line.endswith(". A smaller env.sim_cfg.physics_dt with more env.sim_steps_per_control keeps their gains")
    again = simulate(ur10(drive_pros=stiff))  # as for the evaluation of a training
    again.get_robot("arm").drives.set_mode("effort", [4])
    again.update()
    assert capsys.readouterr().err == ""


def test_latest_simulation_is_known_until_it_is_destroyed() -> None:
    first, second = (SimulationManager(SimulationManagerCfg()) for _ in range(2))
    assert SimulationManager.is_instantiated()
    assert SimulationManager.get_instance() is second
    first.destroy()
    assert SimulationManager.get_instance() is second
    second.destroy()
    assert not SimulationManager.is_instantiated()
    with pytest.raises(RuntimeError, match="there is no SimulationManager"):
        SimulationManager.get_instance()
