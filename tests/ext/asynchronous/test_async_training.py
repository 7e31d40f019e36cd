"""The invariants of asynchronous collection in the training loop. Legend: N = 2 envs, T = 4 steps: 8 an iteration."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import PPO
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.collector import AsyncCollector, PolicySnapshot
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.ext.asynchronous.vla_buffer import VLABuffer
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze, generators_state, load_generators_state, thaw
from tests.agents.rl.buffer.test_layout import KINDS, check
from tests.agents.rl.buffer.test_layout import T as STEPS
from tests.agents.rl.collector.test_sync_collector import H, T
from tests.agents.rl.fakes import (
    ChunkedEnv,
    IdleAlgorithm,
    ListSink,
    ScriptedEnv,
    assert_same,
    linear_policy,
    read_metrics,
    tiny_config,
    tiny_trainer,
    write_config,
)
from tests.agents.rl.test_algorithm_training import CHUNKS
from tests.agents.rl.whole_trainings import CONFIGS, SAME, after, built
from tests.ext.asynchronous.conftest import Jitter
from tests.ext.asynchronous.test_collector import assert_chained, origin

pytestmark = pytest.mark.usefixtures("own_folder")


class WatchedTrainer(Trainer):
    """Notes which threads count the steps, and what they count."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "global_step":
            self.__dict__.setdefault("counted", []).append((threading.current_thread(), value))
        super().__setattr__(name, value)


class Run:
    """A training with everything about it scripted."""

    def __init__(
        self,
        folder: Path,
        num_env_sets: int = 1,
        max_staleness: int = 1,
        check_stop: Any = lambda: None,
        **options: Any,
    ) -> None:
        self.envs, self.eval_env = [ScriptedEnv(2) for _ in range(num_env_sets)], ScriptedEnv(2)
        self.policy = linear_policy()
        self.algorithm = IdleAlgorithm(self.policy)
        self.sink = ListSink()
        buffer = VLABuffer(max_staleness + 1)
        envs: Any = self.envs
        self.collector = AsyncCollector(
            envs, self.policy, buffer, "cpu", lambda step, info: check_stop(), max_staleness=max_staleness
        )
        self.trainer = WatchedTrainer(
            policy=self.policy,
            env=self.envs[0],
            algorithm=self.algorithm,
            **tiny_trainer(folder, **options),
            eval_env=self.eval_env,
            log=RunLog([self.sink]),
            check_stop=check_stop,
            collector=self.collector,
        )


@pytest.mark.parametrize("num_env_sets", [1, 2])
def test_global_step_counts_the_steps_learned_from_on_one_thread(
    tmp_path: Path, num_env_sets: int, jitter: Jitter
) -> None:
    run = Run(tmp_path, num_env_sets, max_staleness=num_env_sets)
    run.trainer.train(48)
    counted: list[tuple[threading.Thread, int]] = run.trainer.__dict__["counted"]
    assert {thread for thread, _ in counted} == {threading.current_thread()}
    assert [value for _, value in counted] == [0, 8, 16, 24, 32, 40, 48]
    assert sum(rollout["done"][:, :4].numel() for rollout in run.algorithm.rollouts) == 48
    assert sum(2 * len(env.actions) for env in run.envs) >= 48


def test_evaluation_and_saving_fire_once_per_crossing(tmp_path: Path, jitter: Jitter) -> None:
    run, expected = Run(tmp_path, eval_freq=12, save_freq=12), [16, 24, 40]
    run.trainer.train(40)
    saved = sorted(int(path.stem.removeprefix("tiny_step_")) for path in tmp_path.glob("*.pt"))
    assert saved == expected
    assert [step for step, row in run.sink.rows if "eval/success_rate" in row] == expected
    steps = [step for step, _ in run.sink.rows]
    assert all(a < b for a, b in itertools.pairwise(steps))
    assert len(steps) == 5


@pytest.mark.parametrize("num_env_sets", [1, 2])
def test_evaluation_pauses_the_collector_and_loses_nothing(
    tmp_path: Path, num_env_sets: int, monkeypatch: pytest.MonkeyPatch, jitter: Jitter
) -> None:
    run = Run(tmp_path, num_env_sets, max_staleness=2, eval_freq="1 it")
    seen: list[bool] = []
    step = run.eval_env.step

    def watching(action: torch.Tensor) -> Any:
        before = [len(env.actions) for env in run.envs]
        result = step(action)
        jitter.sleep()
        seen.append([len(env.actions) for env in run.envs] == before)
        return result

    monkeypatch.setattr(run.eval_env, "step", watching)
    run.trainer.train(48)
    assert len(seen) > 6
    assert all(seen)
    assert_chained(run.algorithm.rollouts, num_env_sets)
    assert all(origin(rollout).continues for rollout in run.algorithm.rollouts)
    assert [len(env.resets) for env in run.envs] == [1] * num_env_sets
    # the figures are those of all episodes that ended
    ended = sum(int(rollout["done"][:, :4].sum()) for rollout in run.algorithm.rollouts)
    assert len(run.trainer._stats._returns) == ended


def test_failure_of_the_learner_stops_the_collector(tmp_path: Path, jitter: Jitter) -> None:
    run = Run(tmp_path, num_env_sets=2, max_staleness=2)

    def fail(rollout: TensorDict) -> dict[str, float]:
        raise FloatingPointError("the loss is not a number")

    run.algorithm.update = fail  # type: ignore[method-assign]
    with pytest.raises(FloatingPointError):
        run.trainer.train(80)
    assert not run.collector.is_running
    taken = [len(env.actions) for env in run.envs]
    jitter.sleep()
    assert [len(env.actions) for env in run.envs] == taken


def test_signal_ends_a_training_whose_learner_waits(tmp_path: Path, jitter: Jitter) -> None:
    count = 0

    def check_stop() -> None:
        nonlocal count
        count += 1
        if count > 20:
            raise InterruptedTraining(15)

    run = Run(tmp_path, check_stop=check_stop)
    with pytest.raises(InterruptedTraining):
        run.trainer.train(8000)
    assert not run.collector.is_running


def test_episodes_of_which_steps_were_dropped_do_not_count(tmp_path: Path, jitter: Jitter) -> None:
    run = Run(tmp_path, max_staleness=3)
    for total in (8, 16, 24, 32):
        run.trainer.train(total)
    lengths, returns = run.trainer._stats._lengths, run.trainer._stats._returns
    assert len(lengths) > 0
    # episode e lasts e + 1 steps of reward e + 1: none is of another length than its return says
    assert all(value == length**2 for value, length in zip(returns, lengths, strict=True))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_training_without_staleness_equals_the_synchronous_one(tmp_path: Path, name: str, jitter: Jitter) -> None:
    sync = after(tmp_path, 4, **CONFIGS[name])
    ours = {**CONFIGS[name], "trainer__asynchronous": {"max_staleness": 0}}
    whole = after(tmp_path, 4, **ours)
    for part in SAME:
        assert_same(whole[part], sync[part], part)
    # the environments, and where the next rollout begins
    assert_same(whole["env"]["groups"][0], sync["env"], "env")
    assert_same(whole["collector"]["groups"][0], sync["collector"], "collector")

    if name == "grpo":  # of PPO the learning rate falls with the share of the training, which is another for the half
        halved = after(tmp_path, 4, start=after(tmp_path, 2, **ours), **ours)
        for part in (*SAME[:-1], "env"):
            assert_same(halved[part], whole[part], part)


@pytest.mark.parametrize("num_iterations", [2, 3])  # the first half ends with the second set, or with the first
def test_sets_take_turns_and_training_is_reproducible(tmp_path: Path, num_iterations: int, jitter: Jitter) -> None:
    both = {"trainer__asynchronous": {"max_staleness": 0, "env_groups": 2}}
    whole = after(tmp_path, 5, **both)
    again = after(tmp_path, 5, **both)
    halved = after(tmp_path, 5, start=after(tmp_path, num_iterations, **both), **both)
    for part in (*SAME, "env"):
        assert_same(again[part], whole[part], part)
    for part in ("global_step", "policy", "generators", "env"):
        assert_same(halved[part], whole[part], part)
    # Of 5 rollouts of 4 steps the first set has made 3, the second 2; the first has made the 16 + 1 warm-up steps, too.
    assert whole["collector"]["next_group"] == 1


def test_asynchronous_run_evaluates_and_is_resumed(tmp_path: Path, jitter: Jitter) -> None:
    asynchronous = {"max_staleness": 2, "env_groups": 2}
    config = tiny_config(trainer__iterations=3, trainer__asynchronous=asynchronous)
    run = Path(train_from_config(write_config(tmp_path, config))["run_folder"])
    train_from_config(None, resume=str(run), overrides=["trainer.iterations=5"])
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == [8, 16, 24, 32, 40]
    assert all(0 <= line["async/lag_max"] <= 2 for line in lines)
    content = load_checkpoint(run / "checkpoints/tiny_step_40.pt")
    # a version at each start, and one after each rollout but a start's first, beside that of the first steps
    assert content["collector"]["version"] > 5
    assert len(content["env"]["groups"]) == 2


def test_update_is_repeatable_beside_the_collectors_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jitter: Jitter
) -> None:
    kept: list[dict[str, Any]] = []
    # the entropy of squashed actions is drawn too
    settings = {"policy__squash": True, "trainer__asynchronous": {"max_staleness": 2}}
    with built(tmp_path, **settings) as (trainer, _):
        update = trainer.algorithm.update

        def keep(rollout: TensorDict) -> dict[str, float]:
            before = freeze({"state": trainer.state_dict(), "generators": generators_state()})
            rollout = rollout.clone()
            jitter.sleep()
            losses = update(rollout)
            kept.append(before | {"rollout": rollout, "policy": freeze(trainer.policy.state_dict())})
            return losses

        monkeypatch.setattr(trainer.algorithm, "update", keep)
        trainer.train(4 * 8)
        for iteration in kept:
            trainer.policy.load_state_dict(thaw(iteration["state"]["policy"]))
            trainer.algorithm.load_state_dict(thaw(iteration["state"]["algorithm"]))
            load_generators_state(thaw(iteration["generators"]))
            update(iteration["rollout"])
            assert_same(freeze(trainer.policy.state_dict()), iteration["policy"])


def test_everything_is_reachable_from_the_config(tmp_path: Path) -> None:
    asynchronous = {"max_staleness": 3, "buffer_capacity": 2, "env_groups": 2}
    cfg = {"batch_size": 8, "decoupled": False, "behaviour_weight_cap": 2.0}
    with built(tmp_path, trainer__asynchronous=asynchronous, algorithm__cfg=cfg) as (trainer, envs):
        collector, algorithm = trainer.collector, trainer.algorithm
        assert isinstance(collector, AsyncCollector)
        assert (collector.max_staleness, collector.buffer.buffer_size, collector.num_env_sets) == (3, 2, 2)
        assert isinstance(algorithm, PPO)
        assert (algorithm.cfg.decoupled, algorithm.cfg.behaviour_weight_cap) == (False, 2.0)
        # the second group's environments are others
        assert [env.random.stream_ids.tolist() for env in envs] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("key", ["model_type", "buffer_type"])
def test_vla_switches_to_asynchronous_collection(tmp_path: Path, key: str) -> None:
    with built(tmp_path, **{f"trainer__{key}": "vla"}) as (trainer, _):
        assert isinstance(trainer.collector, AsyncCollector)
        assert trainer.collector.max_staleness == 1


def test_grpo_gets_complete_groups_of_one_start_and_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jitter: Jitter
) -> None:
    settings = {**CONFIGS["grpo"], "trainer__asynchronous": {"max_staleness": 2, "env_groups": 2}}
    rollouts = []
    with built(tmp_path, **settings) as (trainer, _):
        update = trainer.algorithm.update

        def keep(rollout: TensorDict) -> dict[str, float]:
            rollouts.append(rollout.clone())
            return update(rollout)

        monkeypatch.setattr(trainer.algorithm, "update", keep)
        trainer.train(6 * 4 * 4)
    assert len(rollouts) == 6
    for rollout in rollouts:
        obs = rollout["obs"][:, 0]
        # members 0 and 1, and 2 and 3, begin alike; the groups do not
        assert torch.equal(obs[0], obs[1])
        assert torch.equal(obs[2], obs[3])
        assert not torch.equal(obs[0], obs[2])
        assert (rollout["policy_version"] == rollout["policy_version"][:1]).all()
    starts = [rollout["obs"][0, 0].tolist() for rollout in rollouts]
    assert len({tuple(start) for start in starts}) == 6  # each its own


def test_several_processes_are_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, tiny_config(trainer__asynchronous={}, trainer__distributed=True))
    with pytest.raises(ConfigError, match=r"trainer\.asynchronous: cannot go together with several processes"):
        train_from_config(config)


def test_chunks_log_probs_follow_from_their_version(jitter: Jitter) -> None:
    policy, fresh = linear_policy(chunk_length=H), linear_policy(chunk_length=H)
    collector = AsyncCollector(ChunkedEnv(2), policy, VLABuffer(2), "cpu")
    snapshots: dict[int, PolicySnapshot] = {}
    collector.start()
    snapshots[collector.publisher.latest.version] = collector.publisher.latest
    rollouts = []
    try:
        for _ in range(5):
            rollouts.append(collector.collect(T))
            snapshots[collector.publisher.latest.version] = collector.publisher.latest
            with torch.no_grad():
                policy.actor.bias.add_(0.1)  # type: ignore[operator]
    finally:
        collector.stop()
    for rollout in rollouts:
        for t in range(T):
            (version,) = rollout["policy_version"][:, t].unique().tolist()  # one for the whole chunk
            fresh.load_state_dict(dict(snapshots[version].tensors))
            at = rollout.exclude("origin")[:, t]
            torch.testing.assert_close(fresh.evaluate_actions(at)["sample_log_prob"], at["sample_log_prob"])


@pytest.mark.parametrize(("kind", "env", "policy", "fields"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_every_field_of_an_asynchronous_rollout_is_in_the_table(
    kind: str, env: Callable[[], VecEnv], policy: Callable[[], Policy], fields: set[str]
) -> None:
    actor = policy()
    collector = AsyncCollector([env(), env()], actor, VLABuffer(2), "cpu")
    collector.start()
    try:
        check(collector.collect(STEPS), actor, fields | {"policy_version", "lag", "origin"})
    finally:
        collector.stop()


@pytest.mark.parametrize("name", list(CHUNKS))
def test_chunks_without_staleness_equal_synchronous_training(tmp_path: Path, name: str) -> None:
    sync = after(tmp_path, 3, **CHUNKS[name])
    ours = after(tmp_path, 3, **CHUNKS[name], trainer__asynchronous={"max_staleness": 0})
    for part in SAME:
        assert_same(ours[part], sync[part], part)
