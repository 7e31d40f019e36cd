"""The GPU's engine, on the processor: it does what the threads do. Shapes: N environments."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim import backend as backend_module
from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.backend.mujoco_warp import Capacity
from embodichain.lab.sim.cfg import RigidObjectCfg
from embodichain.lab.sim.rows import row_numbers
from embodichain.lab.sim.shapes import MeshCfg
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze, thaw
from tests.lab.scenes import TETRAHEDRON, actions_for
from tests.lab.warp_scenes import CART, DRAWER, ENGINES, PICK, PUSH, env_on, needs_warp

pytestmark = needs_warp

N = 3
CUBE_DAMPING = 2.0  # 1/s, of the config
STATE = ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat")
DERIVED = ("xpos", "xquat", "xmat", "site_xpos", "site_xmat", "geom_xpos", "subtree_com", "cvel", "actuator_length")


@pytest.fixture(scope="module")
def envs() -> Iterator[dict[str, EmbodiedEnv]]:
    envs = {engine: env_on(engine, PUSH, N) for engine in ENGINES}
    yield envs
    for env in envs.values():
        env.close()


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest, envs: dict[str, EmbodiedEnv]) -> Backend:
    """An engine with all environments in their initial state."""
    backend = envs[request.param].sim.backend
    backend.reset(torch.arange(N))
    return backend


def copy_state(source: Backend, target: Backend) -> None:
    for name in (*STATE, "qacc_warmstart"):
        target.write(name, slice(None), source.read(name))


def physics(backend: Backend) -> Tensor:
    return torch.cat([backend.read(name).flatten(1) for name in STATE], dim=1)


@pytest.mark.e2e
@pytest.mark.parametrize("config", [PUSH, CART, DRAWER])
def test_one_step_is_the_same_on_both_engines(config: str, envs: dict[str, EmbodiedEnv]) -> None:
    pair = envs if config == PUSH else {engine: env_on(engine, config, N) for engine in ENGINES}
    batch, warp = (pair[engine].sim.backend for engine in ("batch", "warp"))
    env = pair["batch"]
    env.reset(seed=2)
    for k, action in enumerate(actions_for(env, 40)):
        env.step(action)
        if k % 8 == 0:
            copy_state(batch, warp)
            for each in (batch, warp):
                each.step(4)
            torch.testing.assert_close(warp.qpos, batch.qpos, atol=1e-4, rtol=0)
            torch.testing.assert_close(warp.qvel, batch.qvel, atol=1e-4, rtol=0)
            for name in DERIVED:
                torch.testing.assert_close(warp.read(name), batch.read(name), atol=1e-4, rtol=1e-4)
    assert warp.report() == []


def test_contacts_push_alike(envs: dict[str, EmbodiedEnv]) -> None:
    batch, warp = (envs[engine].sim.backend for engine in ("batch", "warp"))
    env = envs["batch"]
    env.reset(seed=2)
    # 1 cm into the ground, tilted, and sliding: the contact throws it up
    cube = env.sim.get_rigid_object("cube")
    pose = cube.get_local_pose().clone()
    pose[:, 2] -= 0.01
    pose[:, 3:] = torch.nn.functional.normalize(torch.tensor([1.0, 0.1, 0.05, 0.0]), dim=0)
    cube.set_local_pose(pose)
    cube.set_velocity(torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.0, 1.0]] * N))
    copy_state(batch, warp)
    before = batch.qvel
    for each in (batch, warp):
        each.step(4)
    assert (batch.qvel - before)[:, -6:].abs().max() > 0.1
    torch.testing.assert_close(warp.qpos, batch.qpos, atol=1e-4, rtol=0)
    torch.testing.assert_close(warp.qvel, batch.qvel, atol=1e-4, rtol=0)


def test_partial_reset_touches_only_its_rows(backend: Backend) -> None:
    initial = physics(backend)
    backend.write("ctrl", slice(0, 2), torch.tensor([[0.3, -1.0]] * N))
    backend.step(4)
    moved = physics(backend)
    backend.reset(torch.tensor([1]))
    assert torch.equal(physics(backend)[[0, 2]], moved[[0, 2]])
    assert torch.equal(physics(backend)[1], initial[1])
    assert not torch.equal(moved[1], initial[1])


@pytest.mark.e2e
def test_what_is_chosen_by_mask_changes_and_nothing_else(envs: dict[str, EmbodiedEnv]) -> None:
    backend = envs["warp"].sim.backend
    backend.reset(torch.arange(N))
    backend.step(4)
    before, mass = physics(backend), backend.read_model("body_mass")
    with backend.choose(torch.tensor([True, False, True])) as env_ids:
        assert len(env_ids) == 3
        assert row_numbers(env_ids).tolist() == [0, 2]
        backend.reset(env_ids)
        backend.write("ctrl", slice(0, 1), torch.tensor([[5.0], [6.0], [7.0]]), env_ids)
        backend.write("qvel", slice(0, 1), torch.full((N, 1), 0.5))
        backend.write_model("body_mass", (1,), torch.tensor([2.0, 3.0, 4.0]), env_ids)
        backend.step(2)
    after = physics(backend)
    assert torch.equal(after[1], before[1])
    assert (after[[0, 2]] != before[[0, 2]]).any(dim=1).all()
    assert backend.ctrl[:, 0].tolist() == [5.0, float(before[1, backend.qpos.shape[1] + backend.qvel.shape[1]]), 7.0]
    assert backend.read_model("body_mass")[:, 1].tolist() == [2.0, float(mass[1, 1]), 4.0]
    backend.write_model("body_mass", (1,), mass[:, 1])


def test_columns_by_index_are_written_in_the_named_envs_only(backend: Backend) -> None:
    expected = backend.ctrl.clone()
    backend.write("ctrl", torch.tensor([4, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2, 0]))
    expected[2, 4], expected[2, 1], expected[0, 4], expected[0, 1] = 1.0, 2.0, 3.0, 4.0
    torch.testing.assert_close(backend.ctrl, expected)


def test_reset_puts_what_was_written_as_initial(backend: Backend) -> None:
    before = backend.ctrl[0, :2].clone()
    backend.write_initial("ctrl", torch.tensor([1, 0]), torch.tensor([0.5, 0.25]))
    backend.reset(torch.tensor([1]))
    assert backend.ctrl[:, :2].tolist() == [before.tolist(), [0.25, 0.5], before.tolist()]
    backend.write_initial("ctrl", slice(0, 2), before)


def test_named_envs_step_alone(backend: Backend) -> None:
    backend.write("qpos", slice(-5, -4), torch.full((N, 1), 2.0))  # the cube, 2 m up
    backend.step(2, torch.tensor([2, 0]))
    # v <- (v - g dt) / (1 + c dt) twice, with the damping c of the config
    speed = 0.0
    for _ in range(2):
        speed = (speed - 0.0981) / (1.0 + 0.01 * CUBE_DAMPING)
    assert backend.qvel[:, -4].tolist() == pytest.approx([speed, 0.0, speed], rel=1e-3)


def test_tensors_handed_out_never_change_afterwards(backend: Backend) -> None:
    tensors = [backend.read(name) for name in (*STATE, "xpos")]
    copies = [tensor.clone() for tensor in tensors]
    backend.write("ctrl", slice(0, 1), torch.full((N, 1), 0.7))
    backend.step(4)
    assert all(tensor.dtype == torch.float32 for tensor in tensors)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_derived_field_is_current_after_every_change(backend: Backend) -> None:
    body = backend.model.body("cube").id
    for height in (1.0, 2.0):
        backend.write("qpos", slice(-5, -4), torch.tensor([[height]]), torch.tensor([1]))
        assert float(backend.read("xpos")[1, body, 2]) == pytest.approx(height)
    backend.reset(torch.tensor([1]))
    assert float(backend.read("xpos")[1, body, 2]) == pytest.approx(float(backend.qpos[1, -5]))


def test_version_changes_with_every_change_and_with_no_reading(backend: Backend) -> None:
    versions = [backend.version]
    backend.read("xpos")
    assert backend.version == versions[0]
    backend.step(1)
    versions.append(backend.version)
    backend.reset(torch.tensor([0]))
    versions.append(backend.version)
    backend.write("ctrl", slice(0, 1), torch.zeros(1, 1))
    versions.append(backend.version)
    assert len(set(versions)) == 4


def test_asking_for_derived_fields_does_not_change_what_happens(backend: Backend) -> None:
    results = []
    for asks in (True, False):
        backend.reset(torch.arange(N))
        backend.write("ctrl", slice(0, 1), torch.full((N, 1), 0.7))
        for _ in range(4):
            if asks:
                backend.read("xpos")
                backend.read("cvel")
            backend.step(4)
        results.append(physics(backend))
    assert torch.equal(*results)


def test_divergence_is_of_its_env_alone_and_ends_with_a_reset(backend: Backend) -> None:
    backend.step(4)
    quiet = backend.diverged()
    assert quiet is None or not quiet.any()
    undisturbed = physics(backend)
    backend.reset(torch.arange(N))
    backend.write("qvel", slice(-6, -3), torch.full((1, 3), 1e15), torch.tensor([1]))
    backend.write("ctrl", slice(0, 1), torch.tensor([[float("nan")]]), torch.tensor([2]))
    backend.step(4)
    diverged = backend.diverged()
    assert diverged is not None
    assert diverged.tolist() == [False, True, True]
    assert torch.equal(physics(backend)[0], undisturbed[0])
    assert backend.qpos.isfinite().all()
    assert backend.qvel.isfinite().all()
    backend.reset(torch.tensor([1]))
    diverged = backend.diverged()
    assert diverged is not None
    assert diverged.tolist() == [False, False, True]
    backend.reset(torch.tensor([2]))


def test_randomised_fields_act_on_both_engines_alike(envs: dict[str, EmbodiedEnv]) -> None:
    results = []
    for engine in ("batch", "warp"):
        env = envs[engine]
        env.sim.backend.reset(torch.arange(N))
        physics_of = env.sim.get_rigid_object("cube").physics
        mass = physics_of.get_mass()[:, 0].clone()
        some = torch.tensor([2, 0])
        physics_of.set_mass(torch.tensor([0.5, 2.0]), some)
        physics_of.set_friction(torch.tensor([0.1, 0.9]), some)
        joints = list(range(6))
        factors = torch.tensor([[0.5] * 6, [1.5] * 6])
        env.robot.drives.scale(factors, factors, joints, some)
        env.sim.get_rigid_object("cube").set_velocity(torch.tensor([[0.5, 0.2, 0.0, 0.0, 0.0, 0.0]] * N))
        env.robot.set_qpos(env.robot.get_qpos() + 0.1)
        env.sim.update(4)
        names = ("body_mass", "body_inertia", "geom_friction", "actuator_gainprm", "actuator_biasprm")
        fields = [env.sim.backend.read_model(name).float() for name in names]
        results.append((physics(env.sim.backend), fields))
        physics_of.set_mass(mass, torch.arange(N))
        physics_of.set_friction(torch.full((N,), 0.8), torch.arange(N))
        env.robot.drives.scale(torch.ones(2, 6), torch.ones(2, 6), joints, some)
    (one, fields), (two, others) = results
    for field, other in zip(fields, others, strict=True):
        torch.testing.assert_close(field, other)
    nq = envs["batch"].sim.model.nq
    assert len({round(float(speed), 3) for speed in one[:, nq + 8]}) == N  # the cube's along x: three frictions
    torch.testing.assert_close(one, two, atol=2e-4, rtol=0)


def test_constants_follow_the_model_field_in_its_rows_alone(envs: dict[str, EmbodiedEnv]) -> None:
    results = []
    for engine in ("batch", "warp"):
        backend = envs[engine].sim.backend
        body = backend.model.body("cube").id
        mass = backend.read_model("body_mass").clone()
        before = backend.read_model("body_invweight0").float()
        backend.write_model("body_mass", body, torch.tensor([4.0]), torch.tensor([1]))
        backend.step(1)
        after = backend.read_model("body_invweight0").float()
        # Of a free body: 1 / mass.
        assert float(after[1, body, 0]) == pytest.approx(0.25, rel=1e-4)
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        results.append(after)
        backend.write_model("body_mass", body, mass[:, body])
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-3)


@pytest.mark.e2e
def test_contact_sensors_feel_alike() -> None:
    batch, warp = (env_on(engine, PICK, 1) for engine in ENGINES)
    for env in (batch, warp):
        env.reset(seed=1)
        tool = env.robot.get_eef_pose()[:, :3, 3]
        upright = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        env.sim.get_rigid_object("cube").set_local_pose(torch.cat((tool, upright), dim=1))
    closed = torch.zeros(1, batch.action_manager.total_action_dim)
    closed[:, -1] = 1.0
    for _ in range(10):
        batch.step(closed)
    # At rest: two boxes that turn against each other have other points of contact in the two engines (by 0.04 mm).
    copy_state(batch.sim.backend, warp.sim.backend)
    finger = "gripper_finger1_link"
    one, other = (env.sim.get_contact_force(env.robot.uid, finger) for env in (batch, warp))
    assert torch.linalg.vector_norm(one) > 20.0  # N
    assert torch.linalg.vector_norm(one - other) < 0.01 * torch.linalg.vector_norm(one)


def test_meshes_that_were_not_chosen_are_not_there(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.obj").write_text(TETRAHEDRON)
    sim = SimulationManager(SimulationManagerCfg(num_envs=3, sim_device="warp:cpu"))
    sim.add_rigid_object(RigidObjectCfg(uid="body", shape=MeshCfg(fpath=str(tmp_path / "one.obj"))))
    sim.add_mesh_variants("body", [tmp_path / "two.obj"])
    sim.build()
    sim.get_rigid_object("body").physics.choose_variant(torch.tensor([1, 1]), torch.tensor([0, 2]))
    backend: Any = sim.backend
    # The ground is no mesh; then the two meshes, of which each environment has one.
    assert backend.read_model("geom_dataid")[:, -2:].tolist() == [[-1, 1], [0, -1], [-1, 1]]


@pytest.mark.e2e
def test_what_is_fixed_to_a_base_moves_with_it(envs: dict[str, EmbodiedEnv]) -> None:
    positions = []
    for engine in ENGINES:
        env = env_on(engine, DRAWER, N)
        cabinet = next(iter(env.sim.articulations.values()))
        pose = cabinet.get_local_pose()[[1]].clone()
        pose[:, 1] += 0.3
        before = env.sim.backend.read("geom_xpos").clone()
        cabinet.set_local_pose(pose, torch.tensor([1]))
        env.sim.update(1)
        after = env.sim.backend.read("geom_xpos")
        own = [
            geom
            for geom in range(env.sim.model.ngeom)
            if env.sim.model.body(int(env.sim.model.geom_bodyid[geom])).name.startswith(f"{cabinet.uid}/")
        ]
        torch.testing.assert_close((after - before)[1, own, 1], torch.full((len(own),), 0.3), atol=1e-3, rtol=0)
        torch.testing.assert_close((after - before)[0, own], torch.zeros(len(own), 3), atol=1e-3, rtol=0)
        positions.append(after)
    torch.testing.assert_close(*positions, atol=1e-4, rtol=0)


def test_want_of_room_is_reported_and_mended(envs: dict[str, EmbodiedEnv]) -> None:
    module = importlib.import_module("embodichain.lab.sim.backend.mujoco_warp")  # it needs the extra
    sim = envs["batch"].sim
    room = Capacity(contacts=1, constraints=128)
    small = module.MujocoWarpBackend(sim.model, sim.backend.visual_model, 2, torch.device("cpu"), room)
    small.step(1)
    before = physics(small)
    (problem,) = small.report()
    assert problem.startswith("physics left out contacts in 2 of 2 environments, for want of room: there was room")
    assert small.capacity == Capacity(contacts=2, constraints=128)
    assert torch.equal(physics(small), before)
    for _ in range(4):  # 2, 4, 8, 16
        small.step(1)
        small.report()
    sim.backend.reset(torch.arange(N))
    copy = envs["warp"].sim.backend
    copy.reset(torch.arange(N))
    small.reset(torch.arange(2))
    for each in (small, copy):
        each.step(4)
    torch.testing.assert_close(physics(small), physics(copy)[:2], atol=1e-5, rtol=0)


def test_state_that_is_loaded_goes_on_bit_for_bit(envs: dict[str, EmbodiedEnv]) -> None:
    backend = envs["warp"].sim.backend
    backend.reset(torch.arange(N))
    backend.write("ctrl", slice(0, 2), torch.tensor([[0.3, -1.0]] * N))
    backend.step(4)
    saved = freeze(backend.state_dict())
    backend.step(8)
    after = physics(backend)
    backend.reset(torch.arange(N))
    backend.load_state_dict(thaw(saved))
    backend.step(8)
    assert torch.equal(physics(backend), after)


@pytest.mark.parametrize(("source", "target"), [("batch", "warp"), ("warp", "batch")])
def test_checkpoint_of_the_other_engine_is_refused(source: str, target: str, envs: dict[str, EmbodiedEnv]) -> None:
    state = freeze(envs[source].sim.backend.state_dict())
    with pytest.raises(ConfigError, match="resume it with the same sim_device"):
        envs[target].sim.backend.load_state_dict(thaw(state))


def test_render_data_are_of_the_env_that_is_asked_for(backend: Backend) -> None:
    backend.write("qpos", slice(-7, -4), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
    data = mujoco.MjData(backend.visual_model)
    backend.load_render_data(1, data)
    np.testing.assert_allclose(data.body("cube").xpos, [1, 2, 3])
    backend.load_render_data(0, data)
    assert data.body("cube").xpos[0] != 1.0


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "has_warp", lambda: False)
    with pytest.raises(ConfigError, match=r"needs the package mujoco_warp: .*pip install .*'mujoco-warp"):
        SimulationManager(SimulationManagerCfg(sim_device="warp:cpu"))
