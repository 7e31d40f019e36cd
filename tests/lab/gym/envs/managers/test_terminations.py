"""Conditions that end episodes, beside the task's own. Shapes: N environments."""

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor, terminations
from embodichain.lab.gym.envs.managers.cfg import TerminationCfg
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from tests.lab.legs import place_base, set_feet
from tests.lab.scenes import cart_cfg


def after_three(env: EmbodiedEnv) -> Tensor:
    """End the first environment's episode at its third step."""
    return (env.elapsed_steps == 3) & (env.all_env_ids == 0)


def second_env(env: EmbodiedEnv, step: int = 2) -> Tensor:
    return (env.elapsed_steps == step) & (env.all_env_ids == 1)


def number(env: EmbodiedEnv) -> Tensor:
    return env.elapsed_steps.float()


def cart(terms: dict[str, Any], **cfg: Any) -> EmbodiedEnv:
    env = EmbodiedEnv(cart_cfg(2, {"terminations": terms}, **cfg))
    env.reset(seed=1)
    return env


def rested(env: EmbodiedEnv) -> Any:
    return env.step(torch.zeros(env.num_envs, 1))


def test_failure_terminates_and_time_out_truncates() -> None:
    env = cart({"fails": {"func": second_env}, "cut": {"func": after_three, "time_out": True}})
    ends, flags, metrics = [], [], []
    for _ in range(3):
        _, _, terminated, truncated, info = rested(env)
        metrics.append([info["metrics"][f"termination/{name}"].tolist() for name in ("fails", "cut")])
        ends.append((terminated.tolist(), truncated.tolist()))
        flags.append((info["fail"].tolist(), info["success"].tolist()))
    no = [False, False]
    assert ends == [(no, no), ([False, True], no), (no, [True, False])]
    assert metrics == [[no, no], [[False, True], no], [no, [True, False]]]
    assert flags[1] == ([False, True], no)
    assert flags[2] == (no, no)  # a time-out is no failure
    assert env.elapsed_steps.tolist() == [0, 1]


def test_terms_add_to_the_time_limit_and_to_each_other() -> None:
    env = cart({"two": {"func": second_env}, "one": {"func": second_env, "params": {"step": 1}}}, max_episode_steps=2)
    _, _, terminated, truncated, _ = rested(env)
    assert terminated.tolist() == [False, True]
    _, _, terminated, truncated, _ = rested(env)
    assert terminated.tolist() == [False, True]  # in its first step again
    assert truncated.tolist() == [True, False]


def test_failure_takes_the_success_away() -> None:
    class Achieved(EmbodiedEnv):
        def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            return torch.ones(2, dtype=torch.bool), self._never, {}

    env = Achieved(cart_cfg(2, {"terminations": {"fails": {"func": second_env, "params": {"step": 1}}}}))
    env.reset(seed=1)
    info = rested(env)[4]
    assert info["success"].tolist() == [True, False]
    assert info["fail"].tolist() == [False, True]


def test_term_of_the_wrong_type_is_an_error_with_its_place() -> None:
    env = EmbodiedEnv(cart_cfg(2, {"terminations": {"count": {"func": number}}}))
    message = r"env.terminations.count: number must return a tensor \[N\] = \[2\] of bool, .*not a tensor \[2\]"
    with pytest.raises(ConfigError, match=message):
        env.reset()


class After(Functor):
    """Ends the episodes of a cart's environments after ``steps`` calls since their starts."""

    def __init__(self, cfg: TerminationCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.calls = torch.zeros(env.num_envs, dtype=torch.int64)

    def reset(self, env_ids: Tensor) -> None:
        self.calls = self.calls.index_fill(0, env_ids, 0)

    def __call__(self, env: EmbodiedEnv, steps: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return self.calls >= steps


def test_termination_with_state_is_reset_with_the_episodes() -> None:
    env = cart({"stuck": {"func": After, "params": {"steps": torch.tensor([2, 3])}}})
    ends = [rested(env)[2].tolist() for _ in range(6)]
    # A counter that is not reset would end every step from the first end on; one that a reset counts, a step sooner.
    assert ends == [[False, False], [True, False], [False, True], [True, False], [False, False], [True, True]]
    rested(env)
    env.reset(options={"reset_ids": [1]})
    assert [rested(env)[2].tolist() for _ in range(2)] == [[True, False], [False, False]]


def test_orientation_is_bad_beyond_the_angle_in_any_direction(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0, -0.99, 3.0], [1.01, 0.0, 0.0]])
    assert terminations.bad_orientation(env, limit_angle=1.0).tolist() == [False, True]
    # cos of the lean is cos(roll) cos(pitch): cos(0.8)^2 = 0.485, and cos(1.05) = 0.498, cos(1.07) = 0.480
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.8, 0.8, 0.0], [0.8, 0.8, 0.0]])
    assert terminations.bad_orientation(env, limit_angle=1.05).tolist() == [True, True]
    assert terminations.bad_orientation(env, limit_angle=1.07).tolist() == [False, False]


def test_height_is_that_of_the_base(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 0.199], [5.0, 1.0, 0.201]], [[0.0] * 3] * 2)
    assert terminations.base_height_below(env, minimum=0.2).tolist() == [True, False]


def test_contact_of_any_link_is_illegal(env: LocomotionEnv) -> None:
    feet = env.sim.get_contact_sensor("feet")
    assert terminations.illegal_contact(env, sensor="feet").tolist() == [False, False]
    set_feet(feet, in_contact=[[False] * 4, [False, False, True, False]])
    assert terminations.illegal_contact(env, sensor="feet").tolist() == [False, True]
