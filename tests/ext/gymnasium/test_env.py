"""Legend: N envs, E episodes."""

import importlib
import os
import random
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tensordict import TensorDict

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers ours)
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy
from embodichain.ext.gymnasium.gymnasium_env import (
    ForeignGenerators,
    GymnasiumEnv,
    GymnasiumEnvCfg,
    check_gymnasium_id,
    find_spec,
)
from embodichain.ext.gymnasium.sources import ENVPOOL, GYMNASIUM
from embodichain.lab.gym.env_sources import find_source
from embodichain.utils import CommandFailedError, ConfigError
from tests.agents.rl.fakes import NETWORK
from tests.ext.gymnasium.scripted import LENGTHS, NUM_ENVS, TERMINATES, TRUNCATES, SayingEnv, registered, scripted


def make(env_id: str, num_envs: int = 2, **settings: Any) -> GymnasiumEnv:
    return GymnasiumEnv(GymnasiumEnvCfg(f"gymnasium:{env_id}", num_envs=num_envs, **settings))


def attribute_of(env: GymnasiumEnv, name: str) -> Any:
    envs: Any = env._envs
    return envs.get_attr(name)


def seeds_of(env: GymnasiumEnv) -> list[list[int]]:
    seeds: list[list[int]] = list(attribute_of(env, "seeds"))
    return seeds


STEPS = 13


def expected_steps(n: int) -> list[dict[str, Any]]:
    """What env n does in each of the steps: the observation after it, the reward, and the flags."""
    rows = []
    episode, t = 0, 0
    for _ in range(STEPS):
        t += 1
        ends = t == LENGTHS[n]
        here = 1000.0 * n + 100.0 * episode + t
        row = {"final": here, "reward": here - 0.5, "length": t}
        row |= {"terminated": ends and TERMINATES[n], "truncated": ends and TRUNCATES[n]}
        row |= {"success": ends and n == 1}
        if ends:
            episode, t = episode + 1, 0
        rows.append(row | {"next": 1000.0 * n + 100.0 * episode + t})
    return rows


def test_every_step_is_that_of_the_script_and_no_reset_is_a_step() -> None:
    expected = [expected_steps(n) for n in range(NUM_ENVS)]
    with scripted() as env:
        obs, info = env.reset(seed=1)
        assert obs["observation"][:, 0].tolist() == [0.0, 1000.0, 2000.0, 3000.0]
        assert info["elapsed_steps"].tolist() == [0, 0, 0, 0]
        for t in range(STEPS):
            obs, reward, terminated, truncated, info = env.step(torch.full((NUM_ENVS, 2), 0.25))
            rows = [expected[n][t] for n in range(NUM_ENVS)]
            assert obs["observation"][:, 0].tolist() == [row["next"] for row in rows]
            assert reward.tolist() == [row["reward"] for row in rows]
            assert terminated.tolist() == [row["terminated"] for row in rows]
            assert truncated.tolist() == [row["truncated"] for row in rows]
            assert info["final_obs"]["observation"][:, 0].tolist() == [row["final"] for row in rows]
            assert info["final_obs"]["observation"][:, 1].tolist() == [0.25] * NUM_ENVS
            assert info["success"].tolist() == [row["success"] for row in rows]
            assert info["fail"].tolist() == [row["terminated"] and not row["success"] for row in rows]
            assert info["elapsed_steps"].tolist() == [row["length"] for row in rows]
        assert reward.dtype == torch.float32
        assert terminated.dtype == truncated.dtype == info["success"].dtype == torch.bool


def test_reset_ids_may_be_none_for_all_and_no_rows() -> None:
    with scripted() as env:
        env.reset(seed=1)
        env.step(torch.zeros(NUM_ENVS, 2))
        elapsed = env.elapsed_steps.clone()
        assert elapsed.any()
        assert torch.equal(env.reset(options={"reset_ids": []})[1]["elapsed_steps"], elapsed)
        assert not env.reset(options={"reset_ids": None})[1]["elapsed_steps"].any()


def test_actions_are_clipped_and_not_written_to() -> None:
    with scripted() as env:
        env.reset(seed=1)
        action = torch.full((NUM_ENVS, 2), -7.0)
        env.step(action)
        assert [actions[0].tolist() for actions in attribute_of(env, "actions")] == [[-1.0, 0.0]] * NUM_ENVS
        assert action.eq(-7.0).all()


def test_the_constructor_gets_kwargs_and_the_time_limit() -> None:
    env = make("Pendulum-v1", kwargs={"g": 3.5}, max_episode_steps=2)
    env.reset(seed=1)
    assert attribute_of(env, "g") == (3.5, 3.5)
    env.step(torch.zeros(2, 1))
    assert env.step(torch.zeros(2, 1))[3].tolist() == [True, True]
    env.close()


def test_episode_seed_depends_on_environment_and_number() -> None:
    def seeds(num_envs: int, first_env_id: int, seed: int) -> list[list[int]]:
        with scripted(num_envs=num_envs, first_env_id=first_env_id) as env:
            env.reset(seed=seed)
            for _ in range(6):
                env.step(torch.zeros(num_envs, 2))
            return seeds_of(env)

    four = seeds(4, 0, 5)
    assert [len(own) for own in four] == [3, 4, 2, 7]  # of 6 steps, in episodes of 3, 2, 4 and 1
    assert len({seed for own in four for seed in own}) == 16
    assert seeds(2, 0, 5) == four[:2]
    # The environment with the global id 2 is env 0 here, whose episodes are shorter.
    assert seeds(1, 2, 5)[0][:2] == four[2]
    assert seeds(4, 0, 6) != four
    assert all(0 <= seed < 2**31 for own in four for seed in own)


def test_members_of_a_group_begin_equal_episodes() -> None:
    env = make("Pendulum-v1", 4, group_size=2, max_episode_steps=2)
    env.reset(seed=5)
    for _ in range(3):
        env.step(torch.zeros(4, 1))
    obs = env.reset()[0]["observation"]
    env.close()
    assert torch.equal(obs[0], obs[1])
    assert torch.equal(obs[2], obs[3])
    assert not torch.equal(obs[0], obs[2])


def episodes_begun(num_envs: int, share: tuple[int, int] = (0, 1)) -> list[int]:
    """Seeds of an evaluation's first 4 episodes, by their number."""
    with scripted(num_envs=num_envs) as env:
        env.reset(seed=9, options={"enumerate_episodes": True, "share": share})
        for _ in range(9):  # env 0 then begins its fourth episode
            env.step(torch.zeros(num_envs, 2))
        rows = seeds_of(env)
        by_number = {i + k * num_envs: seed for i, own in enumerate(rows) for k, seed in enumerate(own)}
        return [by_number[i] for i in range(4)]


def test_evaluation_episodes_are_the_same_for_any_num_envs() -> None:
    four = episodes_begun(4)
    assert len(set(four)) == 4
    assert episodes_begun(2) == episodes_begun(1) == four
    halves = [episodes_begun(1, (rank, 2))[:2] for rank in range(2)]
    assert [halves[0][0], halves[1][0], halves[0][1], halves[1][1]] == four


class _Unseeded(SayingEnv):
    """Begins at 0.1, 0.2, ... whatever the seed is."""

    starts = count(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array([0.1 * next(self.starts)], np.float32), {}


def test_a_group_whose_episodes_begin_differently_is_refused() -> None:
    with registered("Unseeded-v0", _Unseeded):
        env = make("Unseeded-v0", 4, group_size=2)
        with pytest.raises(ConfigError, match=r"group_size: .* returned different 'observation'"):
            env.reset(seed=1)
        env.close()


@pytest.mark.parametrize(
    ("wrapper", "key"), [("NormalizeObservation", "normalize_obs"), ("NormalizeReward", "returns")]
)
def test_wrappers_with_running_statistics_are_refused(wrapper: str, key: str) -> None:
    def wrapped() -> Any:
        return gym.wrappers.ClipReward(getattr(gym.wrappers, wrapper)(gym.make("Pendulum-v1")), 0, 1)

    with registered("Wrapped-v0", wrapped), pytest.raises(ConfigError, match=f"its wrapper {wrapper} has .*{key}"):
        make("Wrapped-v0")


@pytest.mark.parametrize(("key", "says"), [("is_success", True), ("success", True), ("else", False)])
def test_success_is_what_the_info_says(key: str, says: bool) -> None:
    with registered("Saying-v0", SayingEnv):
        env = make("Saying-v0", kwargs={"says": lambda t: {key if t == 3 else "other": 1.0}})
        env.reset(seed=1)
        infos = [env.step(torch.zeros(2, 1))[4] for _ in range(2)]
        assert not env.knows_success()
        infos.append(env.step(torch.zeros(2, 1))[4])
        assert env.knows_success() is says
        assert [info["success"].tolist() for info in infos] == [[False] * 2, [False] * 2, [says] * 2]
        env.close()


@pytest.mark.parametrize(("value", "success"), [(None, None), (np.array([[0.0]]), False), (np.bool_(True), True)])
def test_success_may_be_none_or_an_array_of_one(value: Any, success: bool | None) -> None:
    with registered("Saying-v0", SayingEnv):
        env = make("Saying-v0", kwargs={"says": lambda t: {"success": value}})
        env.reset(seed=1)
        info = env.step(torch.zeros(2, 1))[4]
        assert env.knows_success() is (success is not None)
        assert info["success"].tolist() == [bool(success)] * 2


@pytest.mark.parametrize("reward", [2, np.float32(2.0), np.array([2.0])])
def test_a_reward_is_any_one_number(reward: Any) -> None:
    with registered("Paying-v0", SayingEnv):
        env = make("Paying-v0", kwargs={"reward": reward})
        env.reset(seed=1)
        assert env.step(torch.zeros(2, 1))[1].tolist() == [2.0, 2.0]
        env.close()


@pytest.mark.parametrize(
    ("env_id", "period", "fps"),
    [("Pendulum-v1", 0.05, 30.0), ("Hopper-v5", 0.008, 125.0), ("MountainCarContinuous-v0", None, 30.0)],
)
def test_time_between_actions_is_not_that_of_videos(env_id: str, period: float | None, fps: float) -> None:
    env = make(env_id)
    assert env.step_dt == (None if period is None else pytest.approx(period))
    assert env.render_fps == fps
    env.close()


class _Mortal(SayingEnv):
    """Ends its process when it is told to."""

    action_space = gym.spaces.Box(-10, 10, (1,))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        match int(action[0]):
            case 3:
                os._exit(3)
            case 5:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.parametrize(("action", "how"), [(3.0, "with exit code 3"), (5.0, "by SIGKILL")])
def test_a_process_that_has_ended_is_named(action: float, how: str) -> None:
    with registered("Mortal-v0", _Mortal):
        env = make("Mortal-v0", 2, vectorization="async")
        env.reset(seed=1)
        with pytest.raises(CommandFailedError) as caught:
            env.step(torch.tensor([[0.0], [action]]))
        assert str(caught.value) == f"gymnasium:Mortal-v0: the process of environment 1 has ended {how}"
        env.close()


class MaskedEnv(gym.Env[Any, Any]):
    """Allows at step t action t mod 3 alone, and pays 1 for it."""

    observation_space: Any = gym.spaces.Discrete(2)
    action_space: Any = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return 1, self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid = float(action == self.t % 3)
        self.t += 1
        return 0, paid, self.t == 5, False, self.info()

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.eye(3, dtype=np.int8)[self.t % 3]}


class LateMaskEnv(MaskedEnv):
    """Says only after a step what it allows."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset()[0], {}


class TupleMaskEnv(MaskedEnv):
    """Has a mask for each of two components."""

    action_space = gym.spaces.MultiDiscrete([3, 2])

    def info(self) -> dict[str, Any]:
        return {"action_mask": (super().info()["action_mask"], np.array([1, 0], np.int8))}


def test_masks_are_read_by_component_and_must_always_be_there() -> None:
    with registered("TupleMask-v0", TupleMaskEnv):
        env = make("TupleMask-v0", 1)
    assert env.reset(seed=1)[0]["action_mask"].tolist() == [[1, 0, 0, 1, 0]]
    with registered("LateMask-v0", LateMaskEnv):
        env = make("LateMask-v0", 1)
    env.reset(seed=1)
    with pytest.raises(ConfigError, match="its info has an action_mask after some resets and steps alone"):
        env.step(torch.zeros(1, 1))


def test_policy_takes_what_the_mask_in_the_info_allows() -> None:
    with registered("Masked-v0", MaskedEnv):
        env = make("Masked-v0", 2)
    obs, _ = env.reset(seed=1)
    assert obs["observation"].tolist() == [[0, 1]] * 2
    assert obs["action_mask"].tolist() == [[1, 0, 0]] * 2
    block = {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK}
    structured = env.single_observation_space
    policy = build_policy(
        block, env.flattened_observation_space, env.single_action_space, "cpu", observation_space=structured
    )
    rollout = SyncCollector(env, policy, "cpu").collect(12)
    env.close()
    assert rollout["reward"][:, :12].all()  # episodes of 5 steps: also after a reset
    learned = policy.evaluate_actions(rollout[:, :12])  # one possibility: no doubt
    torch.testing.assert_close(learned["sample_log_prob"], torch.zeros(2, 12))


def test_processes_of_their_own_make_the_same_steps() -> None:
    results = []
    for vectorization in ("sync", "async"):
        env = make("Pendulum-v1", 2, vectorization=vectorization, max_episode_steps=3)
        env.reset(seed=4)
        steps = [env.step(torch.full((2, 1), 0.5)) for _ in range(4)]
        env.close()
        results.append(steps)
    for ours, theirs in zip(*results, strict=True):
        assert_equal_steps(ours, theirs)


def assert_equal_steps(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    for mine, other in zip(ours[:4], theirs[:4], strict=True):
        assert bool((mine == other).all())
    final: TensorDict = ours[4]["final_obs"] == theirs[4]["final_obs"]
    assert bool(final.all())
    assert torch.equal(ours[4]["elapsed_steps"], theirs[4]["elapsed_steps"])


def test_an_id_with_the_prefix_is_gymnasiums() -> None:
    assert find_source("gymnasium:Pendulum-v1") is GYMNASIUM
    assert find_source("envpool:HopperHop-v1") is ENVPOOL
    assert find_source("PushCubeRL") is find_source(3) is None
    assert find_spec("gymnasium:Pendulum-v1").max_episode_steps == 200


def test_an_unknown_name_has_its_near_ones_and_what_to_install() -> None:
    with pytest.raises(ConfigError) as caught:
        check_gymnasium_id("gymnasium:HalfCheeta-v5", [])
    message = str(caught.value)
    assert message.startswith("id: Gymnasium has no environment 'HalfCheeta-v5'. Did you mean 'HalfCheetah-v")
    assert "write 'gymnasium:<package>:HalfCheeta-v5'" in message


def test_one_of_ours_is_named_without_the_prefix() -> None:
    with pytest.raises(ConfigError, match='\'PushCubeRL\' is EmbodiChain\'s own environment: write "id": "PushCubeRL"'):
        check_gymnasium_id("gymnasium:PushCubeRL", [])


PACKAGE = """
import gymnasium
gymnasium.register("Mine-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv")
"""


def test_a_package_is_imported_if_that_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_gym_package.py").write_text(PACKAGE, encoding="utf-8")
    with pytest.raises(ConfigError, match="id: 'my_gym_package' is not allowed to be imported"):
        check_gymnasium_id("gymnasium:my_gym_package:Mine-v0", [])
    assert "my_gym_package" not in sys.modules
    assert check_gymnasium_id("gymnasium:my_gym_package:Mine-v0", ["my_gym_package"]).id == "Mine-v0"
    with pytest.raises(ConfigError, match=r"'Mine-v1'\. Did you mean 'Mine-v0'"):
        check_gymnasium_id("gymnasium:my_gym_package:Mine-v1", ["my_gym_package"])


def test_no_file_runs_for_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    Path("no_such_physics.py").write_text("raise SystemExit('it ran')", encoding="utf-8")

    def needs_a_package() -> None:
        importlib.import_module("no_such_physics")

    with registered("Box-v0", needs_a_package), pytest.raises(ImportError, match="No module named 'no_such_physics'"):
        GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Box-v0"))


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


@pytest.mark.parametrize("seeds", [False, True])
def test_foreign_code_leaves_the_learners_draws(seeds: bool) -> None:
    seed(1)
    expected = [draws() for _ in range(5)]
    generators = ForeignGenerators()
    seed(1)
    got = []
    for _ in range(5):
        got.append(draws())
        with generators:
            if seeds:
                seed(7)
            draws()
    assert got == expected
    assert len({value for row in got for value in row}) == 20


def test_foreign_draws_continue_and_can_be_seeded() -> None:
    generators = ForeignGenerators()

    def foreign() -> list[list[float]]:
        rows = []
        for _ in range(4):
            with generators:
                rows.append(draws())
            draws()
        return rows

    generators.seed(3)
    first = foreign()
    generators.seed(3)
    assert foreign() == first
    assert len({value for row in first for value in row}) == 16
    # The first draws of generators that are seeded with 3.
    assert first[0][0] == random.Random(3).random()
    assert first[0][3] == float(torch.rand((), generator=torch.Generator().manual_seed(3)))


class _Seeding(gym.Env[Any, Any]):
    """Seeds all global generators in each reset, and observes a number of each."""

    observation_space = gym.spaces.Box(-9, 9, (4,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        globals()["seed"](0)
        return np.array(draws()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array(draws()), 0.0, False, False, {}


def test_global_seeding_leaves_the_exploration_alone() -> None:
    with registered("Seeding-v0", _Seeding, max_episode_steps=2):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Seeding-v0", num_envs=2))
        seed(1)
        env.reset(seed=1)
        noise = torch.stack([(torch.rand(()), env.step(torch.zeros(2, 1)))[0] for _ in range(6)])
        env.close()
    seed(1)
    assert torch.equal(noise, torch.stack([torch.rand(()) for _ in range(6)]))


def test_more_environments_than_the_memory_holds_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"num_envs: 1,000,000,000,000 environments take 5,000,000\.0 GB"):
        GYMNASIUM.build(GymnasiumEnvCfg("gymnasium:Pendulum-v1", num_envs=10**12))


def test_missing_dependency_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium.envs.mujoco", None)  # an import of it fails
    with pytest.raises(ConfigError, match=r"HalfCheetah-v5: .*to install it: .*'gymnasium\[mujoco\]'"):
        make("HalfCheetah-v5")
