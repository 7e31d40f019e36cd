"""Legend: N envs, T rollout steps.

The environment is scripted: env n shows 1000 n + t at step t of an episode, so that a value that was written one step
late, or in another row, is plain to see. The policy echoes: action = obs, log-prob = -obs, value = obs + 1/2.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.buffer import RolloutBuffer
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import Policy
from tests.no_sync import work_as_on_a_device

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
)

# Episodes last 3 steps in env 0, 2 in env 1, 4 in env 2.
LENGTHS = torch.tensor([3, 2, 4])
TRUNCATES = torch.tensor([True, False, True])
TERMINATES = torch.tensor([False, True, True])  # env 2 is both at once


class ScriptedEnv:
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


def make_collector(env: ScriptedEnv, callback: Any = None) -> SyncCollector:
    return SyncCollector(env, EchoPolicy(), env.device, callback)


def test_every_field_is_in_its_own_slot() -> None:
    rollout = make_collector(ScriptedEnv()).collect(5)
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

    rollout = SyncCollector(ScriptedEnv(), Own(), "cpu").collect(5)
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)
    assert torch.equal(rollout["value"], FIRST + 0.5)


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_truncated_step_gets_the_value_of_the_final_observation(device: str) -> None:
    collector = make_collector(ScriptedEnv(device))
    # env 0 is truncated after showing step 3, V = 3.5; env 1 terminates; env 2 does both: termination wins
    none = [0.0] * 6
    assert collector.collect(5)["final_value"].tolist() == [[0, 0, 3.5, 0, 0, 0], none, none]
    assert collector.collect(5)["final_value"].tolist() == [[3.5, 0, 0, 3.5, 0, 0], none, none]


def test_given_rollout_is_written_and_returned() -> None:
    rollout = RolloutBuffer(3, 5, 1, 1, "cpu").start_rollout()
    collector = make_collector(ScriptedEnv())
    assert collector.collect(5, rollout) is rollout
    assert torch.equal(rollout["obs"].squeeze(-1), FIRST)
    other = RolloutBuffer(3, 5, 1, 1, "cpu").start_rollout()
    collector.collect(5, other)
    assert torch.equal(other["obs"].squeeze(-1), SECOND)


def test_rollout_of_another_length_is_refused() -> None:
    rollout = RolloutBuffer(3, 4, 1, 1, "cpu").start_rollout()
    with pytest.raises(ValueError, match=r"\[3, 5\], needed is \[N, T\+1\] = \[3, 6\]"):
        make_collector(ScriptedEnv()).collect(5, rollout)


def test_callback_sees_each_step_with_its_info() -> None:
    seen: list[tuple[list[float], list[int]]] = []

    def callback(step: TensorDict, info: dict[str, Any]) -> None:
        assert sorted(step.keys()) == ["action", "obs", "sample_log_prob", "value"]
        seen.append((step["obs"].squeeze(-1).tolist(), info["elapsed_steps"].tolist()))

    make_collector(ScriptedEnv(), callback).collect(3)
    assert seen == [([0, 1000, 2000], [1, 1, 1]), ([1, 1001, 2001], [2, 2, 2]), ([2, 1000, 2002], [3, 1, 3])]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("fails", [False, True])
def test_torch_has_one_thread_while_collecting(fails: bool) -> None:
    env = ScriptedEnv()
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
    collector = SyncCollector(ScriptedEnv(), CountingPolicy(), "cpu")
    assert torch.equal(collector.collect(5)["state"].squeeze(-1), STATES)
    assert torch.equal(collector.collect(5)["state"].squeeze(-1), STATES_SECOND)


def test_entries_and_extra_fields_are_in_their_own_slots() -> None:
    rollout = SyncCollector(ScriptedEnv(), CountingPolicy(), "cpu").collect(5)
    assert torch.equal(rollout["entries", "robot/step"].squeeze(-1), FIRST)
    assert torch.equal(rollout["twice"][:, :5].squeeze(-1), 2 * FIRST[:, :5])
    assert torch.equal(rollout["value"], FIRST + STATES / 10)  # slot 5 too: the bootstrap has the carried state


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_recurrent_final_value_has_the_state_after_the_step(device: str) -> None:
    rollout = SyncCollector(ScriptedEnv(device), CountingPolicy(), device).collect(5)
    # env 0 is truncated after 3 steps: V = 3 + 3/10
    torch.testing.assert_close(rollout["final_value"][0].cpu(), torch.tensor([0, 0, 3.3, 0, 0, 0]))


def test_reset_begins_new_episodes_without_memory() -> None:
    env = ScriptedEnv()
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
        SyncCollector(ScriptedEnv(), policy, "cpu")


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
    rollout = SyncCollector(ScriptedEnv(), OwnChoice(), "cpu").collect(5)  # returns None
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
    collector = SyncCollector(ScriptedEnv(), CountingPolicy(), "cpu")
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
