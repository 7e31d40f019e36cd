"""When curriculum terms are called, and their metrics. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.utils import ConfigError
from tests.lab.scenes import cart_cfg


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


def mean_step(env: EmbodiedEnv, env_ids: Tensor) -> Tensor:
    return env.elapsed_steps.float().mean()


def wrong(env: EmbodiedEnv, env_ids: Tensor) -> Tensor:
    return torch.zeros(3)


def leveled(func: Any = Level, num_envs: int = 2, **env: Any) -> EmbodiedEnv:
    terms = {"level": {"func": func}}
    return EmbodiedEnv(cart_cfg(num_envs, {"curriculum": terms, **env}, max_episode_steps=3))


def rested(env: EmbodiedEnv) -> Any:
    return env.step(torch.zeros(env.num_envs, 1))


def test_term_is_called_where_episodes_have_ended_in_their_last_state() -> None:
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


def test_number_is_a_metric_of_every_environment() -> None:
    env = leveled(mean_step)
    env.reset(seed=1)
    for _ in range(3):
        rested(env)
    assert rested(env)[4]["metrics"]["curriculum/level"].tolist() == [3.0, 3.0]


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
    with pytest.raises(ConfigError, match=r"env.curriculum.level: wrong must return a tensor \[\] or \[N\] = \[2\]"):
        leveled(wrong)
