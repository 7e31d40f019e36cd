"""The task of legs: success, metrics, falls. Shapes: N environments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.legs import GO2, legs_data, legs_env, place_base, set_command

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/go2_flat/gym_config.json"
FALLS = {"bad_orientation": {"func": "bad_orientation", "params": {"limit_angle": 1.0}}}


def test_errors_are_those_to_the_tracked_command() -> None:
    env = legs_env(2)
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0, 0.0, math.pi / 2], [0.0] * 3])
    env.robot.base.set_velocity(torch.tensor([[0.0, 0.7, 9.0, 0.0, 0.0, 1.0], [0.0] * 6]), env.all_env_ids)
    # Turned to the left, (0, 0.7) is 0.7 forwards: errors 0.3 and 0.4 are 0.5; 1 - 0.2.
    set_command(env, [[0.4, 0.4, 0.2], [0.0, 0.0, -0.3]])
    _, _, metrics = env.compute_task_state()
    assert metrics["velocity_error_xy"].tolist() == pytest.approx([0.5, 0.0])
    assert metrics["velocity_error_yaw"].tolist() == pytest.approx([0.8, 0.3])


def test_success_is_of_the_mean_errors_of_the_episode() -> None:
    env = legs_env(2, {"extensions": {"max_velocity_error": 0.3, "max_yaw_rate_error": 0.4}})
    env.reset(seed=1)
    env.elapsed_steps = torch.tensor([10, 10])
    env._error_sums = torch.tensor([[2.9, 3.9], [2.9, 4.1]])
    assert env.compute_task_state()[0].tolist() == [True, False]
    env._error_sums = torch.tensor([[3.1, 0.0], [0.0, 0.0]])
    assert env.compute_task_state()[0].tolist() == [False, True]


def test_errors_are_summed_over_an_episode_and_begin_anew() -> None:
    env = legs_env(1, max_episode_steps=3)
    env.reset(seed=1)
    total = torch.zeros(())
    for _ in range(2):
        info = env.step(torch.zeros(1, 12))[4]
        total = total + info["metrics"]["velocity_error_xy"][0]
    torch.testing.assert_close(env._error_sums[0, 0], total)
    env.step(torch.zeros(1, 12))
    assert not env._error_sums.any()


def test_success_does_not_end_an_episode() -> None:
    still = {"func": "UniformVelocityCommand", "params": {"standing_share": 1.0}}
    env = legs_env(1, {"commands": {"base_velocity": still}}, max_episode_steps=10)
    env.reset(seed=1)
    ends = []
    for _ in range(10):
        _, _, terminated, truncated, info = env.step(torch.zeros(1, 12))
        ends.append((bool(terminated), bool(truncated)))
    assert info["success"].tolist() == [True]
    assert ends == [(False, False)] * 9 + [(False, True)]


def test_fall_ends_the_episode_and_is_counted() -> None:
    env = legs_env(2, {"terminations": FALLS})
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0] * 3, [1.5, 0.0, 0.0]])
    _, _, terminated, truncated, info = env.step(torch.zeros(2, 12))
    assert terminated.tolist() == [False, True]
    assert truncated.tolist() == [False, False]
    assert info["metrics"]["fall_rate"].tolist() == [False, True]
    assert info["success"].tolist() == [info["success"][0].item(), False]
    assert env.elapsed_steps.tolist() == [1, 0]


def test_penalty_for_a_fall_is_not_limited() -> None:
    rewards: dict[str, Any] = {
        "bad": {"func": "flat_orientation_l2", "weight": -100.0},
        "alive": {"func": "is_alive"},
        "fall": {"func": "is_terminated", "weight": -200.0},
    }
    data = {"rewards": rewards, "terminations": FALLS, "extensions": {"only_positive_rewards": True}}
    env = legs_env(2, data)
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0] * 3, [1.5, 0.0, 0.0]])
    _, reward, terminated, _, _ = env.step(torch.zeros(2, 12))
    assert terminated.tolist() == [False, True]
    assert float(reward[0]) == pytest.approx(1.0, abs=0.1)
    assert float(reward[1]) == -200.0  # the lean, which outweighs being alive, is limited to 0


def test_task_without_its_command_is_an_error() -> None:
    data = legs_data({"commands": {}, "observations": {"velocity": {"func": "base_lin_vel"}}})
    with pytest.raises(ConfigError, match=r"env.commands: unknown command 'base_velocity'. Known: none"):
        build_env("Go2FlatRL", base_env_cfg=config_to_cfg(data))


def test_packaged_config_is_the_shipped_one() -> None:
    shipped = {key: value for key, value in load_json(CONFIG).items() if key not in ("$schema", "id")}
    assert config_to_cfg(shipped | {"id": "Go2FlatRL"}) == default_cfg("go2_flat")()


@pytest.mark.parametrize("is_fixed", [True, False])
def test_base_that_hangs_fixed_is_warned_of(is_fixed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    legs_env(1, robot=GO2 | {"fix_base": is_fixed})
    assert ("robot.fix_base: is true, the default: the base hangs" in capsys.readouterr().err) == is_fixed
