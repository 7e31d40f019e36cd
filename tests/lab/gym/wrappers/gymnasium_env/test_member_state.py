"""What of a Gymnasium environment is saved and restored. Legend: N envs."""

from __future__ import annotations

import dataclasses
import enum
import io
import re
import threading
from collections import defaultdict
from typing import Any, NamedTuple

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


class _Closing(gym.Env[Any, Any]):
    """Keeps a goal and a count in functions, and draws from a space that its class has."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gym.spaces.Dict({"move": gym.spaces.Box(-1, 1, (1,), np.float64)})["move"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        goal, counts, inner = self.np_random.random(), np.zeros(1), _Inner()

        def advance() -> int:
            nonlocal goal
            goal += 1.0
            counts[0] += 1.0
            inner.steps += 1
            return inner.steps

        self.goal, self.counts, self.advance = lambda: goal, counts, advance
        return np.zeros(4), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        steps = self.advance()
        obs = np.array([self.goal(), self.counts[0], self.action_space.sample()[0], steps])
        return obs, float(steps), False, False, {}


def test_what_functions_hold_and_the_spaces_of_a_class_are_restored() -> None:
    with registered("Closing-v0", _Closing, max_episode_steps=4):
        first = make("Closing-v0")
        first.reset(seed=1)
        for _ in range(6):  # in the second episode
            first.step(torch.zeros(2, 1))
        state = through_a_file(first.state_dict())
        expected = [first.step(torch.zeros(2, 1)) for _ in range(4)]
        second = make("Closing-v0")
        second.reset(seed=2)
        second.step(torch.zeros(2, 1))
        assert second.load_state_dict(state)
        assert_all_equal(expected, [second.step(torch.zeros(2, 1)) for _ in range(4)])
    assert [step[1][0].item() for step in expected] == [3.0, 4.0, 1.0, 2.0]
    assert 4.0 < expected[1][4]["final_obs"]["observation"][0, 0] < 5.0


class _Holding(gym.Env[Any, Any]):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.held: Any = threading.Lock()

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


class _Phase(enum.IntEnum):
    FIRST = 1


class _Bounds(NamedTuple):
    low: float


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (_Phase.FIRST, "tests.lab.gym.wrappers.gymnasium_env.test_member_state._Phase"),
        (_Bounds(1.0), "tests.lab.gym.wrappers.gymnasium_env.test_member_state._Bounds"),
        (np.array([None]), "numpy.ndarray"),
        (np.zeros(1, np.longdouble), "numpy.ndarray"),
    ],
)
def test_new_episodes_begin_where_a_value_cannot_be_saved(
    held: Any, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with registered("Holding-v0", _Holding):
        env = make("Holding-v0")
        env.reset(seed=1)
        for member in _members(env):
            member.held = held
        assert not make("Holding-v0").load_state_dict(through_a_file(env.state_dict()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"held is a {kind}, whose state is not known")


def _members(env: GymnasiumEnv) -> list[Any]:
    envs: Any = env._envs
    return [member.unwrapped for member in envs.envs]


@dataclasses.dataclass(frozen=True)
class _Gains:
    gain: float


class _Refusing:
    def __init__(self) -> None:
        vars(self)["limit"] = 1.0

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError("no")


class _Target:
    def __init__(self, position: float) -> None:
        self.position = position
        self.inner = np.zeros(2)


class _Other(_Target):
    """Of another class."""


def restored(saved: dict[str, Any], fresh: dict[str, Any]) -> Any:
    """Return an environment with attributes ``fresh`` after the state of one with ``saved`` is restored."""
    env, other = (_with(attributes) for attributes in (saved, fresh))
    restore_state(other, through_a_file(copy_state(env, {})), {})
    return other


def _with(attributes: dict[str, Any]) -> Any:
    env = _Holding()
    del env.held
    vars(env).update(attributes)
    return env


def test_objects_that_refuse_to_be_set_are_restored() -> None:
    env = restored({"a": _Gains(2.0), "b": _Refusing()}, {"a": _Gains(1.0), "b": _Refusing()})
    assert env.a == _Gains(2.0)


def test_kinds_of_values_stay() -> None:
    visits = defaultdict(int, {3: 1})
    present: defaultdict[int, int] = defaultdict(int)
    env = restored({"y": np.float32(0.5), "visits": visits}, {"y": np.float32(0.1), "visits": present})
    assert type(env.y) is np.float32
    assert env.visits is present
    assert env.visits[3] + env.visits[4] == 1


@pytest.mark.parametrize("first", ["chosen", "a"])  # which attribute is found first
def test_an_attribute_leads_to_the_object_that_it_led_to(first: str) -> None:
    def attributes(chosen: str) -> dict[str, Any]:
        targets = {"a": _Target(1.0), "b": _Target(2.0)}
        both = {"chosen": targets[chosen]} | targets
        return both if first == "chosen" else targets | both

    env = restored(attributes("a"), attributes("b"))
    assert env.chosen is env.a
    assert (env.a.position, env.b.position) == (1.0, 2.0)


def test_an_array_that_was_another_attributes_is_it_again() -> None:
    def attributes(chosen: str) -> dict[str, Any]:
        goals = {"a": np.zeros(1), "b": np.ones(1)}
        return {"chosen": goals[chosen], **goals, "all": [goals["a"], goals["b"]]}

    env = restored(attributes("a"), attributes("b"))
    assert env.chosen is env.a is env.all[0]
    assert env.b is env.all[1]
    assert (env.a.item(), env.b.item()) == (0.0, 1.0)


def _view(is_shared: bool) -> dict[str, Any]:
    array = np.arange(3.0)
    return {"whole": array, "part": array[1:] if is_shared else array[1:].copy()}


def test_arrays_that_shared_no_memory_share_none() -> None:
    env = restored(_view(False), _view(True))
    assert not np.shares_memory(env.whole, env.part)


def one_target(chosen: str) -> dict[str, Any]:
    target = _Target(1.0)
    return {"a": target, "chosen": target} if chosen == "a" else {"a": target, "chosen": _Target(2.0)}


@pytest.mark.parametrize(
    ("saved", "fresh", "message"),
    [
        ({"a": _Other(1.0)}, {"a": _Target(1.0)}, "env.a was a .*_Other, and is a .*_Target now"),
        ({"a": len}, {"a": max}, "env.a was a builtins.len, and is a builtins.max now"),
        ({"a": _Target(1.0)}, {"a": None}, "env.a was made after the first reset"),
        (one_target("b"), one_target("a"), "env.chosen and env.a were two objects, and are one now"),
        (_view(True), _view(False), "env.whole shared the memory of another array, and does not now"),
        (
            {"a": np.random.Generator(np.random.MT19937(1))},
            {"a": np.random.Generator(np.random.PCG64(1))},
            "env.a cannot be restored: ValueError: .*",
        ),
    ],
)
def test_what_cannot_be_made_as_it_was_is_named(saved: Any, fresh: Any, message: str) -> None:
    with pytest.raises(UnknownStateError) as caught:
        restored(saved, fresh)
    assert re.fullmatch(message, str(caught.value))


def test_states_without_a_structure_are_restored() -> None:
    env = _with({"a": _Target(1.0)})
    restore_state(env, {"env": {"x": 2}, "env.a": {"position": 3.0}}, {})
    assert (env.x, env.a.position) == (2, 3.0)
