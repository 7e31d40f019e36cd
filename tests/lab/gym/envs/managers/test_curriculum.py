"""Curriculum terms by hand. Shapes: N environments."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.lab.gym.envs.managers.commands import UniformVelocityCommand
from embodichain.lab.gym.envs.managers.curriculum import terrain_levels
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError, replace
from tests.lab.gym.envs.managers.test_commands import Goal
from tests.lab.legs import legs_data, legs_env
from tests.lab.scenes import cart_cfg
from tests.lab.terrain_scenes import ball_env
from tests.no_sync import no_host_sync, work_as_on_a_device


def widened(num_envs: int = 4, **params: Any) -> tuple[LocomotionEnv, UniformVelocityCommand]:
    curriculum = {"range": {"func": "command_range", "params": params}}
    env = legs_env(num_envs, {"curriculum": curriculum}, max_episode_steps=10)
    env.reset(seed=1)
    term = env.command_manager.get_term("base_velocity")
    assert isinstance(term, UniformVelocityCommand)
    return env, term


def end(env: LocomotionEnv, lengths: list[int]) -> float:
    """End episodes of these lengths, one for each environment from the first on; return the term's share."""
    env.elapsed_steps[: len(lengths)] = torch.tensor(lengths)
    env.curriculum_manager.end_episodes(env.all_env_ids[: len(lengths)])
    return float(env.curriculum_manager.metrics()["curriculum/range"][0])


def test_share_grows_with_long_and_shrinks_with_short_episodes() -> None:
    env, term = widened(initial=0.2, step=0.4, long_share=0.8)
    assert float(term.range_scale) == pytest.approx(0.2)
    # Long are 8 of 10 steps. Each episode counts 0.4 / 4 = 0.1: up by 2, up by 3 and down by 1, down by 2.
    assert end(env, [8, 10]) == pytest.approx(0.4)
    assert end(env, [10, 10, 7, 9]) == pytest.approx(0.6)
    assert end(env, [1, 7]) == pytest.approx(0.4)
    assert float(term.range_scale) == pytest.approx(0.4)


def test_commands_of_the_next_episodes_are_within_the_share() -> None:
    env, term = widened(64, initial=0.25)
    env.reset(seed=2)
    assert float(term.command[:, 0].abs().max()) <= 0.25
    assert float(term.command[:, 0].abs().max()) > 0.2


def test_range_without_a_time_limit_is_an_error() -> None:
    message = r"^func: 'command_range' needs a time limit: set .*\nenv\.curriculum\.range$"
    cfg = config_to_cfg(legs_data({"curriculum": {"range": {"func": "command_range"}}}))
    cfg.max_episode_steps = None
    with pytest.raises(ConfigError, match=message):
        LocomotionEnv(cfg)


def test_command_without_ranges_is_an_error() -> None:
    goal = {"goal": {"func": Goal}, "base_velocity": {"func": "UniformVelocityCommand"}}
    curriculum = {"range": {"func": "command_range", "params": {"command": "goal"}}}
    with pytest.raises(ConfigError, match=r"^params.command: 'goal' has no ranges to widen: Goal"):
        legs_env(1, {"curriculum": curriculum, "commands": goal})


class Level(Functor):
    """Goes up by one with each episode that ends; it notes when."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.level = torch.zeros(env.num_envs)
        self.calls: list[tuple[list[int], list[int]]] = []

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> Tensor:
        self.calls.append((env_ids.tolist(), env.elapsed_steps[env_ids].tolist()))
        self.level = self.level.index_add(0, env_ids, torch.ones(len(env_ids)))
        return self.level


class Note(Functor):
    """An event that notes the levels which it finds at a reset."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.found: list[list[float]] = []

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> None:
        manager = getattr(env, "curriculum_manager", None)  # not there yet at the first reset
        if manager is not None:
            self.found.append(manager.functors[0].level[env_ids].tolist())


def wrong_level(env: EmbodiedEnv, env_ids: Tensor) -> Tensor:
    return torch.zeros(3)


def leveled(func: Any = Level, num_envs: int = 2, **env: Any) -> EmbodiedEnv:
    terms = {"level": {"func": func}}
    return EmbodiedEnv(cart_cfg(num_envs, {"curriculum": terms, **env}, max_episode_steps=3))


def rested(env: EmbodiedEnv) -> Any:
    return env.step(torch.zeros(env.num_envs, 1))


def test_curriculum_is_called_in_the_last_state() -> None:
    env = leveled()
    (level,) = env.curriculum_manager.functors
    assert isinstance(level, Level)
    env.reset(seed=1)
    env.elapsed_steps[1] = 1
    for _ in range(3):
        rested(env)
    # Once for nobody when the environment is built. Resets that a caller asks for end no episode.
    assert level.calls == [([], []), ([1], [3]), ([0], [3])]


def test_metric_is_there_from_the_first_step_on() -> None:
    env = leveled()
    env.reset(seed=1)
    found = [rested(env)[4]["metrics"]["curriculum/level"].tolist() for _ in range(4)]
    # The episodes end with the third step, whose metrics are from before.
    assert found == [[0.0, 0.0]] * 3 + [[1.0, 1.0]]


def test_events_of_the_next_episode_come_after_the_curriculum() -> None:
    env = leveled(events={"note": {"func": Note, "mode": "reset"}})
    (note,) = env.event_manager.functors
    assert isinstance(note, Note)
    env.reset(seed=1)
    note.found.clear()
    for _ in range(6):
        rested(env)
    assert note.found == [[1.0, 1.0], [2.0, 2.0]]


def test_wrong_return_is_an_error_when_the_environment_is_built() -> None:
    with pytest.raises(ConfigError, match=r"curriculum.level: wrong_level must return a tensor \[\] or \[N\] = \[2\]"):
        leveled(wrong_level)


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


def test_random_level_beyond_the_last_is_drawn(tmp_path: Path) -> None:
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
