"""Images are [height, width, 3]."""

from pathlib import Path

import numpy as np
import pytest

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.cfg import MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.rendering.framing import frame
from embodichain.lab.sim.rendering.renderer import Renderer
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from tests.lab.scenes import needs_gl, simulate
from tests.lab.sim.rendering.test_renderer import soft_sim

SIZE, UP, LENS = (96, 72), (0.0, 0.0, 1.0), (77.0, 77.0, 48.0, 36.0)


def red(sim: SimulationManager) -> np.ndarray:
    """Return which pixels [height, width] of the framed image are red."""
    renderer = Renderer(sim.backend, sim.appearance, *SIZE)
    image = renderer.render(0, frame(sim.backend, sim.appearance, [], UP, LENS)).astype(int)
    renderer.close()
    is_red: np.ndarray = image[..., 0] > 2 * image[..., 1:].max(axis=2)
    return is_red


@needs_gl
@pytest.mark.parametrize("edge", [0.02, 0.4, 30.0])
def test_things_of_any_size_fill_three_quarters_of_the_image(edge: float) -> None:
    place = (0.3, -0.2, edge / 2)
    sim = simulate(RigidObjectCfg("box", shape=CubeCfg(size=(edge, edge, edge)), init_pos=place, rgba=(1, 0, 0, 1)))
    is_red = red(sim)
    rows = np.flatnonzero(is_red.any(axis=1))
    sim.close()
    # The nearer end, here the lower one, is at three quarters of the way to the edge: 36 + 0.75 * 36 = 63.
    assert rows.max() == pytest.approx(63, abs=1.5)
    assert is_red.mean() == pytest.approx(0.22, abs=0.01)  # at each size


def test_hidden_shapes_and_the_ground_are_not_framed() -> None:
    ball = RigidObjectCfg("ball", shape=SphereCfg(radius=0.1), init_pos=(1.0, 0.0, 0.5))
    hidden = MarkerCfg("goal", shape=SphereCfg(radius=0.1), init_pos=(9.0, 0.0, 0.5), rgba=(1, 0, 0, 0))
    sim = simulate(ball, hidden)
    pose = frame(sim.backend, sim.appearance, [], UP, LENS)
    assert pose.target == pytest.approx((1.0, 0.0, 0.5))
    assert np.sign(np.subtract(pose.eye, pose.target)).tolist() == [1, -1, 1]  # robots face +x, rooms -y
    assert frame(simulate().backend, sim.appearance, [], UP, LENS).target == pytest.approx((0.0, 0.0, 0.0))
    sim.close()


def test_cloths_and_tendons_are_framed(tmp_path: Path) -> None:
    sim = soft_sim(tmp_path)
    # From the weight's end, y = -0.31, to the cloth's, y = 0.4; from z = 0.89 to 1.3, of both.
    target = frame(sim.backend, sim.appearance, [], UP, LENS).target
    assert target == pytest.approx((0.0, 0.045, 1.095), abs=1e-6)
    sim.close()
