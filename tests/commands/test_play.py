"""``embodichain play``: videos of a policy, and of a task alone."""

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from gymnasium import spaces
from matplotlib.image import imread
from tensordict import TensorDict

from embodichain.cli import main
from embodichain.commands.play import format_episodes
from embodichain.commands.view import RandomAgent, ZeroAgent
from embodichain.lab.gym.envs.managers.record import View
from embodichain.lab.sim.rendering.renderer import opengl_problem
from embodichain.utils.choices import Choices
from tests.agents.rl.fakes import CART_POLE_ENV
from tests.videos import read_video

pytestmark = pytest.mark.e2e

SMALL = ("--size", "64", "48", "--episodes", "1")
needs_gl = pytest.mark.skipif(opengl_problem() is not None, reason="no OpenGL")


def frames(path: Path) -> np.ndarray:
    return read_video(path, 48, 64)


@needs_gl
def test_video_of_a_run_shows_something_that_moves(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "latest", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "length   60  success" in out
    (path,) = run_folder.glob("videos/play_step_16.mp4")
    assert str(path.name) in out
    pictures = frames(path)
    assert len(pictures) == 61 + 12  # before the first step, after each, and the last one for half a second
    assert pictures[0].std() > 10  # not one colour
    assert np.abs(pictures[0].astype(int) - pictures[20].astype(int)).max() > 30


@needs_gl
def test_grid_plays_each_episode_once_in_slow_motion(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int]] = []
    render = View.render

    def noted(camera: View, index: int = 0) -> np.ndarray:
        seen.append((index, int(camera.env.elapsed_steps[index])))
        return render(camera, index)

    monkeypatch.setattr(View, "render", noted)
    size = ("--size", "64", "48", "--out", "grid.mp4", "max_episode_steps=2")
    assert main(["play", "latest", "--grid", "2x1", "--speed", "0.5", *size]) == 0
    assert "episode 1" in capsys.readouterr().out
    assert seen == [(i, t) for t in (0, 1, 2) for i in (0, 1)]
    # Both end together: the video stops for half a second, 6 images of 2 * 0.04 s.
    assert read_video(Path("grid.mp4"), 48, 128).shape[0] == 3 + 6
    assert imageio_ffmpeg.count_frames_and_secs("grid.mp4")[1] == pytest.approx(9 * 0.08)
    with pytest.raises(SystemExit):
        main(["play", "latest", "--grid", "9x1"])
    assert "must be columns x rows, such as 3x3, at most 8x8, got '9x1'" in capsys.readouterr().err


@needs_gl
def test_played_episodes_are_recorded_as_a_dataset(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from embodichain.ext.lerobot.dataset import read_lerobot  # noqa: PLC0415 (an extension)

    pytest.importorskip("pyarrow", reason="needs pyarrow")
    out = tmp_path / "shown"
    for source in (["latest"], ["train_config.json", "--agent", "zero"]):
        assert main(["play", *source, *SMALL, "--record", str(out / source[0])]) == 0
        assert f"dataset    {out / source[0]}\n" in capsys.readouterr().out
        (episode,) = read_lerobot(out / source[0])
        # The policy balances the pole to the end, no action does not.
        assert (len(episode.frames["action"]) == 60) == (source == ["latest"])
    assert main(["play", "latest", *SMALL, "--record", str(out / "latest")]) == 2
    assert "is there already: name another folder" in capsys.readouterr().err


def test_uneven_size_and_a_recorded_viewer_are_errors(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "latest", "--size", "65", "48"]) == 2
    assert "--size 65 48: even numbers are needed" in capsys.readouterr().err
    for option, *values in (["record", "shown"], ["record-motion", "x.npz"], ["speed", "0.5"], ["size", "64", "48"]):
        assert main(["play", "latest", "--viewer", f"--{option}", *values]) == 2
        assert capsys.readouterr().err.endswith(f"error: --{option}: nothing is written with --viewer\n")


def test_video_of_an_unknown_kind_is_refused(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["play", "latest", "--out", "p.txt"])
    assert end.value.code == 2
    assert "argument --out: must end with one of .mp4, .mov, .mkv, .avi, got 'p.txt'" in capsys.readouterr().err


def test_agents_do_what_their_names_say() -> None:
    space = spaces.Box(np.array([-1, 2, -np.inf], np.float32), np.array([0, 3, np.inf], np.float32))
    td = TensorDict({"obs": torch.zeros(500, 4)}, batch_size=[500])
    assert not ZeroAgent(space).get_action(td)["action"].any()
    actions = RandomAgent(space).get_action(td)["action"]
    for column, (low, high) in enumerate([(-1, 0), (2, 3), (-1, 1)]):
        values = actions[:, column]
        assert values.min() >= low
        assert values.max() <= high
        assert values.std() == pytest.approx((high - low) / 12**0.5, rel=0.15)


def test_random_agent_takes_each_choice_equally_often() -> None:
    td = TensorDict({"obs": torch.zeros(4000, 4)}, batch_size=[4000])
    actions = RandomAgent(Choices([4, 2])).get_action(td)["action"].long()
    counts = [actions[:, column].bincount().tolist() for column in (0, 1)]
    assert counts == [pytest.approx([1000] * 4, rel=0.2), pytest.approx([2000] * 2, rel=0.2)]


def test_agent_on_a_run_is_refused(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("latest", str(run_folder.relative_to(Path.cwd()))):
        assert main(["play", target, "--agent", "random"]) == 2
        assert f"error: {target}: is a run, and --agent random plays a config" in capsys.readouterr().err


@needs_gl
def test_view_is_an_image_with_observations_and_actions(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--size", "64", "48")
    assert main(["view", "train_config.json", *small]) == 0
    out = capsys.readouterr().out
    assert "CartPoleRL: a step is 0.04 s" in out
    assert "robot/qpos                   [2]            columns 2 to 3" in out
    assert "0  delta_qpos           [-1, 1]  slider_to_cart: change of joint position, m: -0.1 to 0.1" in out
    picture = imread("scene.png")
    assert picture.shape[:2] == (48, 64)
    assert picture.std() > 0.02
    assert main(["view", str(CART_POLE_ENV), *small, "--out", "no/scene.png"]) == 2
    assert "error: --out no/scene.png: cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["play", "eval"])
@pytest.mark.parametrize("name", ["train_config.json", "cart_pole"])
def test_config_in_place_of_a_run_is_one_line(
    command: str, name: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name]) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}: is a config, and no run: train it first (embodichain ")


@needs_gl
@pytest.mark.parametrize("target", [["latest"], ["train_config.json", "--agent", "random"]])
def test_overrides_change_what_is_played(
    target: list[str], run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(run_folder.parent / "short.mp4")
    assert main(["play", *target, "max_episode_steps=5", *SMALL, "--out", out]) == 0
    assert "length    5" in capsys.readouterr().out
    assert main(["play", *target, "trainer.device=cpu", *SMALL, "--out", out]) == 2
    assert "trainer.device is decided here by the command's own options" in capsys.readouterr().err


@needs_gl
def test_motion_of_the_first_episode_is_recorded_as_a_clip(tmp_path: Path) -> None:
    clip = tmp_path / "clip.npz"
    out = ("--out", str(tmp_path / "x.mp4"), "--size", "64", "48", "--episodes", "2", "max_episode_steps=25")
    # It starts at any frame of the shipped clip, and falls for half a second.
    assert main(["play", "g1_motion", "--agent", "zero", "--record-motion", str(clip), *out]) == 0
    with np.load(clip) as first:
        frames = len(first["joint_pos"])
        assert first["fps"] == 50.0
        assert first["body_quat_w"].shape == (frames, 20, 4)
        moved = np.gradient(first["body_pos_w"][:, 0, 0], 0.02)
        np.testing.assert_allclose(moved[2:-2], first["body_lin_vel_w"][2:-2, 0, 0], atol=0.1)
    # It can be followed, and is drawn over the video.
    follow = f'gym_config.env.commands.motion.params.files=["{clip}"]'
    assert main(["play", "g1_motion", "--agent", "zero", "--record-motion", str(clip), *out, follow]) == 0
    assert len(np.load(clip)["joint_pos"]) <= frames


def test_motion_of_a_fixed_robot_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ("--record-motion", str(tmp_path / "clip.npz"), "--out", str(tmp_path / "x.mp4"))
    assert main(["play", "cart_pole", "--agent", "zero", *SMALL, *out]) == 2
    assert "--record-motion: needs a robot with a free base" in capsys.readouterr().err


def test_line_of_an_episode_says_which_termination_ended_it() -> None:
    columns = {"return": [1.0, 2.0], "length": [3.0, 4.0], "success": [0.0, 1.0]}
    columns |= {"metrics/termination/fell": [0.3, 0.0], "metrics/termination/fell at the end": [1.0, 0.0]}
    columns["metrics/termination/left at the end"] = [np.nan, 0.0]  # not known in the first one
    first, second = format_episodes({name: np.array(values) for name, values in columns.items()}).splitlines()
    assert first.endswith("length    3  no success: fell")
    assert second.endswith("length    4  success")
