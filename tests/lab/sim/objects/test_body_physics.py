"""What bodies are made of, by environment. Shapes: N = 2 environments."""

import itertools
from pathlib import Path

import mujoco
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import RigidBodyAttributesCfg, RigidObjectCfg
from embodichain.lab.sim.shapes import CapsuleCfg, CubeCfg, CylinderCfg, MeshCfg, PlaneCfg, ShapeCfg, SphereCfg
from embodichain.utils import replace
from tests.lab.scenes import simulate

ONE = torch.tensor([1])
FREE = RigidBodyAttributesCfg(mass=2.0, linear_damping=0.5, angular_damping=0.25)


def body(shape: ShapeCfg, **cfg: object) -> RigidObjectCfg:
    return RigidObjectCfg(uid="body", shape=shape, attrs=FREE, init_pos=(0.0, 0.0, 1.0), **cfg)  # type: ignore[arg-type]


def of_model(sim: SimulationManager, name: str) -> torch.Tensor:
    return sim.backend.read_model(name)[:, sim.model.body("body").id].float()


def test_inertia_and_damping_follow_the_mass() -> None:
    sim = simulate(body(CubeCfg(size=(0.1, 0.2, 0.3))), num_envs=2)
    physics = sim.get_rigid_object("body").physics
    physics.set_mass(torch.tensor([6.0]), ONE)
    assert physics.get_mass().tolist() == [[2.0], [6.0]]
    # m / 12 (b^2 + c^2), ...
    expected = torch.tensor([[2.0], [6.0]]) / 12 * torch.tensor([[0.13, 0.10, 0.05]])
    torch.testing.assert_close(physics.get_inertia(), expected)
    torch.testing.assert_close(of_model(sim, "body_inertia"), expected)
    damping = torch.cat((torch.tensor([[1.0] * 3, [3.0] * 3]), 0.25 * expected), dim=1)
    torch.testing.assert_close(sim.backend.read_model("dof_damping").float(), damping)


def test_heavier_body_gives_way_less() -> None:
    sim = simulate(body(SphereCfg()), num_envs=2, gravity=(0.0, 0.0, 0.0))
    sim.get_rigid_object("body").physics.set_mass(torch.tensor([8.0]), ONE)
    sim.backend.write("qfrc_applied", slice(0, 1), torch.tensor([[4.0]]))
    sim.update(1)
    # v = F dt / m / (1 + 0.5 dt), damping proportional to the mass
    assert sim.backend.qvel[:, 0].tolist() == pytest.approx([0.02 / 1.005, 0.005 / 1.005])


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("shape", "scale", "resized"),
    [
        (CubeCfg(size=(0.2, 0.4, 0.6)), [2.0, 3.0, 0.5], CubeCfg(size=(0.4, 1.2, 0.3))),
        (SphereCfg(radius=0.1), [2.0, 2.0, 2.0], SphereCfg(radius=0.2)),
        (CylinderCfg(radius=0.1, height=0.4), [2.0, 2.0, 0.5], CylinderCfg(radius=0.2, height=0.2)),
        (CapsuleCfg(radius=0.1, height=0.4), [0.5, 0.5, 0.5], CapsuleCfg(radius=0.05, height=0.2)),
    ],
)
def test_scaled_body_is_as_one_configured_so(shape: ShapeCfg, scale: list[float], resized: ShapeCfg) -> None:
    sim = simulate(body(shape), num_envs=2)
    physics = sim.get_rigid_object("body").physics
    physics.set_body_scale(torch.tensor([scale]), ONE)
    sim.update(1)
    geom = sim.model.geom("body").id
    for row, alone in enumerate((simulate(body(shape)), simulate(body(resized)))):
        for name in ("body_mass", "body_inertia", "body_invweight0"):
            torch.testing.assert_close(of_model(sim, name)[row], of_model(alone, name)[0])
        for name in ("geom_size", "geom_rbound", "geom_aabb"):
            ours = sim.backend.read_model(name)[row, geom].float()
            torch.testing.assert_close(ours, alone.backend.read_model(name)[0, geom].float(), atol=1e-6, rtol=0)


@pytest.mark.e2e
def test_shape_that_cannot_be_scaled_so_is_refused(tmp_path: Path) -> None:
    scale = torch.tensor([[1.0, 2.0, 1.0]])
    for shape, what in ((SphereCfg(), "x, y, z"), (CapsuleCfg(), "x, y, z"), (CylinderCfg(), "x, y")):
        physics = simulate(body(shape)).get_rigid_object("body").physics
        with pytest.raises(ValueError, match=f"is scaled by the same factor along {what}$"):
            physics.set_body_scale(scale, torch.tensor([0]))
    plane = RigidObjectCfg(uid="plane", shape=PlaneCfg(), body_type="static")
    with pytest.raises(ValueError, match="a Plane cannot be scaled in single environments"):
        simulate(plane).get_rigid_object("plane").physics.set_body_scale(scale, torch.tensor([0]))


def test_body_slides_by_its_own_friction() -> None:
    flat = CubeCfg(size=(0.4, 0.4, 0.02))
    sim = simulate(RigidObjectCfg(uid="body", shape=flat, init_pos=(0, 0, 0.01), attrs=_smooth()), num_envs=2)
    cube = sim.get_rigid_object("body")
    assert cube.physics.get_friction().flatten().tolist() == [0.5, 0.5]
    cube.physics.set_friction(torch.tensor([0.25, 0.1]), torch.tensor([0, 1]))
    sim.update(50)
    cube.set_velocity(torch.tensor([[2.0, 0, 0, 0, 0, 0]]).expand(2, 6))
    sim.update(20)
    # v - mu g t after 0.2 s: 2 - 0.4905, 2 - 0.1962; the contacts are soft
    assert cube.get_velocity()[:, 0].tolist() == pytest.approx([1.51, 1.80], abs=0.1)


def _smooth() -> RigidBodyAttributesCfg:
    return RigidBodyAttributesCfg(linear_damping=0.0, angular_damping=0.0)


def with_variant(mesh: Path, other: Path, num_envs: int = 2) -> SimulationManager:
    """Return a scene with a body of one mesh, which may have another."""
    sim = SimulationManager(SimulationManagerCfg(num_envs=num_envs, num_threads=1))
    sim.add_rigid_object(body(MeshCfg(fpath=str(mesh))))
    sim.add_mesh_variants("body", [other])
    sim.build()
    return sim


def varied(shape: ShapeCfg) -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1, gravity=(0.0, 0.0, 0.0)))
    sim.add_rigid_object(body(shape))
    sim.vary_inertia("body")
    sim.build()
    return sim


def test_push_beside_the_centre_of_mass_turns_the_body() -> None:
    sim = varied(CubeCfg(size=(0.2, 0.2, 0.2)))
    cube = sim.get_rigid_object("body")
    cube.physics.set_center_of_mass_offset(torch.tensor([[0.0, 0.05, 0.0]]), ONE)
    torch.testing.assert_close(cube.physics.get_center_of_mass(), torch.tensor([[0.0] * 3, [0.0, 0.05, 0.0]]))
    sim.backend.write("qfrc_applied", slice(0, 1), torch.tensor([[4.0]]))
    sim.update(1)
    # The force 4 N at the origin has the moment 4 * 0.05 about the centre; I = 2 * 0.04 / 6; 0.01 s
    spin = 0.2 / (2 * 0.04 / 6) * 0.01
    assert cube.get_velocity()[:, 5].tolist() == pytest.approx([0.0, spin], rel=0.02)


def write_box(path: Path, *edges: float) -> Path:
    """Write a block, of one edge a cube, with one corner at the origin."""
    sides = [(0.0, edge) for edge in (edges * 3)[:3]]
    corners = "".join(f"v {x} {y} {z}\n" for x, y, z in itertools.product(*sides))
    faces = ("1 2 4 3", "5 7 8 6", "1 5 6 2", "3 4 8 7", "1 3 7 5", "2 6 8 4")
    path.write_text(corners + "".join(f"f {face}\n" for face in faces))
    return path


def test_each_env_may_have_another_mesh(tmp_path: Path) -> None:
    sim = with_variant(write_box(tmp_path / "a.obj", 0.1), write_box(tmp_path / "b.obj", 0.4), num_envs=3)
    mesh = sim.get_rigid_object("body")
    assert mesh.physics.num_variants == 2
    mesh.physics.choose_variant(torch.tensor([1, 0]), torch.tensor([1, 2]))
    # a cube of edge a: m a^2 / 6 about its centre at a / 2
    edge = torch.tensor([[0.1], [0.4], [0.1]])
    torch.testing.assert_close(of_model(sim, "body_inertia"), (2 * edge**2 / 6).expand(3, 3))
    torch.testing.assert_close(of_model(sim, "body_ipos"), (edge / 2).expand(3, 3))
    sim.update(300)
    # The origin is at a corner on the ground. They fall flat: nothing else touches.
    torch.testing.assert_close(mesh.pos[:, 2], torch.zeros(3), atol=5e-3, rtol=0)


def test_drawn_mass_stays_with_another_mesh(tmp_path: Path) -> None:
    sim = with_variant(write_box(tmp_path / "a.obj", 0.1), write_box(tmp_path / "b.obj", 0.4))
    physics = sim.get_rigid_object("body").physics
    physics.set_mass(torch.tensor([3.0]), ONE)
    physics.choose_variant(torch.tensor([1, 1]), torch.tensor([0, 1]))
    assert physics.get_mass().flatten().tolist() == [2.0, 3.0]
    # m a^2 / 6 of a cube with the edge 0.4
    assert of_model(sim, "body_inertia")[:, 0].tolist() == pytest.approx([0.16 / 3, 0.08])


def test_friction_is_of_the_mesh_that_an_env_has(tmp_path: Path) -> None:
    sim = with_variant(write_box(tmp_path / "a.obj", 0.1), write_box(tmp_path / "b.obj", 0.4))
    mesh = sim.get_rigid_object("body")
    mesh.physics.choose_variant(torch.tensor([1]), ONE)
    mesh.physics.set_friction(torch.tensor([0.25, 0.1]), torch.tensor([0, 1]))
    assert mesh.physics.get_friction().flatten().tolist() == pytest.approx([0.25, 0.1])
    sim.update(150)  # falls and comes to rest
    mesh.set_velocity(torch.tensor([[2.0, 0, 0, 0, 0, 0]]).expand(2, 6))
    sim.update(20)
    # as in the test above: v - mu g t
    assert mesh.get_velocity()[:, 0].tolist() == pytest.approx([1.51, 1.80], abs=0.1)


def test_damping_turns_no_body_whose_centre_is_not_its_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = body(MeshCfg(fpath=str(write_box(tmp_path / "a.obj", 0.1))))
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.add_rigid_object(mesh)
    sim.add_rigid_object(replace(body(CubeCfg()), uid="cube", init_pos=(2.0, 0.0, 1.0)))
    sim.vary_inertia("cube")
    sim.build()
    assert "body.attrs.linear_damping (its centre of mass is not its origin)" in capsys.readouterr().err
    falling, cube = sim.get_rigid_object("body"), sim.get_rigid_object("cube")
    cube.physics.set_center_of_mass_offset(torch.tensor([[0.02, 0.0, 0.0]]), ONE)
    assert falling.physics.get_damping().tolist() == [[0.0], [0.0]]
    assert cube.physics.get_damping().tolist() == [[0.5], [0.0]]
    sim.update(30)
    for thing in (falling, cube):
        torch.testing.assert_close(thing.get_velocity()[:, 3:], torch.zeros(2, 3), atol=1e-5, rtol=0)
    # 30 steps of 0.01 s: v = 9.81 t, or with the rate 0.5 (implicit) the sum of g dt / 1.005^k
    damped = 9.81 * 0.01 * sum(1.005**-k for k in range(1, 31))
    assert cube.get_velocity()[:, 2].tolist() == pytest.approx([-damped, -2.943], rel=1e-4)


def test_spin_decays_at_one_rate_whatever_the_axis(tmp_path: Path) -> None:
    # The principal axes of a rod along x are not in the order of the body's.
    rod, other = write_box(tmp_path / "a.obj", 0.4, 0.02, 0.04), write_box(tmp_path / "b.obj", 0.02, 0.4, 0.04)
    sim = with_variant(rod, other)
    initial = torch.from_numpy(sim.model.dof_damping).float()
    torch.testing.assert_close(sim.backend.read_model("dof_damping")[0].float(), initial)
    sim.get_rigid_object("body").physics.choose_variant(torch.tensor([1]), ONE)
    x, y, z = 0.4**2, 0.02**2, 0.04**2
    about = torch.tensor([[y + z, x + z, x + y], [x + z, y + z, x + y]])  # times m / 12
    damping = sim.backend.read_model("dof_damping")[:, 3:].float()
    torch.testing.assert_close(damping, 0.25 * 2 / 12 * about, rtol=1e-3, atol=0)


def test_pictures_have_each_envs_sizes_and_meshes(tmp_path: Path) -> None:
    block = RigidObjectCfg(
        uid="block", shape=MeshCfg(fpath=str(write_box(tmp_path / "a.obj", 0.1))), body_type="static"
    )
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1))
    sim.add_rigid_object(body(CubeCfg(size=(0.2, 0.2, 0.2))))
    sim.add_rigid_object(block)
    sim.add_mesh_variants("block", [write_box(tmp_path / "b.obj", 0.4)])
    sim.build()
    sim.get_rigid_object("body").physics.set_body_scale(torch.tensor([[2.0, 2.0, 3.0]]), ONE)
    sim.get_rigid_object("block").physics.choose_variant(torch.tensor([1]), ONE)
    data = mujoco.MjData(sim.backend.visual_model)
    model = sim.backend.visual_model
    first = model.body("block").geomadr[0]
    seen = []
    for env_id in (1, 0):
        sim.backend.load_render_data(env_id, data)
        seen.append((model.geom("body").size.tolist(), model.geom_group[first : first + 2].tolist()))
    assert seen[0] == (pytest.approx([0.2, 0.2, 0.3]), [5, 0])
    assert seen[1] == (pytest.approx([0.1, 0.1, 0.1]), [0, 5])
