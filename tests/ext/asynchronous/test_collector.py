"""The invariants of asynchronous collection, but for those of the training loop: see ``test_async_training.py``.

Legend: N = 2 envs, T = 4 rollout steps. The learner of these tests changes every parameter after each rollout.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.distributions import Categorical, Normal

from embodichain.agents.rl.buffer import RolloutBuffer, RolloutOrigin, VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, InferencePolicy, PolicyPublisher, PolicySnapshot
from embodichain.ext.asynchronous.collector import OwnDraws
from tests.agents.rl.fakes import ScriptedEnv, linear_policy
from tests.ext.asynchronous.conftest import Jitter

T = 4


class Learner:
    """A collector with everything about it scripted, and somebody who changes the policy."""

    def __init__(
        self, num_env_sets: int = 1, max_staleness: int = 1, buffer_size: int | None = None, **kwargs: Any
    ) -> None:
        self.policy = linear_policy(normalize_obs=True)
        make_env = kwargs.pop("env", ScriptedEnv)
        self.envs = [make_env(2) for _ in range(num_env_sets)]
        self.buffer = VLABuffer(buffer_size or max_staleness + 1)
        envs: Any = self.envs if num_env_sets > 1 else self.envs[0]
        self.collector = AsyncCollector(envs, self.policy, self.buffer, "cpu", max_staleness=max_staleness, **kwargs)
        self.snapshots: dict[int, PolicySnapshot] = {}

    @contextmanager
    def running(self) -> Iterator[AsyncCollector]:
        self.collector.start()
        try:
            yield self.collector
        finally:
            self.collector.stop()

    @torch.no_grad()
    def change(self) -> None:
        for parameter in self.policy.parameters():
            parameter.add_(0.1)
        self.policy.update_normalizer(torch.randn(5, 2))

    def next(self) -> TensorDict:
        rollout = self.collector.collect(T)
        latest = self.collector.publisher.latest
        self.snapshots[latest.version] = latest
        self.change()
        return rollout


def origin(rollout: TensorDict) -> RolloutOrigin:
    value = rollout["origin"]
    assert isinstance(value, RolloutOrigin)
    return value


def storages(tensors: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}


def assert_chained(rollouts: list[TensorDict], num_env_sets: int = 1) -> None:
    """Each rollout begins where the one before it of its group ended: nothing lost, repeated or reset."""
    for index in range(num_env_sets):
        own = [rollout for rollout in rollouts if origin(rollout).env_set == index]
        assert own
        for before, after in itertools.pairwise(own):
            assert torch.equal(before["obs"][:, T], after["obs"][:, 0])


@pytest.mark.parametrize("num_env_sets", [1, 2])
def test_log_probs_follow_from_the_samples_version(num_env_sets: int, jitter: Jitter) -> None:
    learner = Learner(num_env_sets, max_staleness=num_env_sets)
    start = learner.collector.publisher.latest.version + 1  # what start() publishes
    fresh = linear_policy(normalize_obs=True)
    with learner.running() as collector:
        learner.snapshots[start] = collector.publisher.latest
        rollouts = [learner.next() for _ in range(6)]
    assert len(learner.snapshots) == 6
    for rollout in rollouts:
        for t in range(T):
            (version,) = rollout["policy_version"][:, t].unique().tolist()
            fresh.load_state_dict(dict(learner.snapshots[version].tensors))
            at = TensorDict({name: rollout[name][:, t] for name in ("obs", "action")}, batch_size=[2])
            expected = fresh.evaluate_actions(at)
            torch.testing.assert_close(rollout["sample_log_prob"][:, t], expected["sample_log_prob"])
            torch.testing.assert_close(rollout["value"][:, t], expected["value"])


def test_version_of_the_last_slot_is_that_of_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(num_env_sets=2)
    inference, publisher = learner.collector.inference, learner.collector.publisher
    get_value = inference.get_value

    def value_and_then_another_groups_action(td: TensorDict) -> TensorDict:
        given = get_value(td)
        learner.change()
        publisher.publish()
        inference.get_action(TensorDict({"obs": torch.zeros(2, 2)}, batch_size=[2]))
        return given

    monkeypatch.setattr(inference, "get_value", value_and_then_another_groups_action)
    version = publisher.latest.version
    rollout = learner.collector._env_sets[0].collect(1, resets=False, keeps_final_obs=False)
    # Environment 0's first episode is cut after its one step: that value is the first, slot T's the second.
    assert publisher.latest.version == version + 2
    assert rollout["policy_version"].tolist() == [[version, version + 1]] * 2


def test_collector_and_learner_share_no_parameter_storage(jitter: Jitter) -> None:
    learner = Learner()

    def check() -> None:
        theirs = learner.collector.inference.module
        sets = [
            storages([*learner.policy.parameters(), *learner.policy.buffers()]),
            storages([*theirs.parameters(), *theirs.buffers()]),
            storages(learner.collector.publisher.latest.tensors.values()),
        ]
        assert all(sets)
        assert not sets[0] & sets[1]
        assert not sets[0] & sets[2]
        assert not sets[1] & sets[2]

    check()
    with learner.running():
        for _ in range(3):
            learner.next()
            check()


def test_frozen_parameters_are_copied_once() -> None:
    policy = linear_policy()
    policy.critic.requires_grad_(False)
    publisher = PolicyPublisher(policy)
    assert not any(name.startswith("critic") for name in publisher.latest.tensors)
    inference = InferencePolicy(policy, publisher)
    ours, theirs = (dict(module.named_parameters())["critic.weight"] for module in (policy, inference.module))
    assert torch.equal(ours, theirs)
    assert ours.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize(("max_staleness", "num_env_sets"), [(0, 1), (1, 1), (3, 1), (0, 2), (1, 2), (2, 2)])
def test_lag_is_bounded_also_after_restart_and_resume(max_staleness: int, num_env_sets: int, jitter: Jitter) -> None:
    learner = Learner(num_env_sets, max_staleness)
    lags = []
    for _ in range(2):
        with learner.running() as collector:
            for _ in range(5):
                jitter.sleep()  # the learner learns
                rollout = learner.next()
                lags.append(int(rollout["lag"].max()))
                expected = collector.publisher.latest.version - rollout["policy_version"]
                assert torch.equal(rollout["lag"], expected)
        learner.collector.load_state_dict(learner.collector.state_dict())
    assert min(lags) >= 0
    assert max(lags) <= max_staleness


def test_bound_is_reached_where_the_learner_is_slow() -> None:
    learner = Learner(max_staleness=2)
    with learner.running():
        lags = []
        for _ in range(5):
            lags.append(int(learner.next()["lag"].max()))
            while len(learner.buffer) < 2:  # it learns until all is collected that may be
                threading.Event().wait(0.001)
    # 3 rollouts are begun with the first policy, and from then on one more each time
    assert lags == [0, 1, 2, 2, 2]


def test_env_set_that_waits_longest_begins_next() -> None:
    collector = Learner(2, max_staleness=1).collector
    collector._num_steps, collector._active, collector._under_way = T, 2, 2  # no other may begin
    begun = []

    def begin(index: int) -> None:
        collector._begin(index)
        begun.append(index)
        with collector._changed:
            collector._under_way -= 1  # the learner takes a rollout
            collector._changed.notify_all()

    waiting = threading.Thread(target=begin, args=[1], daemon=True)
    waiting.start()
    with collector._changed:
        assert collector._changed.wait_for(lambda: collector._active == 1, timeout=10)
        collector._under_way -= 1
        collector._changed.notify_all()
        begin(0)  # it comes before the other one has woken
    waiting.join(timeout=10)
    assert begun == [1, 0]


def test_dropped_rollouts_make_room_for_others(jitter: Jitter) -> None:
    learner = Learner(max_staleness=1)
    with learner.running():
        learner.next()
        for _ in range(4):
            while not len(learner.buffer):
                jitter.sleep()
            learner.buffer.clear()
            assert not origin(learner.next()).continues
            rollout = learner.next()
            assert origin(rollout).continues
            assert int(rollout["lag"].max()) <= 1
    assert learner.collector.buffer.get_stats()["dropped"] >= 4


def test_stop_is_idempotent_and_start_works_again(jitter: Jitter) -> None:
    learner = Learner()
    learner.collector.stop()  # before it was ever started
    for _ in range(3):
        learner.collector.start()
        learner.collector.start()
        assert learner.next().batch_size == (2, T + 1)
        jitter.sleep()
        learner.collector.stop()
        learner.collector.stop()
    assert len(learner.envs[0].resets) == 1


@pytest.mark.parametrize("num_env_sets", [1, 2])
def test_stop_ends_though_the_buffer_is_full(num_env_sets: int, jitter: Jitter) -> None:
    learner = Learner(num_env_sets, max_staleness=4, buffer_size=1)
    with learner.running():
        first = learner.next()
        while not learner.buffer.is_full():
            jitter.sleep()
    with learner.running():  # and begins again
        rollout = learner.next()
    # What was dropped is missing, unless it was all of the other group.
    assert origin(rollout).continues == (origin(rollout).number == (origin(rollout).env_set == origin(first).env_set))
    if num_env_sets == 1:
        assert not origin(rollout).continues
    elif origin(rollout).continues and origin(rollout).env_set == origin(first).env_set:
        assert torch.equal(first["obs"][:, T], rollout["obs"][:, 0])
    assert int(rollout["lag"].max()) == 0


def test_stop_says_so_where_a_forward_pass_outlasts_its_deadline() -> None:
    goes_on, is_in = threading.Event(), threading.Event()

    def hold(step: TensorDict, info: dict[str, Any]) -> None:
        is_in.set()
        goes_on.wait(30)

    learner = Learner(on_step_callback=hold)
    learner.collector.start()
    learner.collector._num_steps = T
    with learner.collector._changed:
        learner.collector._changed.notify_all()
    assert is_in.wait(30)
    with pytest.raises(TimeoutError, match="has not ended within"):
        learner.collector.stop(timeout=0.01)
    goes_on.set()
    learner.collector.stop()
    assert not learner.collector.is_running


def test_error_of_a_step_reaches_the_learner_with_its_traceback(jitter: Jitter) -> None:
    learner = Learner(num_env_sets=2, max_staleness=2)
    learner.envs[1].fails_after = 6

    def learn() -> None:
        for _ in range(100):
            learner.next()

    with learner.running(), pytest.raises(RuntimeError, match="fell off the table") as caught:
        learn()
    names = [entry.name for entry in caught.traceback]
    assert "step" in names  # the frame in the environment
    assert "next" in names  # and that of the learner


def test_rollout_is_copied_to_where_the_caller_wants_it(jitter: Jitter) -> None:
    learner = Learner()
    with learner.running() as collector:
        mine = RolloutBuffer(2, T, 2, 1, "cpu").start_rollout()
        assert collector.collect(T, mine) is mine
        assert mine["obs"][:, 1:].abs().sum() > 0


def test_rollouts_of_another_length_are_refused(jitter: Jitter) -> None:
    learner = Learner()
    with learner.running() as collector:
        collector.collect(T)
        with pytest.raises(ValueError, match=r"of 4 steps are under way, got num_steps 5"):
            collector.collect(5)
    with learner.running() as collector:
        assert collector.collect(5).batch_size == (2, 6)


DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "randn_like": lambda: torch.randn_like(torch.ones(3)),
    "rand": lambda: torch.rand(3, device="cpu"),
    "normal_": lambda: torch.empty(3).normal_(),
    "Normal.sample": lambda: Normal(torch.zeros(3), torch.ones(3)).sample(),
    "Normal.rsample": lambda: Normal(torch.zeros(3), torch.ones(3)).rsample(),
    "_standard_gamma": lambda: torch._standard_gamma(torch.ones(3)),
    "Categorical.sample": lambda: Categorical(logits=torch.zeros(40)).sample(torch.Size([3])),
}


@pytest.mark.parametrize("name", list(DRAWS))
def test_draws_follow_from_the_seed_alone(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(5)
    expected = draw()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = OwnDraws(5)
    with draws:
        first = draw()
    with draws:
        second = draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, expected)
    assert not torch.equal(second, first)


def test_collector_has_frozen_parameters_of_a_resumed_policy() -> None:
    policy = linear_policy()
    policy.critic.requires_grad_(False)
    collector = AsyncCollector(ScriptedEnv(2), policy, VLABuffer(1), "cpu")
    # Where environments cannot be restored, nothing of the collector is.
    policy.load_state_dict({name: value + 1 for name, value in policy.state_dict().items()})
    collector.start()
    collector.stop()
    ours, theirs = (module.state_dict() for module in (policy, collector.inference.module))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
