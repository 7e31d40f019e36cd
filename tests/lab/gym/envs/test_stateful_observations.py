"""Observation terms that remember something: one call in a control step, and one that begins each episode.

What they ought to return is computed from each environment's own positions alone, episode by episode.
Shapes: N environments, J = 2 joints, K frames of a history.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.utils import replace
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.scenes import actions_for, cart_cfg
from tests.lab.warp_scenes import CART as CART_POLE
from tests.lab.warp_scenes import env_on, needs_warp

N, J, K = 8, 2, 3
LIMIT = 4  # steps of an episode


class Latency(Functor):
    """What was there a step ago; in the first step of an episode, what is there."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.last = torch.zeros(env.num_envs, J)
        self.is_new = torch.ones(env.num_envs, dtype=torch.bool)

    def reset(self, env_ids: Tensor) -> None:
        self.is_new[env_ids] = True

    def __call__(self, env: EmbodiedEnv, data: Tensor) -> Tensor:
        late = torch.where(self.is_new[:, None], data, self.last)
        self.last, self.is_new = data, torch.zeros_like(self.is_new)
        return late


class Filter(Functor):
    """An exponential filter that starts at zero, and returns the buffer that it writes into."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.mean = torch.zeros(env.num_envs, J)

    def reset(self, env_ids: Tensor) -> None:
        self.mean[env_ids] = 0.0

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        return self.mean.lerp_(env.robot.get_qpos(), 0.5)


class Bias(Functor):
    """An offset for each episode."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.bias = torch.zeros(env.num_envs, J)

    def reset(self, env_ids: Tensor) -> None:
        self.bias[env_ids] = self.env.random.uniform(env_ids, -1.0, 1.0, J)

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        return self.bias


class Noise(Functor):
    """Draws at every step."""

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        return env.random.uniform(env.all_env_ids, 0.0, 1.0, 1)


class Frames(Functor):
    """The last K positions, zeros before the episode; kept as a list that is full from the beginning."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.frames: Any = [torch.zeros(env.num_envs, J) for _ in range(K)]

    def reset(self, env_ids: Tensor) -> None:
        for frame in self.frames:
            frame[env_ids] = 0.0

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        self.frames.append(env.robot.get_qpos().clone())
        self.frames.pop(0)
        return torch.stack(self.frames, dim=1)


class GrowingFrames(Frames):
    """A list that is empty at first."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.frames = []

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        self.frames.append(env.robot.get_qpos().clone())
        del self.frames[:-K]
        padding = [torch.zeros(env.num_envs, J)] * (K - len(self.frames))
        return torch.stack(padding + self.frames, dim=1)


class Ring(Functor):
    """A buffer and the place in it that is next, the same for all environments; made by the first call."""

    buffer: Tensor

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.next = 0

    def reset(self, env_ids: Tensor) -> None:
        if hasattr(self, "buffer"):
            self.buffer[env_ids] = 0.0

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        if not hasattr(self, "buffer"):
            self.buffer = torch.zeros(env.num_envs, K, J)
        self.buffer[:, self.next] = env.robot.get_qpos()
        self.next = (self.next + 1) % K
        return self.buffer.roll(-self.next, 1)


class Hidden:
    """Is no plain data."""

    def __init__(self, frames: Tensor) -> None:
        self.frames = frames


class OwnState(Functor):
    """Keeps its frames in an object, and says how to save them."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.hidden = Hidden(torch.zeros(env.num_envs, K, J))

    def reset(self, env_ids: Tensor) -> None:
        self.hidden.frames = self.hidden.frames.index_fill(0, env_ids, 0.0)

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        self.hidden = Hidden(torch.cat((self.hidden.frames[:, 1:], env.robot.get_qpos()[:, None]), dim=1))
        return self.hidden.frames

    def state_dict(self) -> dict[str, Any]:
        return {"frames": self.hidden.frames}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.hidden = Hidden(state["frames"])


HISTORIES = [Frames, GrowingFrames, Ring, OwnState]
PUSHED: dict[str, Any] = {
    "func": "randomize_robot_qpos",
    "params": {"entity_cfg": {"uid": "Cart"}, "qpos_range": [[-0.5, -0.5], [0.5, 0.5]]},
}


def env_with(num_envs: int = N, first: int = 0, **terms: Any) -> EmbodiedEnv:
    observations = {name: {"func": func} if isinstance(func, type) else func for name, func in terms.items()}
    cfg = cart_cfg(num_envs, {"observations": observations, "events": {"push": PUSHED}}, max_episode_steps=LIMIT)
    return EmbodiedEnv(replace(cfg, first_env_id=first))


def all_terms(num_envs: int = N, first: int = 0) -> EmbodiedEnv:
    late = {"func": Latency, "mode": "modify", "name": "late"}
    histories = {func.__name__: func for func in HISTORIES}
    return env_with(num_envs, first, late=raw, lag=late, filter=Filter, bias=Bias, noise=Noise, **histories)


def _raw(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_qpos()


raw = {"func": _raw}


class Expected:
    """What the terms of one environment ought to return, from its positions."""

    def __init__(self) -> None:
        self.episode: list[Tensor] = []

    def check(self, obs: TensorDict, i: int, begins: bool) -> None:
        """Compare with the observation of environment i, one step on, or the first of an episode."""
        if begins:
            self.episode = []
        self.episode.append(obs["robot", "qpos"][i].clone())
        frames = torch.stack(([torch.zeros(J)] * K + self.episode)[-K:])
        for func in HISTORIES:
            assert torch.equal(obs[func.__name__][i], frames), func.__name__
        assert torch.equal(obs["late"][i], self.episode[-2:][0])
        mean = torch.zeros(J)
        for qpos in self.episode:
            mean = mean.lerp(qpos, 0.5)
        assert torch.equal(obs["filter"][i], mean)


def check_all(expected: list[Expected], obs: TensorDict, begins: Tensor | None = None) -> None:
    for i, one in enumerate(expected):
        one.check(obs, i, begins is None or bool(begins[i]))


def spread(env: EmbodiedEnv) -> None:
    """Let episodes end at different steps."""
    env.elapsed_steps += (torch.arange(env.num_envs) + env.cfg.first_env_id) % LIMIT


def test_terms_are_called_once_a_step_and_at_episode_starts() -> None:
    env = all_terms()
    expected = [Expected() for _ in range(N)]
    check_all(expected, env.reset(seed=3)[0])
    spread(env)
    for action in actions_for(env, 3 * LIMIT):
        obs, _, terminated, truncated, info = env.step(action)
        done = terminated | truncated
        assert 0 < int(done.sum()) < N
        check_all(expected, info["final_obs"], torch.zeros(N))
        for i in done.nonzero().squeeze(1).tolist():
            expected[i].check(obs, i, begins=True)
        for name, value in obs.flatten_keys("/").items():  # the others' rows are those of before
            assert torch.equal(value[~done], info["final_obs"].flatten_keys("/")[name][~done]), name


def test_reset_of_some_changes_their_rows_alone() -> None:
    env = all_terms()
    expected = [Expected() for _ in range(N)]
    check_all(expected, env.reset(seed=3)[0])
    actions = actions_for(env, 2 * LIMIT)
    generator = torch.Generator().manual_seed(0)
    for action in actions:
        env.elapsed_steps.zero_()  # no episode ends by itself
        before = env.step(action)[0]
        check_all(expected, before, torch.zeros(N))
        for _ in range(2):  # also twice after a step
            chosen = torch.rand(N, generator=generator) < 0.3
            obs, _ = env.reset(options={"reset_ids": chosen.nonzero().squeeze(1)})
            for i in chosen.nonzero().squeeze(1).tolist():
                expected[i].check(obs, i, begins=True)
            for name, value in obs.flatten_keys("/").items():
                assert torch.equal(value[~chosen], before.flatten_keys("/")[name][~chosen]), name
            before = obs


def chunks_of(env: EmbodiedEnv, count: int, length: int) -> Tensor:
    actions = actions_for(env, count * length)
    return actions.unflatten(0, (count, length)).transpose(1, 2)


@pytest.mark.e2e
def test_chunk_of_actions_is_its_control_steps() -> None:
    length = 3
    env, single = all_terms(), [all_terms(1, first=i) for i in range(N)]
    for each in (env, *single):
        each.reset(seed=3)
        spread(each)
    for chunk in chunks_of(env, 4, length):
        obs, _, _, _, info = env.step_chunk(chunk)
        for i, one in enumerate(single):
            for h in range(int(info["executed"][i].sum())):
                alone, _, terminated, truncated, noted = one.step(chunk[i : i + 1, h])
            assert_rows_equal(obs, i, alone)
            assert bool(terminated | truncated) == (not info["executed"][i].all() or bool(truncated))
            if terminated | truncated:
                assert_rows_equal(info["final_obs"], i, noted["final_obs"])


def assert_rows_equal(obs: TensorDict, i: int, alone: TensorDict) -> None:
    for name, value in obs.flatten_keys("/").items():
        assert torch.equal(value[i], alone.flatten_keys("/")[name][0]), (name, i)


@pytest.mark.parametrize("func", [Filter, Bias, *HISTORIES])
def test_making_the_spaces_leaves_no_trace(func: Callable[..., Any]) -> None:
    env = env_with(term={"func": func})
    built = env.observation_manager._terms[0][1].func
    fresh = type(built)(built.cfg, env)
    assert repr(fresh.state_dict()) == repr(built.state_dict())


def test_checkpoint_in_the_middle_of_episodes_goes_on_alike() -> None:
    assert_goes_on(all_terms, steps=6)  # in the second episode of 4 steps


class Own(EmbodiedEnv):
    """Keeps the last K positions and filters a term's entry in its own hook; after the physics it moves a goal, and
    brakes."""

    def _init_sim_state(self) -> None:
        super()._init_sim_state()
        self.frames, self.goal = torch.zeros(self.num_envs, K, J), torch.zeros(self.num_envs, 1)
        self.mean = torch.zeros(self.num_envs, J)

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.frames[env_ids], self.goal[env_ids], self.mean[env_ids] = 0.0, 0.0, 0.0
        self.robot.set_qpos(self.random.uniform(env_ids, -0.1, 0.1, J), env_ids=env_ids)

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        self.goal = self.goal + 1
        self.robot.set_qvel(self.robot.get_qvel() * 0.5)

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs = super()._extend_obs(obs)
        self.frames = torch.cat((self.frames[:, 1:], self.robot.get_qpos()[:, None]), dim=1)
        self.mean = self.mean.lerp(obs["speed"], 0.5)
        return obs | {"task/frames": self.frames.flatten(1), "task/goal": self.goal, "speed": self.mean}


def calls(env: Any) -> Tensor:
    env.calls = getattr(env, "calls", torch.zeros(env.num_envs, 1)) + 1
    return env.calls


def own(num_envs: int, first: int = 0) -> Own:
    terms = {"calls": {"func": f"{__name__}.calls"}, "speed": {"func": "joint_vel"}}
    cfg = cart_cfg(num_envs, {"observations": terms}, allowed_imports=[__name__], max_episode_steps=9)
    env = Own(replace(cfg, first_env_id=first))
    env.reset(seed=3)
    return env


@pytest.mark.parametrize("length", [None, 5])
def test_state_of_own_hooks_and_functions_does_not_depend_on_others(length: int | None) -> None:
    env, single = own(2), [own(1, first=i) for i in range(2)]
    env.elapsed_steps[0] += 6  # it ends its episode after 3 steps
    single[0].elapsed_steps += 6
    for action in actions_for(env, 5) if length is None else chunks_of(env, 1, length):
        obs, *_, info = env.step(action) if length is None else env.step_chunk(action)
        for i, one in enumerate(single):
            for h in range(1 if length is None else int(info["executed"][i].sum())):
                alone, *_, noted = one.step(action[i : i + 1] if length is None else action[i : i + 1, h])
            assert_rows_equal(obs, i, alone)
            assert_rows_equal(info["final_obs"], i, noted["final_obs"])
    before, after = obs, env.reset(options={"reset_ids": [0]})[0]
    assert_rows_equal(after[1:], 0, before[1:])
    assert after["task", "goal"].tolist() == [[0], [5]]


def test_reset_of_some_after_a_load_shows_the_loaded_state() -> None:
    env = own(2)
    state = deepcopy(env.state_dict())
    for action in actions_for(env, 2):
        env.step(action)
    env.load_state_dict(state)
    obs, _ = env.reset(options={"reset_ids": [0]})
    assert torch.equal(obs["robot", "qpos"][1], env.robot.get_qpos()[1])


class Published(Filter):
    """Leaves its value for others."""

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        env.filtered = super().__call__(env).clone()  # type: ignore[attr-defined]
        return self.mean


def test_attributes_set_on_the_environment_are_of_the_same_calls() -> None:
    env = env_with(filter=Published)
    env.reset(seed=3)
    spread(env)
    for action in actions_for(env, LIMIT):
        obs, *_ = env.step(action)
        assert torch.equal(obs["filter"], env.filtered)  # type: ignore[attr-defined]


@pytest.mark.e2e
@needs_warp
def test_terms_are_right_where_environments_are_chosen_by_mask() -> None:
    terms = {"filter": {"func": Filter}, "late": raw, "lag": {"func": Latency, "mode": "modify", "name": "late"}}
    env = env_on("warp", CART_POLE, 4, env={"observations": terms}, max_episode_steps=LIMIT)
    obs, _ = env.reset(seed=3)
    env.elapsed_steps += torch.tensor([0, 1, 2, 2])
    episodes = [[row] for row in obs["robot", "qpos"].clone()]
    for action in actions_for(env, 2 * LIMIT):
        obs, _, terminated, truncated, info = env.step(action)
        for i, done in enumerate((terminated | truncated).tolist()):
            episodes[i].append(info["final_obs"]["robot", "qpos"][i].clone())
            check_row(info["final_obs"], i, episodes[i])
            if done:
                episodes[i] = [obs["robot", "qpos"][i].clone()]
            check_row(obs, i, episodes[i])
    env.close()


def check_row(obs: TensorDict, i: int, episode: list[Tensor]) -> None:
    assert torch.equal(obs["late"][i], episode[-2:][0])
    mean = torch.zeros(J)
    for qpos in episode:
        mean = mean.lerp(qpos, 0.5)
    torch.testing.assert_close(obs["filter"][i], mean, rtol=0, atol=1e-7)
