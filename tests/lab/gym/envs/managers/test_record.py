"""Pictures are [height, width, 3]; a pixel is (u, v): column, row."""

import os
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import record
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.record import record_camera_data, record_camera_data_async
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError, replace, video
from embodichain.utils.utility import load_json
from tests.lab.scenes import cart_cfg, needs_gl, without_opengl
from tests.videos import read_video

pytestmark = pytest.mark.e2e

PUSH_CUBE = Path(__file__).resolve().parents[5] / "configs/agents/rl/push_cube/gym_config.json"


WIDTH, HEIGHT = 160, 120
EYE, TARGET, INTRINSICS = (-1.4, 0.1, 0.9), (-0.6, 0.0, 0.0), (150.0, 140.0, 84.0, 64.0)


def camera(**params: Any) -> dict[str, Any]:
    view = {"name": "cam", "resolution": [WIDTH, HEIGHT], "eye": EYE, "target": TARGET, "intrinsics": INTRINSICS}
    return view | params


def recorder_cfg(func: type = record_camera_data, interval_step: int = 1, **params: Any) -> EventCfg:
    return EventCfg(func, mode="interval", interval_step=interval_step, params=camera(**params))


def cart_with(num_envs: int = 2, **cameras: EventCfg) -> EmbodiedEnv:
    return EmbodiedEnv(replace(cart_cfg(num_envs), events=cameras))


def step(env: EmbodiedEnv, times: int) -> None:
    for _ in range(times):
        env.step(torch.zeros(env.num_envs, *env.single_action_space.shape))


def recorded(env: EmbodiedEnv, folder: Path, steps: int) -> list[Path]:
    """Record some steps from a reset on, close the environment, and return the videos."""
    env.reset()
    env.start_recording(folder, "a")
    step(env, steps)
    paths = env.stop_recording()
    env.close()
    return paths


def frames(path: Path, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    return read_video(path, height, width)


# --- a video of PushCube ---


def project(point: np.ndarray) -> tuple[float, float]:
    """Return the pixel of a point as OpenCV does: the camera's axes are right, down, forward."""
    forward = np.subtract(TARGET, EYE) / np.linalg.norm(np.subtract(TARGET, EYE))
    right = np.cross(forward, (0, 0, 1))
    right /= np.linalg.norm(right)
    x, y, z = np.stack((right, np.cross(forward, right), forward)) @ (point - EYE)
    fx, fy, cx, cy = INTRINSICS
    return fx * x / z + cx, fy * y / z + cy


@needs_gl
def test_cube_is_red_and_goal_is_green_where_they_are(tmp_path: Path) -> None:
    cfg = replace(config_to_cfg(load_json(PUSH_CUBE)), num_envs=2)
    env = build_env("PushCubeRL", replace(cfg, events=cfg.events | {"cam": recorder_cfg(record_camera_data_async)}))
    env.reset(seed=3)
    env.start_recording(tmp_path, "a")
    step(env, 3)
    (path,) = env.stop_recording()
    cube, goal = env.sim.get_rigid_object("cube").pos[0], env.get_wrapper_attr("goal_pose")[0, :3, 3]
    env.close()
    picture = frames(path)[-1].astype(int)
    top = np.add(cube.numpy(), [0, 0, 0.04])  # of the cube of 0.08 m, which is lit from above
    u, v = (round(x) for x in project(top))
    red, green, blue = picture[v - 1 : v + 2, u - 1 : u + 2].mean(axis=(0, 1))
    assert red > 1.8 * max(green, blue)
    u, v = (round(x) for x in project(np.array([goal[0], goal[1], 0.0])))
    red, green, blue = picture[v - 1 : v + 2, u - 1 : u + 2].mean(axis=(0, 1))
    assert green > 1.5 * max(red, blue)


# --- when something is recorded ---


@needs_gl
def test_only_what_lies_between_start_and_stop_is_recorded(tmp_path: Path) -> None:
    env = cart_with(cam=recorder_cfg())
    env.reset()
    step(env, 2)
    env.start_recording(tmp_path, "a")
    step(env, 3)
    (first,) = env.stop_recording()
    step(env, 2)
    env.start_recording(tmp_path, "b")
    step(env, 1)
    (second,) = env.stop_recording()
    env.close()
    assert (len(frames(first)), len(frames(second))) == (3, 1)
    assert sorted(os.listdir(tmp_path)) == ["cam_a.mp4", "cam_b.mp4"]


@needs_gl
def test_video_shows_the_episodes_below_a_number(tmp_path: Path) -> None:
    env = EmbodiedEnv(replace(cart_cfg(2), events={"cam": recorder_cfg(resolution=[64, 32])}, max_episode_steps=3))
    env.start_recording(tmp_path, "a", num_episodes=3)
    env.reset(seed=0, options={"enumerate_episodes": True})
    step(env, 3)  # episode 0; the numbers of this environment's episodes are even
    shown = env.recorded().frames
    step(env, 5)  # episodes 2 and 4
    (video,) = env.stop_recording()
    assert env.recorded().frames == 2 * shown + 1  # the last image again, as episode 4 begins
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] > 2 * shown  # the last image of each stays
    env.close()


@needs_gl
def test_video_ends_after_its_most_images(tmp_path: Path) -> None:
    env = cart_with(1, cam=recorder_cfg(record_camera_data_async, resolution=[64, 32], max_frames=3))
    for label in ("first", "second"):
        env.start_recording(tmp_path, label)
        env.reset(seed=0)
        for _ in range(5):
            env.step(torch.zeros(1, 1))
        (video,) = env.stop_recording()
        assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == 3
        assert env.recorded().frames == 3
        assert env.recorded().seconds > 0.0
    env.close()


class BlankRenderer:
    """Draws nothing, without OpenGL."""

    def __init__(self, backend: Any, appearance: Any, width: int, height: int, enable_rt: bool, device: str) -> None:
        self.shape = (height, width, 3)

    def render(self, env_id: int, pose: Any) -> np.ndarray:
        return np.full(self.shape, 60 * env_id, dtype=np.uint8)

    def close(self) -> None:
        pass


class PoseRenderer(BlankRenderer):
    """Notes the pose of each image."""

    poses: list[Any]

    def render(self, env_id: int, pose: Any) -> np.ndarray:
        self.poses.append(pose)
        return super().render(env_id, pose)


def test_recording_without_eye_frames_the_scene_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "Renderer", PoseRenderer)
    PoseRenderer.poses = []
    env = cart_with(1, cam=EventCfg(record_camera_data, mode="interval", interval_step=1))
    env.reset()
    expected = record.View(env, (640, 480)).fixed
    env.start_recording(tmp_path, "a")
    for _ in range(2):
        env.step(torch.ones(1, *env.single_action_space.shape))
    env.close()
    assert PoseRenderer.poses == [expected] * 3  # of the first state, while the cart moves


class FromAbove(record_camera_data):
    """Chooses its own camera."""

    def __call__(self, env: Any, env_ids: Any, height: float = 3.0) -> None:  # type: ignore[override]
        super().__call__(env, env_ids, eye=(0.0, -2.0, height))


def test_subclass_may_choose_the_camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "Renderer", PoseRenderer)
    PoseRenderer.poses = []
    env = cart_with(1, cam=EventCfg(FromAbove, mode="interval", interval_step=1))
    env.reset()
    env.start_recording(tmp_path, "a")
    env.step(torch.ones(1, *env.single_action_space.shape))
    env.close()
    assert {pose.eye for pose in PoseRenderer.poses} == {(0.0, -2.0, 3.0)}


class CountingRenderer(BlankRenderer):
    """Notes the elapsed steps of each environment that it draws."""

    env: EmbodiedEnv
    seen: list[list[int]]

    def render(self, env_id: int, pose: Any) -> np.ndarray:
        self.seen[env_id].append(int(self.env.elapsed_steps[env_id]))
        return super().render(env_id, pose)


@pytest.mark.parametrize("shown", [1, 2])
def test_video_has_the_first_and_the_last_state_of_each_episode(
    shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "Renderer", CountingRenderer)
    monkeypatch.setattr(record, "_HOLD", 0.04)  # s: an image
    cam = recorder_cfg(resolution=[32, 16], max_env_num=shown)
    env = EmbodiedEnv(replace(cart_cfg(2), events={"cam": cam}, max_episode_steps=3))
    CountingRenderer.env, CountingRenderer.seen = env, [[], []]
    env.start_recording(tmp_path, "a")
    env.reset(seed=0)
    step(env, 1)
    env.reset(options={"reset_ids": [1]})  # a step behind the other
    step(env, 5)
    env.close()
    first, second = CountingRenderer.seen
    if shown == 1:
        assert first == [0, 1, 2, 3, 0, 1, 2, 3]
        assert second == []
    else:  # the image of a last state stays in place of the next one
        assert first == [0, 1, 2, 3, 2, 3]
        assert second == [0, 1, 1, 2, 3, 2]


@needs_gl
def test_interval_leaves_steps_out_and_keeps_the_speed(tmp_path: Path) -> None:
    env = cart_with(cam=recorder_cfg(interval_step=2))
    (path,) = recorded(env, tmp_path, 6)
    # the first state and every second step of 0.04 s
    assert imageio_ffmpeg.count_frames_and_secs(str(path)) == (4, 0.32)


def test_nothing_is_recorded_without_a_start_or_without_a_step(tmp_path: Path) -> None:
    env = cart_with(cam=recorder_cfg())
    env.reset()
    step(env, 1)
    assert env.stop_recording() == []
    env.start_recording(tmp_path, "a")
    assert env.stop_recording() == []
    env.close()
    assert os.listdir(tmp_path) == []


@needs_gl
def test_two_cameras_make_two_videos(tmp_path: Path) -> None:
    env = cart_with(one=recorder_cfg(name="one"), two=recorder_cfg(name="two", save_path="./outputs/own"))
    env.write_into(tmp_path)
    assert recorded(env, tmp_path / "videos", 1) == [tmp_path / "videos/one_a.mp4", tmp_path / "own/two_a.mp4"]
    assert (tmp_path / "own/two_a.mp4").is_file()


# --- when nothing can be recorded ---


def test_without_opengl_there_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_opengl(monkeypatch)
    env = cart_with(cam=recorder_cfg(record_camera_data_async))
    env.reset()
    for label in ("a", "b"):
        env.start_recording(tmp_path, label)
        step(env, 2)
        assert env.stop_recording() == []
    env.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] no video is recorded: off-screen OpenGL is missing")
    assert "apt-get install" in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("func", [record_camera_data, record_camera_data_async])
def test_failing_encoder_is_one_warning_a_video_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], func: type
) -> None:
    monkeypatch.setattr(record, "Renderer", BlankRenderer)
    (tmp_path / "cam_a.mp4").mkdir()  # ffmpeg finds a folder in its place
    env = cart_with(cam=recorder_cfg(func))
    env.reset()
    env.start_recording(tmp_path, "a")
    step(env, 40)
    assert env.stop_recording() == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] no video is recorded: ")
    assert f"{tmp_path}/cam_a.mp4" in line
    env.start_recording(tmp_path, "b")
    step(env, 2)
    assert env.stop_recording() == [tmp_path / "cam_b.mp4"]  # the next one is another matter
    env.close()
    assert len(frames(tmp_path / "cam_b.mp4")) == 2


def test_several_environments_stand_in_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "Renderer", BlankRenderer)
    env = cart_with(3, cam=recorder_cfg(record_camera_data_async, resolution=[64, 32], max_env_num=9, caption=False))
    (path,) = recorded(env, tmp_path, 2)
    picture = frames(path, 128, 64)[0].astype(int)
    # 0 and 1 above, 2 below; the fourth place is empty
    tiles = [picture[r : r + 32, c : c + 64].mean() for r in (0, 32) for c in (0, 64)]
    assert tiles == pytest.approx([0, 60, 120, 0], abs=4)


def test_save_path_cannot_lead_out_of_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "Renderer", BlankRenderer)
    env = cart_with(cam=recorder_cfg(save_path="../own"))
    env.write_into(tmp_path / "run")
    assert recorded(env, tmp_path / "run/videos", 3) == [tmp_path / "run/own/cam_a.mp4"]
    assert os.listdir(tmp_path) == ["run"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] save_path '../own' leads out of the run's folder")


# --- what makes no picture is refused before anything runs ---


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"resolution": [161, 120]}, "resolution[0]: Input should be a multiple of 2, got 161"),
        ({"resolution": [1922, 120]}, "resolution[0]: Input should be less than or equal to 1920, got 1922"),
        ({"name": "../../cam"}, "name: String should match pattern"),
        ({"eye": TARGET}, "eye: the view's direction must not be zero or along up, got"),
        ({"up": [0, 0, 0]}, "eye: the view's direction must not be zero or along up, got"),
    ],
)
def test_view_that_makes_no_picture_is_refused(params: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cart_with(cam=recorder_cfg(**params))
    assert str(caught.value).startswith(f"env.events.cam.params.{problem}")


@needs_gl
def test_caption_is_the_instruction_of_each_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = cart_with(2, cam=recorder_cfg(resolution=[64, 160], max_env_num=2, caption=True))
    monkeypatch.setattr(env, "instructions", lambda: ["push", ""])
    (path,) = recorded(env, tmp_path, 1)
    strips = frames(path, width=128, height=160)[0][-17:].astype(int)
    left, right = strips[:, :64], strips[:, 64:]
    # of 17 pixels in the colour (20, 20, 20), with light letters in the middle
    assert abs(left[:, :8].mean() - 20) < 6
    assert left.max() > 150
    assert abs(right[:, :8].mean() - 20) > 20


def test_caption_tells_episode_time_return_and_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "Renderer", BlankRenderer)
    said: list[tuple[str, Any]] = []
    draw = video.draw_caption

    def noted(image: np.ndarray, text: str, colour: Any, at_top: bool) -> np.ndarray:
        said.append((text, colour))
        return draw(image, text, colour, at_top)

    monkeypatch.setattr(video, "draw_caption", noted)
    cam = recorder_cfg(interval_step=2, resolution=[64, 32])
    env = EmbodiedEnv(replace(cart_cfg(1), events={"cam": cam}, max_episode_steps=4))
    monkeypatch.setattr(env, "knows_success", lambda: True)
    rewards = iter([1.0, 2.0, 4.0, 8.0, 0.0])
    monkeypatch.setattr(env, "_extend_reward", lambda *given: torch.tensor([next(rewards)]))
    env.start_recording(tmp_path, "a")
    env.reset(seed=0, options={"enumerate_episodes": True})
    step(env, 5)
    (path,) = env.stop_recording()
    env.close()
    texts = [text.split() for text, _ in said]
    # Every second state has an image, and the returns have all steps: 1 + 2 and 1 + 2 + 4 + 8.
    dt = env.step_dt
    assert texts == [
        ["episode", "0", "0.00", "s", "return", "0.00"],
        ["episode", "0", f"{2 * dt:.2f}", "s", "return", "3.00"],
        ["episode", "0", f"{4 * dt:.2f}", "s", "return", "15.00", "failure"],
        ["episode", "1", "0.00", "s", "return", "0.00"],
    ]
    assert said[2][1] == record._COLOURS["failure"]
    images = frames(path, 64, 32)
    # Half a second of the last state at 1 / (2 dt) images a second, and one of each other.
    assert len(images) == 4 + round(0.5 / (2 * dt))
    assert images[2][:14].max() > 100
    assert (images[2][16:] < 10).all()
