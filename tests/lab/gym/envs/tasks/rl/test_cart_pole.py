from __future__ import annotations

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from tests.lab.originals import CART_POLE
from tests.lab.scenes import env_of


def lean(env: EmbodiedEnv, angles: list[float]) -> None:
    env.robot.set_qpos(torch.tensor(angles)[:, None], name="hand", target=False)


@pytest.fixture(scope="module")
def env() -> EmbodiedEnv:
    env = env_of(CART_POLE, 4)
    env.reset(seed=1)
    return env


def test_upright_pole_is_success_and_a_fallen_one_failure_on_either_side(env: EmbodiedEnv) -> None:
    lean(env, [0.09, -0.2, -0.51, 0.6])
    success, fail, metrics = env.compute_task_state()
    assert success.tolist() == [True, False, False, False]
    assert fail.tolist() == [False, False, True, True]
    torch.testing.assert_close(metrics["pole_angle"], torch.tensor([0.09, 0.2, 0.51, 0.6]))


def test_success_does_not_end_the_episode_and_failure_does(env: EmbodiedEnv) -> None:
    env.reset(seed=1)
    lean(env, [0.0, 0.3, 1.0, -1.0])
    _, _, terminated, truncated, info = env.step(torch.zeros(4, 1))
    assert info["success"].tolist() == [True, False, False, False]
    assert terminated.tolist() == [False, False, True, True]
    assert not truncated.any()


def test_reward_falls_with_the_square_of_the_lean_and_is_nothing_once_fallen(env: EmbodiedEnv) -> None:
    env.reset(seed=1)
    lean(env, [0.0, 0.25, 0.4, 1.0])
    _, reward, _, _, info = env.step(torch.zeros(4, 1))
    angle = info["metrics"]["pole_angle"]
    upright = 1 - (angle / 0.5) ** 2
    torch.testing.assert_close(info["rewards"]["upright"][:3], upright[:3])
    assert info["rewards"]["upright"][3].item() == 0.0
    torch.testing.assert_close(reward, info["rewards"]["upright"] + info["rewards"]["calm"])
    # calm: -0.005 times the pole's speed after the step, 0 for the pole that stands still
    assert info["rewards"]["calm"][0].item() == pytest.approx(0.0, abs=1e-3)
    assert (info["rewards"]["calm"][1:] < 0).all()
