"""Pictures are [height, width, 3]; a pixel is (u, v): column, row."""

import ast
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import thread as pools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import CameraCfg, ExtrinsicsCfg, MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.rendering import gl
from embodichain.lab.sim.rendering.renderer import (
    CameraPose,
    OpenGLDrawer,
    Renderer,
    RenderingUnavailableError,
    RenderThreads,
    Shot,
)
from embodichain.lab.sim.shapes import SphereCfg
from tests.lab.scenes import needs_gl, simulate, without_opengl

WIDTH, HEIGHT = 96, 64
# At (2, 0, 1), looking along -x: right in the picture is +y, down is -z. fx is not fy, and (cx, cy) is not the middle.
POSE = CameraPose(eye=(2, 0, 1), target=(0, 0, 1), up=(0, 0, 1), intrinsics=(80, 60, 40, 30))


@pytest.fixture(scope="module")
def sim() -> SimulationManager:
    ball = RigidObjectCfg("ball", shape=SphereCfg(radius=0.06), rgba=(1, 0, 0, 1), body_type="kinematic")
    goal = MarkerCfg("goal", shape=SphereCfg(radius=0.06), rgba=(0, 1, 0, 1))
    return simulate(ball, goal, num_envs=2)


@pytest.fixture(scope="module")
def renderer(sim: SimulationManager) -> Iterator[Renderer]:
    renderer = Renderer(sim.backend, sim.appearance, WIDTH, HEIGHT)
    yield renderer
    renderer.close()


def place(sim: SimulationManager, ball: list[list[float]], goal: list[list[float]]) -> None:
    pose = torch.zeros(2, 7)
    pose[:, :3], pose[:, 3] = torch.tensor(ball), 1.0
    sim.get_rigid_object("ball").set_local_pose(pose)
    sim.get_marker("goal").set_pos(torch.tensor(goal))


def centre(picture: np.ndarray, channel: int) -> tuple[float, float]:
    """Return the mean (u, v) of the pixels in which one colour is twice each other one."""
    others = np.delete(picture, channel, axis=2).max(axis=2)
    rows, columns = np.nonzero(picture[..., channel] > 2.0 * others + 30)
    assert len(rows) > 5
    return float(columns.mean()), float(rows.mean())


def test_error_in_a_render_thread_reaches_every_caller(sim: SimulationManager, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise ValueError("no such texture")

    monkeypatch.setattr(OpenGLDrawer, "draw", fail)
    threads = RenderThreads(sim.backend, sim.appearance, 2)
    for _ in range(2):  # the threads have not ended
        with pytest.raises(ValueError, match="no such texture"):
            threads.draw(cast(Shot, None), [0, 1])
    threads.close()


def test_collected_render_threads_wait_for_no_lock(sim: SimulationManager) -> None:
    dropped = [RenderThreads(sim.backend, sim.appearance, 1)]
    (pool,) = dropped[0]._threads
    with pools._global_shutdown_lock:  # which each pool takes when it is given work
        thread = threading.Thread(target=dropped.clear)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    for _ in range(100):
        if pool._shutdown:
            break
        time.sleep(0.05)
    assert pool._shutdown


@needs_gl
def test_points_are_where_opencvs_intrinsics_put_them(sim: SimulationManager, renderer: Renderer) -> None:
    place(sim, [[0.0, 0.5, 1.25]] * 2, [[0.0, -0.6, 0.7]] * 2)
    picture = renderer.render(0, POSE)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture.dtype == np.uint8
    # depth 2: u = 40 + 80 * 0.5 / 2 = 60, v = 30 - 60 * 0.25 / 2 = 22.5
    assert centre(picture, 0) == pytest.approx((60, 22.5), abs=1)
    # u = 40 - 80 * 0.6 / 2 = 16, v = 30 + 60 * 0.3 / 2 = 39
    assert centre(picture, 1) == pytest.approx((16, 39), abs=1)


@needs_gl
def test_up_turns_the_picture(sim: SimulationManager, renderer: Renderer) -> None:
    place(sim, [[0.0, 0.5, 1.0]] * 2, [[0.0, 0.0, -5.0]] * 2)
    sideways = CameraPose(POSE.eye, POSE.target, (0, 1, 0), (60, 60, 48, 32))
    # +y is up now: straight above the middle by 60 * 0.5 / 2 = 15
    assert centre(renderer.render(0, sideways), 0) == pytest.approx((48, 17), abs=1)


@needs_gl
def test_drawing_changes_nothing_in_the_physics(sim: SimulationManager, renderer: Renderer) -> None:
    place(sim, [[0.0, 0.5, 1.25]] * 2, [[0.0, 0.0, 0.7]] * 2)
    before = {name: sim.backend.read(name).clone() for name in ("qpos", "qvel", "mocap_pos", "xpos")}
    renderer.render(1, POSE)
    assert all(torch.equal(sim.backend.read(name), value) for name, value in before.items())


# A blue cloth of 0.2 m that hangs at y = 0.3, and a green tendon from the world to a slider at y = -0.3.
SOFT = """
<mujoco>
  <default><camera projection="orthographic"/></default>
  <asset>
    <texture name="t" type="2d" builtin="checker" width="64" height="64" rgb1=".2 .2 .2" rgb2=".8 .8 .8"/>
    <material name="t" texture="t" texrepeat="4 4" texuniform="true"/>
  </asset>
  <worldbody>
    <light type="directional" dir="-1 0 -1"/>
    <geom type="plane" size="0 0 1" material="t"/>
    <flexcomp name="cloth" type="grid" dim="2" count="3 3 1" spacing=".1 .1 .1" pos="0 .3 1.2" euler="0 90 0"
      mass=".1" radius=".01" rgba="0 0 1 1"><pin id="0"/><edge equality="true"/></flexcomp>
    <site name="top" pos="0 -.3 1.3" size=".001"/>
    <body name="weight" pos="0 -.3 .9">
      <joint name="slide" type="slide" axis="0 0 1"/><geom type="sphere" size=".01"/><site name="hook" size=".001"/>
      <site name="flag" pos="0 .15 0" size=".05" rgba="1 0 1 1"/>
    </body>
  </worldbody>
  <tendon><spatial name="cord" width=".02" rgba="0 1 0 1"><site site="top"/><site site="hook"/></spatial></tendon>
</mujoco>
"""


def soft_sim(folder: Path, **cfg: Any) -> SimulationManager:
    """Build the scene with the cloth and the tendon, with a camera."""
    (folder / "soft.xml").write_text(SOFT)
    sim = SimulationManager(SimulationManagerCfg(num_envs=2, num_threads=1, **cfg))
    sim.use_scene_file(str(folder / "soft.xml"))
    where = ExtrinsicsCfg(eye=POSE.eye, target=POSE.target, up=POSE.up)
    lens: dict[str, Any] = {"width": WIDTH, "height": HEIGHT, "intrinsics": POSE.intrinsics, "extrinsics": where}
    sim.add_sensor(CameraCfg("cam", enable_mask=True, **lens))
    sim.build()
    return sim


def shift_soft(sim: SimulationManager) -> None:
    """Move the cloth's free vertices by 0.1 m in y and the weight by 0.2 m in z, in the second environment."""
    assert sim.model.joint("slide").qposadr[0] == 24  # each of the eight has three
    sim.backend.write("qpos", slice(1, 24, 3), torch.tensor([[0.0], [0.1]]))
    sim.backend.write("qpos", slice(24, 25), torch.tensor([[0.0], [0.2]]))


@needs_gl
def test_cloths_and_tendons_are_drawn_where_they_are(tmp_path: Path) -> None:
    sim = soft_sim(tmp_path)
    shift_soft(sim)
    images = sim.get_sensor("cam").get_data()
    colors, masks = images["color"].numpy(), images["mask"].numpy()
    # depth 2: u = 40 + 80 * 0.3 / 2 = 52 and 40 - 12 = 28, v = 30 - 60 * 0.2 / 2 = 24 and 30 - 60 * 0.1 / 2 = 27
    assert centre(colors[0], 2) == pytest.approx((52, 24), abs=1)
    assert centre(colors[0], 1) == pytest.approx((28, 27), abs=1)
    # eight of nine vertices are 4 pixels further; the tendon ends at z = 1.1, v = 27, and begins at v = 21
    assert centre(colors[1], 2)[0] == pytest.approx(52 + 4 * 8 / 9, abs=1)
    assert centre(colors[1], 1) == pytest.approx((28, 24), abs=1)
    # the mask has the entity that they belong to
    numbers = sim.get_sensor("cam").mask_numbers
    assert masks[0, 24, 52] == numbers["cloth_8"]
    assert masks[0, 27, 28] == numbers["weight"]
    assert masks[0, 33, 34] == numbers["weight"]  # its site: u = 40 - 80 * 0.15 / 2, v = 30 + 60 * 0.1 / 2
    assert colors[0, 50:].std() > 20  # the ground still has its pattern


@pytest.mark.e2e
@needs_gl
def test_shadows_fall_on_a_ground_as_the_engine_draws_it(sim: SimulationManager) -> None:
    high, away = [[0.0, 0.0, 0.3]] * 2, [[0.0, 0.0, -5.0]] * 2
    view = CameraPose((1, 0, 1), (0, 0, 0), (0, 0, 1), (60, 60, 48, 32))
    own, engines = (Renderer(sim.backend, sim.appearance, WIDTH, HEIGHT) for _ in range(2))
    drawer = engines._drawer
    assert isinstance(drawer, OpenGLDrawer)
    drawer._planes = np.zeros(0, dtype=np.int64)  # cut into as many pieces as the engine cuts them
    try:
        place(sim, away, away)
        bare, expected = (renderer.render(0, view).astype(int) for renderer in (own, engines))
        place(sim, high, away)
        picture = own.render(0, view).astype(int)
    finally:
        own.close()
        engines.close()
    assert np.abs(bare - expected).mean() < 4
    assert bare.std() > 4  # the ground has a pattern
    is_darker = (picture < bare - 30).all(axis=2)
    assert 10 < is_darker.sum() < 400


@needs_gl
def test_things_far_from_the_origin_cast_shadows_too(sim: SimulationManager, renderer: Renderer) -> None:
    away = [[0.0, 0.0, -5.0]] * 2
    view = CameraPose((1, 0, 1), (0, 0, 0), (0, 0, 1), (60, 60, 48, 32)).shifted(30.0, -20.0)
    place(sim, away, away)
    bare = renderer.render(0, view).astype(int)
    place(sim, [[30.0, -20.0, 0.3]] * 2, away)
    is_darker = (renderer.render(0, view).astype(int) < bare - 30).all(axis=2)
    assert 10 < is_darker.sum() < 400


def test_missing_opengl_is_an_error_that_says_what_to_install(
    sim: SimulationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_opengl(monkeypatch, "'NoneType' object has no attribute 'eglQueryString'")
    problem = r"apt-get install libegl1 libgl1 .*eglQueryString.*pip install .*'mujoco-warp"
    with pytest.raises(RenderingUnavailableError, match=problem):
        Renderer(sim.backend, sim.appearance, WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["libEGL.so.1", "libOpenGL.so.0"], "egl"),
        (["libEGL.so.1", "libGL.so.1"], "egl"),
        (["libEGL.so.1"], "disable"),
        (["libOpenGL.so.0", "libGL.so.1"], "disable"),
        ([], "disable"),
    ],
)
def test_egl_is_chosen_where_it_and_opengl_are_there(
    monkeypatch: pytest.MonkeyPatch, there: list[str], expected: str
) -> None:
    def load(name: str) -> None:
        if name not in there:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", load)
    gl.choose_gl()
    assert os.environ["MUJOCO_GL"] == expected


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_keep_mujocos_own_opengl(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    # MuJoCo's import fails there with any name of Linux's libraries.
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    gl.choose_gl()
    assert "MUJOCO_GL" not in os.environ
    assert "apt-get" not in gl.gl_help()


def imports(path: Path) -> list[str]:
    """Return the names that a file's import statements name, in their order."""
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_choice_is_made_before_the_engine_is_imported() -> None:
    # Only lab.sim imports the engine (tests/test_import_directions.py), which reads MUJOCO_GL when it is imported.
    here = Path(gl.__file__)
    assert imports(here.parents[1] / "__init__.py")[0] == "embodichain.lab.sim.rendering.gl"
    assert set(imports(here)) <= {"ctypes", "os", "sys"}
