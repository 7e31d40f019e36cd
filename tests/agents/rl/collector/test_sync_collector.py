"""Legend: N envs, T rollout steps; H actions of a chunk.

``TableEnv`` is scripted: env n shows 1000 n + t at step t of an episode, so that a value that was written one step
late, or in another row, is plain to see. The policy echoes: action = obs, log-prob = -obs, value = obs + 1/2.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.buffer import RolloutBuffer
from embodichain.agents.rl.buffer.layout import num_env_steps
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.collector.sync_collector import sum_over_chunk
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.trainer import step_stats
from embodichain.agents.rl.trainer.step_stats import EpisodeStats
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import ChunkedEnv, ScriptedEnv, linear_policy
from tests.no_sync import work_as_on_a_device

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
)

# Episodes last 3 steps in env 0, 2 in env 1, 4 in env 2.
LENGTHS = torch.tensor([3, 2, 4])
TRUNCATES = torch.tensor([True, False, True])
TERMINATES = torch.tensor([False, True, True])  # env 2 is both at once


class TableEnv:
    """Ends episodes as the tables above say; the reward is the action that it was given."""

    num_envs = 3
    flattened_observation_space = spaces.Box(0, 10_000, (1,))
    action_space = spaces.Box(0, 10_000, (1,))

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.t = torch.zeros(3, dtype=torch.int64)
        self.resets = 0
        self.threads: list[int] = []
        self.fails = False

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        self.resets += 1
        self.t.zero_()
        return self.observe(), {}

    def observe(self) -> TensorDict:
        obs = (1000.0 * torch.arange(3) + self.t).unsqueeze(-1).to(self.device)
        return TensorDict({"robot": {"step": obs}}, batch_size=[3])

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        self.rollout = rollout
        self.current_rollout_step = 0

    def step(self, action: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        self.threads.append(torch.get_num_threads())
        if self.fails:
            raise RuntimeError("the robot fell off the table")
        self.t += 1
        ended = self.t == LENGTHS
        terminated, truncated = ((ended & flags).to(self.device) for flags in (TERMINATES, TRUNCATES))
        info = {"final_obs": self.observe(), "elapsed_steps": self.t.clone()}
        self.t[ended] = 0
        reward = action.squeeze(-1)
        slot = self.rollout[:, self.current_rollout_step]
        for name, value in {
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "done": terminated | truncated,
        }.items():
            slot[name].copy_(value)
        self.current_rollout_step += 1
        return self.observe(), reward, terminated, truncated, info


class EchoPolicy(Policy):
    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        assert not torch.is_grad_enabled()
        td["action"] = td["obs"].clone()
        td["sample_log_prob"] = -td["obs"].squeeze(-1)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        td["value"] = td["obs"].squeeze(-1) + 0.5
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        raise AssertionError("a collector does not evaluate actions")


# obs of two rollouts of T = 5 in a row; slot 5 of the first is slot 0 of the second.
FIRST = torch.tensor([[0.0, 1, 2, 0, 1, 2], [1000, 1001, 1000, 1001, 1000, 1001], [2000, 2001, 2002, 2003, 2000, 2001]])
SECOND = torch.tensor(
    [[2.0, 0, 1, 2, 0, 1], [1001, 1000, 1001, 1000, 1001, 1000], [2001, 2002, 2003, 2000, 2001, 2002]]
)


def make_collector(env: TableEnv, callback: Any = None) -> SyncCollector:
    return SyncCollector(env, EchoPolicy(), env.device, callback)


def test_every_field_is_in_its_own_slot() -> None:
    rollout = make_collector(TableEnv()).collect(5)
    assert rollout.batch_size == (3, 6)
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)
    assert torch.equal(rollout["value"], FIRST + 0.5)  # slot 5 too: the bootstrap
    assert torch.equal(rollout["action"][:, :5].squeeze(-1), FIRST[:, :5])
    assert torch.equal(rollout["sample_log_prob"][:, :5], -FIRST[:, :5])
    assert torch.equal(rollout["reward"][:, :5], FIRST[:, :5])  # the env was given the action of the same slot
    assert rollout["done"][:, :5].int().tolist() == [[0, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 1, 0]]


def test_policy_of_another_class_needs_its_methods_alone() -> None:
    class Own:
        get_action, get_value = EchoPolicy.forward, EchoPolicy.get_value

    rollout = SyncCollector(TableEnv(), Own(), "cpu").collect(5)
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)
    assert torch.equal(rollout["value"], FIRST + 0.5)


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_truncated_step_gets_the_value_of_the_final_observation(device: str) -> None:
    collector = make_collector(TableEnv(device))
    # env 0 is truncated after showing step 3, V = 3.5; env 1 terminates; env 2 does both: termination wins
    none = [0.0] * 6
    assert collector.collect(5)["final_value"].tolist() == [[0, 0, 3.5, 0, 0, 0], none, none]
    assert collector.collect(5)["final_value"].tolist() == [[3.5, 0, 0, 3.5, 0, 0], none, none]


def test_given_rollout_is_written_and_returned() -> None:
    rollout = RolloutBuffer(3, 5, 1, 1, "cpu").start_rollout()
    collector = make_collector(TableEnv())
    assert collector.collect(5, rollout) is rollout
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)
    other = RolloutBuffer(3, 5, 1, 1, "cpu").start_rollout()
    collector.collect(5, other)
    assert torch.equal(other["obs"].squeeze(-1), SECOND)


def test_rollout_of_another_length_is_refused() -> None:
    rollout = RolloutBuffer(3, 4, 1, 1, "cpu").start_rollout()
    with pytest.raises(ValueError, match=r"\[3, 5\], needed is \[N, T\+1\] = \[3, 6\]"):
        make_collector(TableEnv()).collect(5, rollout)


def test_callback_sees_each_step_with_its_info() -> None:
    seen: list[tuple[list[float], list[int]]] = []

    def callback(step: TensorDict, info: dict[str, Any]) -> None:
        assert sorted(step.keys()) == ["action", "obs", "sample_log_prob", "value"]
        seen.append((step["obs"].squeeze(-1).tolist(), info["elapsed_steps"].tolist()))

    make_collector(TableEnv(), callback).collect(3)
    assert seen == [([0, 1000, 2000], [1, 1, 1]), ([1, 1001, 2001], [2, 2, 2]), ([2, 1000, 2002], [3, 1, 3])]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("fails", [False, True])
def test_torch_has_one_thread_while_collecting(fails: bool) -> None:
    env = TableEnv()
    collector = make_collector(env)
    env.fails = fails
    with pytest.raises(RuntimeError, match="fell off") if fails else nullcontext():
        collector.collect(2)
    assert set(env.threads) == {1}
    assert torch.get_num_threads() == 2


class CountingPolicy(EchoPolicy):
    """Its state counts the steps of an episode; it reads the structured observation, and stores 2 obs as ``twice``."""

    obs_keys = ("robot/step",)
    state_size = 1
    extra_fields = (("twice", 1),)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        super().forward(td)
        td["twice"] = 2 * td["entries", "robot/step"]
        td["next_state"] = td["state"] + 1
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        td["value"] = td["entries", "robot/step"].squeeze(-1) + td["state"].squeeze(-1) / 10
        return td


# steps done of the episode before each slot, as FIRST and SECOND without the thousands
STATES = FIRST % 1000
STATES_SECOND = SECOND % 1000


def test_state_is_carried_over_and_zeroed_at_done() -> None:
    collector = SyncCollector(TableEnv(), CountingPolicy(), "cpu")
    assert torch.equal(collector.collect(5)["state"].squeeze(-1), STATES)
    assert torch.equal(collector.collect(5)["state"].squeeze(-1), STATES_SECOND)


def test_entries_and_extra_fields_are_in_their_own_slots() -> None:
    rollout = SyncCollector(TableEnv(), CountingPolicy(), "cpu").collect(5)
    assert torch.equal(rollout["entries", "robot/step"].squeeze(-1), FIRST)
    assert torch.equal(rollout["twice"][:, :5].squeeze(-1), 2 * FIRST[:, :5])
    assert torch.equal(rollout["value"], FIRST + STATES / 10)  # slot 5 too: the bootstrap has the carried state


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_recurrent_final_value_has_the_state_after_the_step(device: str) -> None:
    rollout = SyncCollector(TableEnv(device), CountingPolicy(), device).collect(5)
    # env 0 is truncated after 3 steps: V = 3 + 3/10
    torch.testing.assert_close(rollout["final_value"][0].cpu(), torch.tensor([0, 0, 3.3, 0, 0, 0]))


def test_reset_begins_new_episodes_without_memory() -> None:
    env = TableEnv()
    collector = SyncCollector(env, CountingPolicy(), "cpu")
    collector.collect(1)
    collector.reset()
    assert env.resets == 2
    rollout = collector.collect(5)
    assert torch.equal(rollout["state"].squeeze(-1), STATES)
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)


def test_policy_that_reads_an_unknown_entry_is_refused() -> None:
    policy = CountingPolicy()
    policy.obs_keys = ("robot/stp",)
    with pytest.raises(ValueError, match=r"unknown entry of the observation 'robot/stp'. Did you mean 'robot/step'"):
        SyncCollector(TableEnv(), policy, "cpu")


class OwnChoice(EchoPolicy):
    """Chooses by a ``get_action`` of its own, and only writes values."""

    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        super().get_action(td, deterministic)
        td["action"] = td["action"] + 0.25
        return td

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        super().forward(td, deterministic)
        return td

    def get_value(self, td: TensorDict) -> None:  # type: ignore[override]
        super().get_value(td)


def test_own_get_action_is_used_and_get_value_may_only_write() -> None:
    rollout = SyncCollector(TableEnv(), OwnChoice(), "cpu").collect(5)  # returns None
    assert torch.equal(rollout["action"][:, :-1, 0], FIRST[:, :-1] + 0.25)
    assert torch.equal(rollout["value"], FIRST + 0.5)
    # V of the final observation, step 3 of env 0
    assert rollout["final_value"][0, 2] == 3.5


def final_of(rollout: TensorDict) -> TensorDict:
    """What a rollout keeps of truncated steps, checked to be 0 at all others."""
    cut = rollout["truncated"] & ~rollout["terminated"]
    cut[:, -1] = False  # padding
    for value in rollout["final"].values(include_nested=True, leaves_only=True):
        assert not value[~cut].any()
    assert rollout["final_value"][~cut].eq(0).all()
    return rollout["final"][cut]


@pytest.mark.parametrize("is_on_a_device", [False, True])
def test_final_observations_of_truncated_steps_are_kept(is_on_a_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_on_a_device:
        work_as_on_a_device(monkeypatch)
    monkeypatch.setattr(f"{__name__}.TRUNCATES", torch.tensor([True, True, True]))
    monkeypatch.setattr(f"{__name__}.TERMINATES", torch.tensor([False, False, True]))
    collector = SyncCollector(TableEnv(), CountingPolicy(), "cpu")
    collector.keeps_final_obs = True
    for _ in range(2):
        rollout = collector.collect(5)
        final = final_of(rollout)
        # Env 0's episodes end by their limit at step 3, env 1's at step 2; those of env 2 are terminated, too.
        envs, slots = (rollout["truncated"] & ~rollout["terminated"])[:, :5].nonzero().unbind(1)
        assert {0, 1} == set(envs.tolist())
        at = LENGTHS[envs]
        assert torch.equal(final["obs"].squeeze(-1), 1000.0 * envs + at)
        assert torch.equal(final["entries", "robot/step"].squeeze(-1), 1000.0 * envs + at)
        assert torch.equal(final["state"].squeeze(-1), at.float())  # the memory after the step
        # An algorithm that values them itself has what PPO is given.
        torch.testing.assert_close(CountingPolicy().get_value(final)["value"], rollout["final_value"][envs, slots])


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


T, H = 4, 3


def test_rollout_has_a_row_a_decision() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    assert rollout["action"].shape == rollout["sample_log_prob"].shape == (2, T + 1, H, 1)
    assert rollout["reward"].shape == rollout["executed"].shape == (2, T + 1, H)
    # environment 0 plays the episodes 0, 2, 4, ... of 1, 3, 5, ... steps; 1 the episodes of 2, 4, 6, ... steps
    assert rollout["executed"][:, :T].sum(-1).tolist() == [[1, 3, 3, 2], [2, 3, 1, 3]]
    assert rollout["reward"][:, :T].sum(-1).tolist() == [[1, 9, 15, 10], [4, 12, 4, 18]]
    assert rollout["done"][:, :T].tolist() == [[True, True, False, True], [True, False, True, False]]
    # where each decision was made: (episode, steps done of it)
    assert rollout["obs"][0].tolist() == [[0, 0], [2, 0], [4, 0], [4, 3], [6, 0]]
    assert rollout["obs"][1].tolist() == [[1, 0], [3, 0], [3, 3], [5, 0], [5, 3]]
    assert num_env_steps(rollout) == 9 + 9


def test_truncated_chunk_bootstraps_from_its_final_state() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    # the episodes of even number are truncated, after 1, 3 and 5 steps
    last = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    expected = policy.get_value(TensorDict({"obs": last}, batch_size=[3]))["value"]
    torch.testing.assert_close(rollout["final_value"][0, [0, 1, 3]], expected)
    assert rollout["final_value"][1].tolist() == [0] * (T + 1)


def test_actions_of_a_chunk_reach_the_environment_in_order() -> None:
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    rollout = SyncCollector(env, policy, "cpu").collect(T)
    assert torch.equal(torch.stack(env.actions).reshape(T, H, 2, 1), rollout["action"][:, :T].permute(1, 2, 0, 3))


def test_environment_that_takes_single_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"chunks of 3 actions .* ScriptedEnv takes single ones"):
        SyncCollector(ScriptedEnv(2), linear_policy(chunk_length=H), "cpu")


def test_statistics_count_the_steps_that_were_executed() -> None:
    policy = linear_policy(chunk_length=H)
    stats = EpisodeStats(2)
    rollout = SyncCollector(ChunkedEnv(2), policy, "cpu").collect(T)
    scalars = stats.finish_rollout(rollout)
    # of 9 steps of each environment: rewards 1 + 9 + 25 and 4 + 16 + 18, of which the term is half
    assert scalars["rewards/progress"] == pytest.approx((35 + 38) / 2 / 18)
    assert scalars["metrics/place"] == pytest.approx(0.5)
    # episodes 0 to 4 ended: of 1, 2, 3, 4, 5 steps with rewards 1, 2, 3, 4, 5; the even ones are successes
    assert scalars["charts/episode_length_avg_100"] == pytest.approx(3.0)
    assert scalars["charts/episode_reward_avg_100"] == pytest.approx((1 + 4 + 9 + 16 + 25) / 5)
    assert scalars["charts/success_rate_avg_100"] == pytest.approx(3 / 5)


def test_steps_of_a_chunk_that_lack_a_metric_do_not_count() -> None:
    nan, executed = math.nan, torch.tensor([[True, True, True, False], [True] * 4])
    sums = sum_over_chunk(torch.tensor([[1.0, nan, nan, 0.0], [nan] * 4]), executed)
    assert sums.tolist() == pytest.approx([3.0, nan], nan_ok=True)
    rollout = TensorDict({"metrics/m": torch.stack((sums, torch.zeros(2)), dim=1)}, batch_size=[2, 2])
    assert step_stats._sums(rollout, executed.sum(1, keepdim=True)) == {"metrics/m": (3.0, 3.0)}


def test_buffer_has_room_for_chunks() -> None:
    rollout = RolloutBuffer(2, T, 2, 1, "cpu", chunk_length=H, log_prob_size=7).start_rollout()
    assert rollout["action"].shape == (2, T + 1, H, 1)
    assert rollout["sample_log_prob"].shape == (2, T + 1, H, 7)
    env, policy = ChunkedEnv(2), linear_policy(chunk_length=H)
    mine = RolloutBuffer(2, T, 2, 1, "cpu", chunk_length=H).start_rollout()
    assert SyncCollector(env, policy, "cpu").collect(T, mine) is mine
    assert mine["executed"][:, :T].any(-1).all()
