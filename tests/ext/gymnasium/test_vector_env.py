"""Shapes: N environments, A action size."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from embodichain.ext.gymnasium.vector_env import GymnasiumVectorEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils.observations import flatten_dict_observation
from tests.lab.scenes import cart_cfg

START = {"start": {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.1], [1, 0.1]]}}}


def vector_env(num_envs: int = 3, flat: bool = False, steps: int = 2) -> GymnasiumVectorEnv:
    cfg = cart_cfg(num_envs, {"events": START}, max_episode_steps=steps)
    return GymnasiumVectorEnv(CartPoleEnv(cfg), flat)


@pytest.mark.parametrize(("env_id", "flat"), [("CartPoleRL", True), ("PushCubeRL", False)])
def test_task_is_made_by_its_name_alone_and_keeps_to_its_spaces(env_id: str, flat: bool) -> None:
    envs: Any = gym.make_vec(env_id, num_envs=2, flat=flat)
    assert isinstance(envs, GymnasiumVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = envs.reset(seed=3)
    for _ in range(3):
        assert envs.observation_space.contains(obs)
        obs, rewards, terminations, truncations, _ = envs.step(envs.action_space.sample())
        assert rewards.shape == terminations.shape == truncations.shape == (2,)
        assert terminations.dtype == truncations.dtype == np.bool_
    assert envs.single_action_space.contains(envs.action_space.sample()[0])
    envs.close()
    assert envs.closed


def test_observations_are_those_of_the_environment() -> None:
    ours = CartPoleEnv(cart_cfg(3, {"events": START}))
    expected = flatten_dict_observation(ours.reset(seed=5)[0]).numpy()
    assert np.array_equal(vector_env(flat=True).reset(seed=5)[0], expected)
    nested, _ = vector_env().reset(seed=5)
    assert np.array_equal(nested["robot"]["qpos"], ours.robot.get_qpos().numpy())


def test_ended_episodes_leave_their_last_observation_and_info() -> None:
    envs = vector_env(flat=True)
    envs.reset(seed=1)
    still = np.zeros((3, 1), dtype=np.float32)
    _, _, _, truncations, infos = envs.step(still)
    assert not truncations.any()
    assert "final_obs" not in infos
    assert infos["elapsed_steps"].tolist() == [1, 1, 1]
    assert infos["_elapsed_steps"].all()
    # the time limit is 2 steps
    obs, _, terminations, truncations, infos = envs.step(still)
    assert truncations.all()
    assert not terminations.any()
    assert infos["_final_obs"].all()
    final = np.stack(infos["final_obs"])
    assert final.shape == obs.shape
    assert not np.allclose(final, obs)  # one is of the old episode, one of the new
    assert infos["final_info"]["elapsed_steps"].tolist() == [2, 2, 2]
    assert infos["final_info"]["metrics"]["_pole_angle"].all()
    assert not infos["_elapsed_steps"].any()


def test_rows_that_go_on_have_no_final_observation() -> None:
    envs = vector_env(steps=2)
    envs.reset(seed=1)
    still = np.zeros((3, 1), dtype=np.float32)
    envs.step(still)
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    *_, infos = envs.step(still)
    assert infos["_final_obs"].tolist() == [True, False, True]
    assert infos["final_obs"][1] is None
    assert set(infos["final_obs"][0]["robot"]) == {"qpos", "qvel", "qf"}


def test_reset_mask_begins_new_episodes_only_there() -> None:
    envs = vector_env(flat=True, steps=9)
    envs.reset(seed=1)
    before, *_ = envs.step(np.ones((3, 1), dtype=np.float32))
    after, infos = envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert (before == after).all(axis=1).tolist() == [False, True, True]
    assert infos["_success"].tolist() == [True, False, False]


@pytest.mark.parametrize("mask", [[0, 2], [1, 0, 1], [True, False]])
def test_mask_that_is_none_is_refused(mask: list[Any]) -> None:
    with pytest.raises(ValueError, match="reset_mask must be 3 bools, got"):
        vector_env(flat=True, steps=9).reset(options={"reset_mask": np.array(mask)})


def test_choices_are_a_discrete_space_for_others() -> None:
    actions = {"move": {"func": "ChoiceTerm", "params": {"choices": [[-0.1], [0.0], [0.1]]}}}
    envs = GymnasiumVectorEnv(CartPoleEnv(cart_cfg(3, {"actions": actions})))
    assert envs.single_action_space == gym.spaces.Discrete(3)
    envs.reset(seed=1)
    one, *_ = envs.step(envs.action_space.sample() * 0 + 2)
    envs.reset(seed=1)
    other, *_ = envs.step(np.full((3, 1), 2.0))
    np.testing.assert_array_equal(one["robot"]["qpos"], other["robot"]["qpos"])


def test_returned_arrays_do_not_change() -> None:
    envs = vector_env()
    obs, _ = envs.reset(seed=1)
    kept = obs["robot"]["qpos"].copy()
    obs["robot"]["qpos"] += 1.0
    after, *_ = envs.step(np.ones((3, 1), dtype=np.float32))
    assert np.array_equal(obs["robot"]["qpos"], kept + 1.0)
    assert abs(after["robot"]["qpos"] - kept).max() < 0.5


def test_gymnasiums_wrapper_counts_episodes() -> None:
    envs = RecordEpisodeStatistics(vector_env(steps=4))
    envs.reset(seed=1)
    for _ in range(8):
        *_, infos = envs.step(np.zeros((3, 1), dtype=np.float32))
    assert envs.episode_count == 6
    assert list(envs.length_queue) == [4] * 6
    assert infos["episode"]["l"].tolist() == [4, 4, 4]
