"""Environments that return what they do not write into the rollout."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.collector import SyncCollector
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import ChunkedEnv, ScriptedEnv, linear_policy

ALL = ("reward", "done", "terminated", "truncated")


class Forgetful(ScriptedEnv):
    """Writes some of the fields; ``rewards`` are what it returns, step by step."""

    def __init__(self, writes: Sequence[str] = ALL, **given: Any) -> None:
        super().__init__(2, **given)
        self.writes = writes
        self.rewards: float | None = None

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        shared, self.rollout = self.rollout, None
        obs, reward, terminated, truncated, info = super().step(action)
        self.rollout = shared
        if self.rewards is not None:
            reward = torch.full((2,), self.rewards)
        assert shared is not None
        values = {"reward": reward, "done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        for name in self.writes:
            shared[name][:, self.slot] = values[name]
        self.slot += 1
        return obs, reward, terminated, truncated, info


def collect(env: ScriptedEnv, num_steps: int = 4) -> TensorDict:
    return SyncCollector(env, linear_policy(), "cpu").collect(num_steps)


@pytest.mark.parametrize("reward", [0.0, float("nan"), None])
def test_environment_that_writes_what_it_returns_passes(reward: float | None) -> None:
    env = Forgetful()
    env.rewards = reward
    rollout = collect(env)
    if reward is None:
        # episode 0 of one step, then 2 of three; 1 of two steps, then 3
        assert rollout["reward"][:, :-1].tolist() == [[1, 3, 3, 3], [2, 2, 4, 4]]
        assert rollout["done"][:, :-1].tolist() == [[True, False, False, True], [False, True, False, False]]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_unwritten_rewards_are_told(reward: float) -> None:
    env = Forgetful(writes=("done", "terminated", "truncated"))
    env.rewards = reward
    with pytest.raises(ConfigError) as info:
        collect(env)
    assert str(info.value) == (
        "Forgetful: step returned reward that slot 0 of the rollout does not have: after set_rollout_buffer(rollout), "
        "the k-th step must write reward, done, terminated and truncated into slot k (see VecEnv in "
        "embodichain/agents/rl/vec_env.py)"
    )


@pytest.mark.parametrize("missing", ["done", "terminated", "truncated"])
def test_flags_that_are_not_written_are_told(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"step returned {missing} that slot 0"):
        collect(Forgetful(writes=[name for name in ALL if name != missing]))


def test_flags_that_are_always_true_are_told_at_the_second_step() -> None:
    # One-step episodes: the first slot is True before and after.
    env = Forgetful(writes=("reward", "terminated", "truncated"), length=torch.ones_like)
    with pytest.raises(ConfigError, match="step returned done that slot 1"):
        collect(env)


def test_chunks_are_checked_by_their_own_shapes() -> None:
    policy = linear_policy(chunk_length=2)
    rollout = SyncCollector(ChunkedEnv(2), policy, "cpu").collect(3)
    assert not rollout["reward"][:, :-1].isnan().any()

    class Silent(ChunkedEnv):
        def set_rollout_buffer(self, rollout: TensorDict) -> None:
            pass

    with pytest.raises(ConfigError, match="Silent: step returned reward, "):
        SyncCollector(Silent(2), policy, "cpu").collect(3)


def test_only_the_first_rollout_is_looked_at() -> None:
    env = Forgetful()
    collector = SyncCollector(env, linear_policy(), "cpu")
    collector.collect(2)
    env.writes = ()
    collector.collect(2)
