from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv, GymnasiumEnvCfg
from embodichain.lab.sim.rendering.renderer import opengl_problem
from embodichain.utils.video import VideoReader
from tests.ext.gymnasium.scripted import registered


class _Drawn(gym.Env[Any, Any]):
    """Draws images of 33 x 48 pixels, of brightness 40 t at step t of an episode of 4 steps."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))
    error: type[Exception] | None = None

    def __init__(self, render_mode: str | None = None, is_broken: bool = False) -> None:
        self.render_mode = render_mode
        self.t = 0
        if is_broken:
            self.error = AttributeError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(1, np.float32), 0.0, self.t == 4, False, {}

    def render(self) -> Any:
        if self.error is not None:
            raise self.error("no pygame here")
        return np.full((33, 48, 3), 40 * self.t, np.uint8)


@pytest.fixture
def env() -> Iterator[GymnasiumEnv]:
    with registered("Drawn-v0", _Drawn):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Drawn-v0", {"render_mode": "rgb_array"}, num_envs=2))
        yield env
        env.close()


def play(env: GymnasiumEnv, steps: int) -> None:
    env.reset(seed=1)
    for _ in range(steps):
        env.step(torch.zeros(2, 1))


def test_episodes_of_the_first_environment_are_recorded(env: GymnasiumEnv, tmp_path: Path) -> None:
    assert (env.step_dt, env.render_fps) == (None, 20.0)
    play(env, 3)  # nothing is recorded yet
    env.start_recording(tmp_path, "step_5")
    play(env, 6)
    (path,) = env.stop_recording()
    assert path == tmp_path / "render_step_5.mp4"
    with VideoReader(path, 32, 48) as video:
        brightness = video.read(100)[:, 16:].mean(axis=(1, 2, 3))  # below the caption
    # The first state and those after steps 1 to 4, the last of the episode, for half a second more; then the next one.
    assert brightness.tolist() == pytest.approx([0, 40, 80, 120, *[160] * 11, 0, 40, 80], abs=4)
    play(env, 3)
    assert env.stop_recording() == []


def test_episodes_below_a_number_are_recorded(env: GymnasiumEnv, tmp_path: Path) -> None:
    env.start_recording(tmp_path, "a", num_episodes=1)
    play(env, 14)
    assert env.recorded().frames == 6  # the first state, four steps, and the last image again as an episode begins
    assert len(env.stop_recording()) == 1


@pytest.mark.skipif(opengl_problem() is not None, reason="no OpenGL")
def test_images_of_mujoco_are_drawn_without_shadows() -> None:
    cfg = GymnasiumEnvCfg("gymnasium:Reacher-v5").with_images()
    env = GymnasiumEnv(cfg)
    env.reset(seed=1)
    image = env.image()
    models: Any = env._envs
    assert models.get_attr("model")[0].vis.quality.shadowsize == 0
    env.close()
    assert image.shape == (480, 480, 3)
    assert image.std() > 10


def test_rendering_that_fails_is_one_warning(
    env: GymnasiumEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Drawn, "error", NotImplementedError)
    for label in ("a", "b"):
        env.start_recording(tmp_path, label)
        play(env, 3)
        assert env.stop_recording() == []
    assert capsys.readouterr().err.count("no video is recorded: gymnasium:Drawn-v0: no image ") == 1


def test_image_of_another_type_is_one_warning(
    env: GymnasiumEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Drawn, "render", lambda self: np.zeros((34, 48, 3)))
    env.start_recording(tmp_path, "a")
    play(env, 3)
    assert env.stop_recording() == []
    assert "uint8: its render() returned [34, 48, 3] float64" in capsys.readouterr().err


def test_image_that_fails_in_a_process_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = {"render_mode": "rgb_array", "is_broken": True}
    cfg = GymnasiumEnvCfg("gymnasium:Drawn-v0", kwargs, num_envs=2, vectorization="async")
    with registered("Drawn-v0", _Drawn):
        env = GymnasiumEnv(cfg)
        env.start_recording(tmp_path, "a")
        play(env, 6)
        env.close()
    assert "no video is recorded: gymnasium:Drawn-v0: no image " in capsys.readouterr().err


def test_images_that_change_their_size_are_one_warning(
    env: GymnasiumEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Drawn, "render", lambda self: np.zeros((32 + 16 * (self.t == 2), 48, 3), np.uint8))
    env.start_recording(tmp_path, "a")
    play(env, 3)
    env.stop_recording()
    assert "the size of the images changes from [32, 48, 3] to [48, 48, 3]" in capsys.readouterr().err
