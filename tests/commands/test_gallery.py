"""``scripts/gallery.py``: policies side by side in a GIF."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from embodichain.lab.sim.rendering.renderer import opengl_problem
from scripts.gallery import main

pytestmark = pytest.mark.e2e


@pytest.mark.skipif(opengl_problem() is not None, reason="no OpenGL")
def test_gif_has_a_moving_panel_for_each_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--size", "64", "48", "--columns", "2", "--seconds", "2.8")
    main([*3 * [str(run_folder)], *small, "--out", "gallery.gif"])

    # 60 steps of 0.04 s are 30 frames; the pole stands; the last frame 5 times again is 35 frames of 0.08 s.
    assert capsys.readouterr().out.count("CartPole: 0% of 3 episodes: 1 episodes ended, 1 with success") == 3
    with Image.open("gallery.gif") as gif:
        assert (gif.size, gif.n_frames, gif.info["duration"]) == ((64 + 4 + 64, 48 + 4 + 48), 35, 80)  # type: ignore[attr-defined]
        images = []
        for frame in (0, 10, 29, 34):
            gif.seek(frame)
            images.append(np.asarray(gif.convert("RGB")).astype(int))
    first, later, last, held = images
    assert np.abs(later - first)[:48, :64].max() > 30
    assert np.abs(later - first)[52:, :64].max() > 30
    assert (first[52:, 68:] == 255).all()  # there is no fourth run
    assert np.array_equal(last, held)
