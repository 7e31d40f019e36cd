"""What of a Gymnasium environment is saved and restored. Legend: N envs."""

from __future__ import annotations

import io
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from embodichain.lab.gym.wrappers.gymnasium_env.cfg import GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.env import GymnasiumEnv
from embodichain.lab.gym.wrappers.gymnasium_env.member_state import UnknownStateError, copy_state, restore_state
from embodichain.utils.state import freeze, thaw
from tests.lab.gym.wrappers.gymnasium_env.scripted import registered, scripted
from tests.lab.gym.wrappers.gymnasium_env.test_env import assert_equal_steps, make


def through_a_file(state: Any) -> Any:
    """Return a state as a checkpoint gives it back, which is loaded without running code."""
    file = io.BytesIO()
    torch.save(freeze(state), file)
    file.seek(0)
    return thaw(torch.load(file, weights_only=True))


# Ant, Humanoid and the pendulums compute rewards or observations from derived fields of MuJoCo; Pusher and Reacher keep
# goals; the last two are plain Python.
RESTORED = [
    *("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "Swimmer-v5", "Reacher-v5", "Pusher-v5"),
    *("InvertedDoublePendulum-v5", "Pendulum-v1", "MountainCarContinuous-v0"),
]


@pytest.mark.parametrize("env_id", RESTORED)
def test_steps_after_a_resume_are_bit_equal(env_id: str) -> None:
    # The time limit is reached in the steps after the resume, so that new episodes begin there.
    env = make(env_id, 2, max_episode_steps=12)
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(20, 2, *env.single_action_space.shape, generator=generator) * 2 - 1
    env.reset(seed=3)
    for action in actions[:9]:
        env.step(action)
    state = through_a_file(env.state_dict())
    expected = [env.step(action) for action in actions[9:]]
    env.close()
    resumed = make(env_id, 2, max_episode_steps=12)
    resumed.reset(seed=77)
    resumed.step(actions[0])
    assert resumed.load_state_dict(state)
    assert_all_equal(expected, [resumed.step(action) for action in actions[9:]])
    resumed.close()
    assert any(bool((step[2] | step[3]).any()) for step in expected)


def assert_all_equal(ours: list[Any], theirs: list[Any]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert_equal_steps(mine, other)


class _Drawing(gym.Env[Any, Any]):
    """Draws in every step, from its own generator and from its action space, and shows what its inner object counts."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self) -> None:
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float64)
        self.counts = np.zeros(2)
        self.view = self.counts[:1]
        self.inner = _Inner()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.inner.steps += 1
        self.view += 1.0
        obs = np.array([self.np_random.random(), self.action_space.sample()[0], self.counts[0]])
        return obs, float(self.inner.steps), False, False, {}


class _Inner:
    def __init__(self) -> None:
        self.steps = 0


def test_generators_views_and_inner_objects_are_restored() -> None:
    with registered("Drawing-v0", _Drawing, max_episode_steps=50):
        first, second = make("Drawing-v0"), make("Drawing-v0")
        first.reset(seed=1)
        second.reset(seed=2)
        for _ in range(3):
            first.step(torch.zeros(2, 1))
        assert second.load_state_dict(through_a_file(first.state_dict()))
        for _ in range(2):
            ours, theirs = first.step(torch.zeros(2, 1)), second.step(torch.zeros(2, 1))
            assert_equal_steps(ours, theirs)
        assert theirs[1].tolist() == [5.0, 5.0]
        assert theirs[0]["observation"][:, 2].tolist() == [5.0, 5.0]  # the array that the view belongs to


class _Holding(gym.Env[Any, Any]):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.held = threading.Lock()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}


def test_new_episodes_begin_where_the_state_is_not_known() -> None:
    with registered("Holding-v0", _Holding):
        env = make("Holding-v0")
        env.reset(seed=1)
        env.reset()
        state = through_a_file(env.state_dict())
        next_seeds = [env.reset() and env.random.episode.tolist()]
        resumed = make("Holding-v0")
        resumed.reset(seed=1)
        assert not resumed.load_state_dict(state)
        resumed.reset()
    assert next_seeds == [resumed.random.episode.tolist()] == [[2, 2]]


def test_the_log_says_in_one_line_why_new_episodes_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted("Disabled") as env:
        env.reset(seed=1)
        assert not env.load_state_dict(through_a_file(env.state_dict()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "gymnasium:Scripted-v0: new episodes begin, since the state of these cannot be restored: the environment's "
        "own vector form does not give it"
    )


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (threading.Lock(), "env.held is a _thread.lock, whose state is not known"),
        (np.random.RandomState(1), "env.held is a numpy.random.mtrand.RandomState, whose state is not known"),
        ([object()], "env.held is a builtins.list, whose state is not known"),
    ],
)
def test_what_is_not_known_is_named(held: Any, message: str) -> None:
    env = _Holding()
    env.held = held
    with pytest.raises(UnknownStateError) as caught:
        copy_state(env, {})
    assert str(caught.value) == message


def test_a_state_is_put_into_arrays_of_the_same_form_and_replaces_others() -> None:
    env: Any = _Holding()
    env.held = np.arange(3.0)
    state = copy_state(env, {})
    same = env.held = np.zeros(3)
    restore_state(env, {path: dict(values) for path, values in state.items()}, {})
    assert env.held is same
    env.held = np.zeros(5)
    restore_state(env, {"env": {"held": np.arange(3.0)}}, {})
    assert env.held.tolist() == [0.0, 1.0, 2.0]


def test_a_partial_reset_after_a_resume_shows_the_resumed_observation_of_the_others() -> None:
    cfg = GymnasiumEnvCfg("gymnasium:Pendulum-v1", num_envs=2)
    first, second = GymnasiumEnv(cfg), GymnasiumEnv(cfg)
    first.reset(seed=1)
    first.step(torch.zeros(2, 1))
    second.reset(seed=2)
    second.load_state_dict(through_a_file(first.state_dict()))
    ours, theirs = (env.reset(options={"reset_ids": [1]})[0]["observation"] for env in (first, second))
    assert torch.equal(ours, theirs)
