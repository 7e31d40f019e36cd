"""Motion clips: files, resampling, and kinematics by hand. Shapes: T frames, J joints."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.motion import MotionClip, clip_from_positions, load_clip
from embodichain.utils import ConfigError

MODEL = mujoco.MjModel.from_xml_string("""
<mujoco><worldbody><body name="r/base"><freejoint/><geom size=".1" mass="2"/>
  <body name="r/arm" pos="1 0 0"><joint name="r/hinge" axis="0 0 1"/><geom size=".1" mass="3"/></body>
</body></worldbody></mujoco>""")
ROBOT: Any = SimpleNamespace(uid="r", joint_names=["hinge"], link_names=["base", "arm"], base=SimpleNamespace(root=1))
ARRAYS = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")


def moving(frames: int = 11, fps: float = 10.0) -> MotionClip:
    """Return a base that moves at 2 m/s along x and turns at 0.5 rad/s about z, with a hinge at 1 rad/s more."""
    t = np.arange(frames) / fps
    root = np.zeros((frames, 7))
    root[:, 0], root[:, 3], root[:, 6] = 2.0 * t, np.cos(0.25 * t), np.sin(0.25 * t)
    return clip_from_positions(ROBOT, MODEL, fps, root, t[:, None])


def test_kinematics_give_poses_and_velocities_of_the_bodies() -> None:
    clip, angle = moving(), 0.5  # after 1 s
    arm = clip.body_pos_w[10, 1]
    np.testing.assert_allclose(arm, [2.0 + np.cos(angle), np.sin(angle), 0.0], atol=1e-6)
    # v + w x r with r = (cos, sin): 2 m/s - 0.5 sin, 0.5 cos.
    np.testing.assert_allclose(clip.body_lin_vel_w[10, 1], [2 - 0.5 * np.sin(angle), 0.5 * np.cos(angle), 0], atol=1e-5)
    np.testing.assert_allclose(clip.body_ang_vel_w[10], [[0, 0, 0.5], [0, 0, 1.5]], atol=1e-5)
    np.testing.assert_allclose(clip.body_quat_w[10, 1], [np.cos(0.75), 0, 0, np.sin(0.75)], atol=1e-6)
    np.testing.assert_allclose(clip.joint_vel, 1.0)


def test_clip_is_resampled_to_another_rate() -> None:
    clip = moving()
    fine = clip.resampled(50.0)
    assert (fine.fps, len(fine.joint_pos)) == (50.0, 51)
    np.testing.assert_allclose(fine.joint_pos[:, 0], np.arange(51) / 50.0)
    np.testing.assert_allclose(fine.body_quat_w, moving(51, 50.0).body_quat_w, atol=1e-5)
    coarse = clip.resampled(5.0)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(coarse, name), getattr(clip, name)[::2], atol=1e-12)


def test_opposite_quaternions_are_the_same_rotation() -> None:
    clip = moving()
    clip.body_quat_w[1] *= -1.0
    quat = clip.resampled(20.0).body_quat_w
    half = np.cos(0.25 * 0.05)
    np.testing.assert_allclose(np.abs(quat[1:4:2, 0, 0]), [half, np.cos(0.25 * 0.15)], atol=1e-5)


def test_written_clip_is_read_again(tmp_path: Path) -> None:
    clip = moving()
    clip.save(tmp_path / "clip.npz")
    read = load_clip(tmp_path / "clip.npz", ROBOT, MODEL)
    assert read.fps == 10.0
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(read, name), getattr(clip, name), atol=1e-6)


def test_csv_has_the_base_quaternion_last_first_and_named_joints(tmp_path: Path) -> None:
    clip = moving()
    quat = clip.body_quat_w[:, 0, [1, 2, 3, 0]]
    other = np.full((11, 1), 7.0)  # a joint that the robot lacks
    np.savetxt(tmp_path / "clip.csv", np.hstack((clip.body_pos_w[:, 0], quat, other, clip.joint_pos)), delimiter=",")
    read = load_clip(tmp_path / "clip.csv", ROBOT, MODEL, csv_fps=10.0, joint_names=["wrist", "hinge"])
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(read, name), getattr(clip, name), atol=1e-5)


def test_joints_of_another_robots_npz_are_chosen_by_name(tmp_path: Path) -> None:
    clip = moving()
    joints = np.hstack((clip.joint_pos, np.zeros((11, 1))))
    bodies = np.concatenate((clip.body_pos_w, clip.body_pos_w), axis=1)
    other = MotionClip(10.0, joints, joints, bodies, clip.body_quat_w, clip.body_lin_vel_w, clip.body_ang_vel_w)
    other.save(tmp_path / "clip.npz")
    read = load_clip(tmp_path / "clip.npz", ROBOT, MODEL, joint_names=["hinge", "wrist"])
    np.testing.assert_allclose(read.body_lin_vel_w, clip.body_lin_vel_w, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "names", "message"),
    [
        ({"joint_vel": None}, None, "has no joint_vel"),
        ({"body_pos_w": np.zeros((11, 3, 3))}, None, "has 3 bodies, and robot 'r' 2"),
        ({}, ["wrist"], "lacks hinge"),
        ({"joint_pos": np.zeros((11, 2))}, None, "has 1 of the 2 joints"),
    ],
)
def test_file_that_does_not_fit_is_an_error(
    arrays: dict[str, Any], names: list[str] | None, message: str, tmp_path: Path
) -> None:
    clip = moving()
    content = {name: getattr(clip, name) for name in ARRAYS} | {"fps": [10]} | arrays
    np.savez(tmp_path / "clip.npz", **{name: value for name, value in content.items() if value is not None})
    with pytest.raises(ConfigError, match=message):
        load_clip(tmp_path / "clip.npz", ROBOT, MODEL, joint_names=names)


def test_csv_without_a_rate_is_an_error() -> None:
    with pytest.raises(ConfigError, match="csv_fps: required"):
        load_clip(Path("clip.csv"), ROBOT, MODEL)
