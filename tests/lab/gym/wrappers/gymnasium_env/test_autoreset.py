"""Legend: N envs, T steps. The environments are scripted: see ``scripted.py``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.env import GymnasiumEnv
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import NETWORK
from tests.lab.gym.wrappers.gymnasium_env.scripted import (
    LENGTHS,
    NUM_ENVS,
    TERMINATES,
    TRUNCATES,
    registered,
    scripted,
)

# Gymnasium's own vector environment, told to reset by us, and an environment's own form in every mode.
MODES = [None, "NextStep", "SameStep", "Disabled"]
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


@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_that_of_the_script_and_no_reset_is_a_step(mode: str | None) -> None:
    expected = [expected_steps(n) for n in range(NUM_ENVS)]
    with scripted(mode) as env:
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


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_have_each_step_of_the_script_once(mode: str | None) -> None:
    with scripted(mode) as env:
        space = env.flattened_observation_space
        block = {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK}
        policy = build_policy(block, space, env.single_action_space, "cpu")
        collector = SyncCollector(env, policy, "cpu")
        collector.keeps_final_obs = True
        first, second = collector.collect(6).clone(), collector.collect(7)
        for name in ("reward", "terminated", "truncated"):
            got = torch.cat([first[name][:, :-1], second[name][:, :-1]], dim=1)
            assert got.tolist() == [[row[name] for row in expected_steps(n)] for n in range(NUM_ENVS)]
        assert first["obs"][:, 0, 0].tolist() == [0.0, 1000.0, 2000.0, 3000.0]
        after = torch.cat([first["obs"][:, 1:, 0], second["obs"][:, 1:, 0]], dim=1)
        assert after.tolist() == [[row["next"] for row in expected_steps(n)] for n in range(NUM_ENVS)]
        # Env 0 is truncated at its steps 3 and 6, env 3 at each; env 1 terminates and env 2 is both at once.
        final = first["final"]["obs"][:, :-1, 0]
        assert final[0].tolist() == [0, 0, 3, 0, 0, 103]
        assert final[3].tolist() == [3001, 3101, 3201, 3301, 3401, 3501]
        assert final[1:3].abs().sum() == 0


def test_final_observations_that_a_vector_form_has_batched_are_read_too() -> None:
    class Batched(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            obs, reward, terminated, truncated, infos = self.env.step(actions)
            if "final_obs" in infos:
                rows = [o if row is None else row for o, row in zip(obs, infos["final_obs"], strict=True)]
                infos["final_obs"] = np.stack(rows)
            return obs, reward, terminated, truncated, infos

    with scripted("SameStep") as env:
        env._envs = env._resetting._envs = Batched(env._envs)
        env.reset(seed=1)
        env.step(torch.zeros(NUM_ENVS, 2))
        *_, info = env.step(torch.zeros(NUM_ENVS, 2))
        # Envs 1 and 3 end: 1000 + 2, and 3000 + 100 + 1.
        assert info["final_obs"]["observation"][:, 0].tolist() == [2.0, 1002.0, 2002.0, 3101.0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda infos: {"final_observation": infos["final_obs"]},
            r"its infos have no 'final_obs' with the last observation; they have 'final_observation'$",
        ),
        (lambda infos: {}, "they have nothing$"),
        (lambda infos: {"final_obs": np.array([None] * NUM_ENVS)}, "'final_obs' is None for an episode that has ended"),
    ],
)
def test_a_vector_form_without_final_observations_is_one_line(change: Any, problem: str) -> None:
    class Changed(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *results, infos = self.env.step(actions)
            return *results, change(infos) if "final_obs" in infos else infos

    with scripted("SameStep") as env:
        env._envs = env._resetting._envs = Changed(env._envs)
        env.reset(seed=1)
        with pytest.raises(ConfigError, match=problem):  # env 3 ends at once
            env.step(torch.zeros(NUM_ENVS, 2))


@pytest.mark.parametrize("mode", MODES)
def test_some_environments_are_reset_alone(mode: str | None) -> None:
    with scripted(mode) as env:
        env.reset(seed=1)
        env.step(torch.zeros(NUM_ENVS, 2))
        obs, info = env.reset(options={"reset_ids": [2]})
        # Env 2 begins its episode 1; env 3 has begun its own after one step.
        assert obs["observation"][:, 0].tolist() == [1.0, 1001.0, 2100.0, 3100.0]
        assert info["elapsed_steps"].tolist() == [1, 1, 0, 0]
        obs, *_ = env.step(torch.zeros(NUM_ENVS, 2))
        assert obs["observation"][:, 0].tolist() == [2.0, 1100.0, 2101.0, 3200.0]


class OwnForm(gym.vector.VectorEnv[Any, Any, Any]):
    """Two environments that never end, in a vector form that knows no ``reset_mask``."""

    single_observation_space = spaces.Box(-10, 10, (1,))
    single_action_space = spaces.Box(-1, 1, (1,))
    observation_space = spaces.Box(-10, 10, (2, 1))
    action_space = spaces.Box(-1, 1, (2, 1))

    def __init__(self, num_envs: int, mode: Any = None) -> None:
        self.num_envs = num_envs
        self.metadata = {} if mode is None else {"autoreset_mode": AutoresetMode(mode)}
        self.obs = np.zeros((num_envs, 1), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.obs = np.zeros_like(self.obs)
        return self.obs.copy(), {}

    def step(self, actions: Any) -> Any:
        self.obs = self.obs + 1
        false = np.zeros(self.num_envs, dtype=bool)
        return self.obs.copy(), np.ones(self.num_envs), false, np.array([True, False]), {}


def own_form(mode: str | None) -> GymnasiumEnvCfg:
    kwargs = {} if mode is None else {"mode": mode}
    return GymnasiumEnvCfg("gymnasium:Own-v0", kwargs, num_envs=2, vectorization="vector_entry_point")


def test_vector_form_that_resets_a_step_later_is_refused() -> None:
    with registered("Own-v0", vector_entry_point=OwnForm), pytest.raises(ConfigError) as caught:
        GymnasiumEnv(own_form("NextStep"))
    assert str(caught.value) == (
        "gymnasium:Own-v0: its vector environment OwnForm resets one step after an episode's end "
        "(AutoresetMode.NEXT_STEP); supported are SAME_STEP and DISABLED: if it takes no argument for that, use "
        "vectorization 'sync' or 'async'"
    )


@pytest.mark.filterwarnings("ignore:.*missing AutoresetMode metadata:UserWarning")
def test_vector_form_that_does_not_say_how_it_resets_is_refused() -> None:
    with registered("Own-v0", vector_entry_point=OwnForm), pytest.raises(ConfigError, match="must be an AutoresetMode"):
        GymnasiumEnv(own_form(None))


def test_vector_form_that_resets_more_than_it_was_told_to_is_noticed() -> None:
    with registered("Own-v0", vector_entry_point=OwnForm):
        env = GymnasiumEnv(own_form("Disabled"))
        env.reset(seed=1)
        with pytest.raises(RuntimeError, match="has reset more environments than"):
            env.step(torch.zeros(2, 1))
