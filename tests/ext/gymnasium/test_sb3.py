from typing import Any

import numpy as np
import pytest

from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from tests.lab.scenes import cart_cfg

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3")

from stable_baselines3.common.vec_env import VecMonitor

from embodichain.ext.gymnasium.sb3 import SB3VecEnv

START = {"start": {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.1], [1, 0.1]]}}}
STILL = np.zeros((3, 1), dtype=np.float32)


def vec_env(steps: int = 2) -> SB3VecEnv:
    return SB3VecEnv(CartPoleEnv(cart_cfg(3, {"events": START}, max_episode_steps=steps)))


def test_ended_episode_has_last_observation_and_return() -> None:
    env = vec_env()
    env.seed(1)
    obs = env.reset()
    assert obs.shape == (3, 6)
    _, first, dones, infos = env.step(STILL)
    assert not dones.any()
    assert infos == [{}, {}, {}]
    after, second, dones, infos = env.step(STILL)
    assert isinstance(after, np.ndarray)
    assert dones.all()
    for i, info in enumerate(infos):
        assert info["TimeLimit.truncated"]
        assert not np.allclose(info["terminal_observation"], after[i])
        assert info["episode"]["l"] == 2
        assert info["episode"]["r"] == pytest.approx(first[i] + second[i])
        assert isinstance(info["is_success"], bool)
    env.step(STILL)
    assert env.step(STILL)[3][0]["episode"]["r"] < 2.1  # the sum began again


def test_fallen_pole_is_no_truncation() -> None:
    env = vec_env(steps=500)
    env.reset()
    env.env.robot.set_qpos(env.env.robot.get_qpos() + 1.0, target=False)
    _, _, dones, infos = env.step(STILL)
    assert dones.all()
    assert not any(info["TimeLimit.truncated"] for info in infos)


def test_attributes_and_methods_of_the_environment_are_reached() -> None:
    env: Any = vec_env()
    assert env.get_attr("num_envs", [0, 1]) == [3, 3]
    env.set_attr("fail_angle", 0.25)
    assert env.get_attr("fail_angle", 0) == [0.25]
    assert env.env_is_wrapped(VecMonitor) == [False, False, False]
    env.reset()
    assert len(env.env_method("get_info")) == 3
