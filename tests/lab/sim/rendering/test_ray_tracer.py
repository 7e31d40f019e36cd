"""Images are [N, H, W, ...]. The kernel is compiled once, for the scene that all tests share."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import CameraCfg, ExtrinsicsCfg, MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.rendering import renderer as renderer_module
from embodichain.lab.sim.rendering.renderer import CameraPose, Drawer, Renderer, RenderingUnavailableError, make_drawer
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from embodichain.utils import logger
from tests.lab.scenes import needs_gl, without_opengl
from tests.lab.sim.rendering.test_renderer import HEIGHT, POSE, WIDTH, shift_soft, soft_sim
from tests.lab.sim.test_cameras import VIEW as CAMERA_VIEW
from tests.lab.sim.test_cameras import centre, red
from tests.lab.sim.test_cameras import place as place_ball

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is None, reason="needs the extra raytrace")
# See test_camera for the view.
VIEW: dict[str, Any] = CAMERA_VIEW | {"far": 30.0}
KINDS: dict[str, Any] = {"enable_depth": True, "enable_mask": True}
N = 3
RED, BLUE, GLASS = (1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 1.0, 0.0, 0.5)


def build(num_threads: int = 2, sim_device: str = "cpu") -> SimulationManager:
    sim = SimulationManager(SimulationManagerCfg(num_envs=N, num_threads=num_threads, sim_device=sim_device))
    sim.add_rigid_object(RigidObjectCfg("ball", shape=SphereCfg(radius=0.06), rgba=RED, body_type="kinematic"))
    wall = CubeCfg(size=(0.2, 9, 9))
    sim.add_rigid_object(RigidObjectCfg("wall", shape=wall, rgba=BLUE, body_type="static", init_pos=(-1.1, 0, 0)))
    sim.add_marker(MarkerCfg("pane", shape=CubeCfg(size=(0.02, 0.4, 0.4)), rgba=GLASS))
    sim.add_sensor(CameraCfg("cam", **VIEW, **KINDS))
    on_ball = ExtrinsicsCfg(parent="ball", pos=(2.0, 0.0, 0.0), quat=(0.5, 0.5, 0.5, 0.5))
    sim.add_sensor(CameraCfg("riding", **VIEW | {"extrinsics": on_ball}))
    sim.build()
    return sim


def place(sim: SimulationManager, *ball: tuple[float, float, float], pane: float = -5.0) -> None:
    place_ball(sim, *ball)
    sim.get_marker("pane").set_pos(torch.tensor([[0.0, 0.0, pane]] * N))


def use(sim: SimulationManager, drawer: Drawer) -> None:
    """Let a scene be drawn by something else, from the beginning."""
    sim._drawing = drawer
    for sensor in sim.sensors.values():
        sensor._drawn = None


@pytest.fixture(scope="module")
def sim() -> Iterator[SimulationManager]:
    sim = build()
    use(sim, renderer_module.ray_tracer(sim.backend, sim.appearance, "cpu", 2, shadows=False))
    yield sim
    sim.close()


def test_image_does_not_depend_on_the_engine_of_the_physics(sim: SimulationManager) -> None:
    other = build(sim_device="warp:cpu")
    use(other, renderer_module.ray_tracer(other.backend, other.appearance, "cpu", 2, shadows=False))
    for each in (sim, other):
        place(each, (0.0, 0.5, 1.25), (0.0, -0.5, 1.25), (0.0, 0.25, 1.25))
    for name in ("cam", "riding"):
        ours, theirs = (each.get_sensor(name).get_data() for each in (other, sim))
        assert all(torch.equal(ours[kind], theirs[kind]) for kind in theirs)
    other.close()


def test_translucent_things_are_seen_through_but_are_in_the_mask(sim: SimulationManager) -> None:
    place(sim, *[(0.0, -9.0, 1.0)] * N, pane=1.0)
    camera = sim.get_sensor("cam")
    with_pane = camera.get_data()
    place(sim, *[(0.0, -9.0, 1.0)] * N)
    without = camera.get_data()
    assert with_pane["mask"][0, 30, 40] == camera.mask_numbers["pane"]
    assert with_pane["depth"][0, 30, 40].item() == pytest.approx(2.0 - 0.01, abs=1e-4)
    behind, pixel = without["color"][0, 30, 40].int(), with_pane["color"][0, 30, 40].int()
    # OpenGL draws it twice: the wall's share is 0.5 * 0.5. What is white in both is their gloss.
    assert (pixel[2] - pixel[0]).item() == pytest.approx(0.25 * (behind[2] - behind[0]).item(), abs=2)
    assert pixel[1] > behind[1] + 50


def test_hidden_groups_and_own_sizes_are_respected(sim: SimulationManager) -> None:
    place(sim, *[(0.0, 0.5, 1.25)] * N)
    camera = sim.get_sensor("cam")
    geom = sim.model.geom("ball").id
    size = sim.backend.read_model("geom_size")[0, geom].clone()
    sim.backend.write_model("geom_group", geom, torch.tensor([4]), torch.tensor([0]))
    sim.backend.write_model("geom_size", geom, 2.0 * size, torch.tensor([1]))
    camera._drawn = None
    is_ball = (camera.get_data()["mask"] == camera.mask_numbers["ball"]).flatten(1).sum(dim=1)
    sim.backend.write_model("geom_group", geom, torch.tensor([0]))
    sim.backend.write_model("geom_size", geom, size)
    # at depth 2 an ellipse of half axes 80 * 0.06 / 2 and 60 * 0.06 / 2: 13.6 pixels, and four times that
    assert is_ball.tolist() == [0, pytest.approx(54, abs=10), pytest.approx(13.6, abs=5)]


@needs_gl
def test_images_are_those_that_opengl_draws(sim: SimulationManager) -> None:
    place(sim, (0.0, 0.5, 1.25), (0.0, 0.0, 1.0), (0.5, -0.3, 0.8), pane=1.0)
    camera, rays = sim.get_sensor("cam"), sim._drawing
    assert rays is not None
    traced = camera.get_data()
    drawer = make_drawer(sim.backend, sim.appearance, 1, enable_rt=False, device="cpu")
    use(sim, drawer)
    drawn = camera.get_data()
    drawer.close()
    use(sim, rays)
    same = traced["mask"] == drawn["mask"]
    assert same.float().mean() > 0.99
    for number in camera.mask_numbers.values():
        both, either = (
            ((traced["mask"] == number) & (drawn["mask"] == number)).sum(),
            ((traced["mask"] == number) | (drawn["mask"] == number)).sum(),
        )
        assert both >= 0.8 * either  # round shapes have corners in the one, and the ball is 40 pixels
    assert (traced["depth"] - drawn["depth"])[same].abs().median() < 1e-3
    assert (traced["depth"] - drawn["depth"])[same].abs().quantile(0.99) < 0.03
    apart = (traced["color"].float() - drawn["color"].float()).abs().mean(dim=-1)
    for uid in ("ground", "wall", "ball", "pane"):
        assert apart[same & (drawn["mask"] == camera.mask_numbers[uid])].mean() < 12, uid


def test_shadows_are_drawn_where_asked_for() -> None:
    sim = build(num_threads=1)
    place(sim, *[(-0.2, 0.0, 0.3)] * N)
    above = CameraPose(eye=(-0.2, 0.0, 2.5), target=(-0.2, 0.0, 0.0), up=(1, 0, 0), intrinsics=(80, 60, 40, 30))
    renderer = Renderer(sim.backend, sim.appearance, 96, 64, enable_rt=True)
    picture = torch.from_numpy(renderer.render(1, above)).int()
    renderer.close()
    sim.close()
    assert picture.shape == (64, 96, 3)
    ground = picture[:, 70]  # beside the ball, in the light
    # the sun comes from (0.1, 0.2, 1): the shadow of what is 0.3 m up lies 0.06 m towards -y, beside the ball
    assert picture.sum(dim=-1).min() < 0.8 * ground.sum(dim=-1).float().mean()
    assert centre(red(picture)) == pytest.approx((39.5, 29.5), abs=1.5)


@pytest.mark.e2e
def test_cloths_are_traced_and_tendons_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger.warn_once.cache_clear()
    sim = soft_sim(tmp_path, enable_rt=True)
    shift_soft(sim)
    images = sim.get_sensor("cam").get_data()
    # As in OpenGL's images: test_cloths_and_tendons_are_drawn_where_they_are.
    for env_id, u in enumerate((52, 52 + 4 * 8 / 9)):
        color = images["color"][env_id].int()
        assert centre(color[..., 2] > 2 * color[..., 0] + 30)[0] == pytest.approx(u, abs=1)
    assert images["mask"][0, 24, 52] == sim.get_sensor("cam").mask_numbers["cloth_8"]
    alone = Renderer(sim.backend, sim.appearance, WIDTH, HEIGHT, enable_rt=True)
    assert (alone.render(1, POSE) == images["color"][1].numpy()).mean() > 0.9  # fewer environments than there are
    alone.close()
    sim.close()
    assert capsys.readouterr().err.count("tendons and sites are not in ray-traced images") == 1


# --- which one draws ---


def test_without_opengl_rays_are_traced_and_one_line_says_so(
    sim: SimulationManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_opengl(monkeypatch, is_ray_traced=True)
    logger.warn_once.cache_clear()
    for _ in range(2):
        drawer = make_drawer(sim.backend, sim.appearance, 1, enable_rt=False, device="cpu")
        drawer.close()
        assert type(drawer).__name__ == "RayTracer"
    Renderer(sim.backend, sim.appearance, 32, 32).close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] off-screen OpenGL is missing: images are ray-traced")


def test_without_the_extra_ray_tracing_is_an_error_that_names_it(
    sim: SimulationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "embodichain.lab.sim.rendering.ray_tracer", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(RenderingUnavailableError, match=r"ray tracing needs mujoco_warp: .*pip install .*'mujoco-warp"):
        make_drawer(sim.backend, sim.appearance, 1, enable_rt=True, device="cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_gpu_draws_what_the_processor_draws(sim: SimulationManager) -> None:
    place(sim, (0.0, 0.5, 1.25), (0.0, 0.0, 1.0), (0.5, -0.3, 0.8), pane=1.0)
    camera, rays = sim.get_sensor("cam"), sim._drawing
    assert rays is not None
    here = camera.get_data()
    use(sim, renderer_module.ray_tracer(sim.backend, sim.appearance, "cuda:0", 1, shadows=False))
    camera._images = {}
    there = camera.get_data()
    use(sim, rays)
    camera._images = {}
    assert (here["mask"] == there["mask"].cpu()).float().mean() > 0.999
    assert (here["color"].int() - there["color"].cpu().int()).abs().float().mean() < 1.0
