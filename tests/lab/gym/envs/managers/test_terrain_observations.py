"""The ground below a robot.

The terrain: stairs of 0.1, 0.15 and 0.2 m in a column at y = -2, with platforms of 2 m around x = -4, 0 and 4.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.locomotion_observations import base_height, height_scan
from embodichain.lab.sim.math import quat_from_euler
from embodichain.utils import ConfigError
from tests.lab.terrain_scenes import ball_env
from tests.no_sync import no_host_sync

TERMS = {
    "scan": {"func": "height_scan", "params": {"size": [1.0, 0.5], "resolution": 0.5}},
    "height": {"func": "base_height"},
}


@pytest.fixture
def env(tmp_path: Path) -> EmbodiedEnv:
    env = ball_env(tmp_path, {"observations": TERMS}, num_envs=2)
    env.reset()
    return env


def put(env: EmbodiedEnv, x: float, y: float, z: float, *euler_degrees: float) -> None:
    """Put the robots at one pose."""
    angles = torch.tensor([math.radians(angle) for angle in euler_degrees])
    row = torch.cat((torch.tensor([x, y, z]), quat_from_euler(angles)))
    env.robot.set_local_pose(row.expand(2, 7), env.all_env_ids)


def test_height_is_above_the_ground_below(env: EmbodiedEnv) -> None:
    put(env, 4.2, -2.1, 0.7, 10.0, 20.0, 30.0)  # on the highest platform, at 2 steps of 0.2 m
    torch.testing.assert_close(base_height(env), torch.full((2, 1), 0.3))


def test_scan_reads_the_ground_in_front_of_the_heading(env: EmbodiedEnv) -> None:
    # The middle platform, at 0.3 m, ends at x = 1, the first step, at 0.15 m, at 1.5; both sides are 0.25 m wide.
    put(env, 0.5, -2.0, 0.5, 0.0, 0.0, 0.0)
    scan = height_scan(env, (2.0, 0.5), 0.5)
    # x: -0.5, 0, 0.5, 1, 1.5; y: -0.25, 0.25 of each.
    expected = torch.tensor([0.3, 0.3, 0.3, 0.3, 0.15]).repeat_interleave(2) - 0.5
    torch.testing.assert_close(scan, expected.expand(2, 10))
    # Turned by 180 degrees, what was in front is behind: the first point.
    put(env, 0.5, -2.0, 0.5, 0.0, 0.0, 180.0)
    torch.testing.assert_close(height_scan(env, (2.0, 0.5), 0.5), expected.flip(0).expand(2, 10))


def test_scan_turns_with_the_heading_alone(env: EmbodiedEnv) -> None:
    put(env, 0.5, 1.0, 0.5, 0.0, 0.0, 40.0)
    level = height_scan(env)
    assert len(level[0].unique()) > 20
    put(env, 0.5, 1.0, 0.5, 25.0, -35.0, 40.0)
    torch.testing.assert_close(height_scan(env), level)  # roll and pitch come before the turn about the fixed z


def test_scan_is_clipped_and_has_a_point_at_each_corner(env: EmbodiedEnv) -> None:
    put(env, 0.0, -2.0, 3.0, 0.0, 0.0, 0.0)
    assert height_scan(env).shape == (2, 17 * 11)  # 1.6 m and 1.0 m in steps of 0.1 m
    assert (height_scan(env, clip=0.25) == -0.25).all()


def test_ground_without_a_terrain_is_at_zero(tmp_path: Path) -> None:
    env = ball_env(tmp_path, terrain=None, num_envs=2)
    env.reset()
    torch.testing.assert_close(base_height(env), torch.full((2, 1), 0.2))
    torch.testing.assert_close(height_scan(env), torch.full((2, 187), -0.2))


def test_terms_are_found_by_name_and_do_not_wait_for_the_device(
    env: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    obs, _ = env.reset()
    assert obs["scan"].shape == (2, 6)  # 3 points along x, 2 along y
    assert obs["height"].shape == (2, 1)
    with no_host_sync(monkeypatch):
        height_scan(env)
        base_height(env)


def test_grid_without_extent_is_one_line(tmp_path: Path) -> None:
    scan = {"scan": {"func": "height_scan", "params": {"size": [0.0, 1.0]}}}
    with pytest.raises(ConfigError, match=r"^env\.observations\.scan\.params\.size\[0\]: .*greater than 0, got 0\.0$"):
        ball_env(tmp_path, {"observations": scan})
