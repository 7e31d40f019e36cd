"""Who climbs to a harder cell. The terrain's cells are 4 m wide; half of one is 2 m."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.managers.curriculum import terrain_levels
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from tests.lab.terrain_scenes import ball_env
from tests.no_sync import no_host_sync, work_as_on_a_device

COMMANDS = torch.tensor([[1.0, 0.0, 9.0], [0.6, 0.8, 0.0], [0.0, 0.0, 9.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def env_that_walked(folder: Path, walked: list[float], max_episode_steps: int | None = 50) -> Any:
    """Return an environment with commands; a whole episode takes 50 steps of 4 * 0.01 s = 2 s."""
    env: Any = ball_env(folder, num_envs=5, max_episode_steps=max_episode_steps)
    env.command_manager = SimpleNamespace(get_tracked={"base_velocity": COMMANDS}.__getitem__)
    distance = torch.tensor(walked)
    env.sim.terrain.distance_walked = lambda base: distance
    env.sim.terrain.levels = torch.ones(5, dtype=torch.int64)
    return env


def test_levels_follow_the_way_walked(tmp_path: Path) -> None:
    # Commanded: 2 m, 2 m, 0 m, 2 m, 0 m. Beyond 2 m: up; less than 1 m: down; between: stay; commanded to stand: stay.
    env = env_that_walked(tmp_path, [2.1, 0.9, 0.1, 1.1, 1.0])
    levels = terrain_levels(env, torch.arange(5))
    assert env.sim.terrain.levels.tolist() == [2, 0, 1, 1, 1]
    assert levels.tolist() == [2.0, 0.0, 1.0, 1.0, 1.0]


def test_environment_whose_physics_diverged_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_that_walked(tmp_path, [2.1, 0.9, 0.1, 1.1, 1.0])
    monkeypatch.setattr(env.sim.backend, "diverged", lambda: torch.tensor([True, False, False, False, False]))
    terrain_levels(env, torch.arange(5))
    assert env.sim.terrain.levels.tolist() == [1, 0, 1, 1, 1]


def test_levels_move_without_waiting_for_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_that_walked(tmp_path, [2.1, 0.9, 0.1, 0.0, 1.0])
    work_as_on_a_device(monkeypatch)
    with env.random.stream("levels"):
        terrain_levels(env, torch.arange(5))  # sends the stream's constants, once
    with no_host_sync(monkeypatch), env.random.stream("levels"):
        terrain_levels(env, torch.arange(5))


def test_only_the_given_environments_move(tmp_path: Path) -> None:
    env = env_that_walked(tmp_path, [2.1, 0.9, 3.0, 3.0, 3.0])
    terrain_levels(env, torch.tensor([1, 4]))
    assert env.sim.terrain.levels.tolist() == [1, 0, 1, 1, 2]


def test_random_level_beyond_the_last_is_drawn_by_the_environment(tmp_path: Path) -> None:
    levels = []
    for _ in range(2):
        env = env_that_walked(tmp_path, [3.0] * 5)
        env.sim.terrain.levels = torch.full((5,), 2)
        with env.random.stream("curriculum.terrain"):
            terrain_levels(env, torch.arange(5))
        levels.append(env.sim.terrain.levels.tolist())
    assert levels[0] == levels[1]
    assert len(set(levels[0])) > 1


def test_scene_without_terrain_or_time_limit_is_one_line(tmp_path: Path) -> None:
    env: Any = ball_env(tmp_path, terrain=None)
    with pytest.raises(ConfigError, match=r"'terrain_levels' needs the scene's 'terrain'$"):
        terrain_levels(env, torch.arange(8))
    env = env_that_walked(tmp_path, [0.0] * 5, max_episode_steps=None)
    with pytest.raises(ConfigError, match=r"'terrain_levels' needs a time limit"):
        terrain_levels(env, torch.arange(5))


def test_environments_in_groups_are_refused(tmp_path: Path) -> None:
    env = env_that_walked(tmp_path, [2.1, 0.9, 0.1, 1.1, 1.0])
    env.cfg = replace(env.cfg, group_size=5)
    with pytest.raises(ConfigError, match="'terrain_levels' moves environments one by one, and the 5 of a group"):
        terrain_levels(env, torch.arange(5))
