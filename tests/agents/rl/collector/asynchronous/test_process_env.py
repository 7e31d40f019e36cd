"""Environments in another process. Legend: N = 2 envs, T = 4 steps, H = 3 actions of a chunk."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.multiprocessing import get_context

from embodichain.agents.rl.buffer import VLABuffer, allocate_rollout
from embodichain.agents.rl.build import build_task
from embodichain.agents.rl.collector import AsyncCollector, EnvProcessError, ProcessEnv, SyncCollector
from embodichain.agents.rl.collector.asynchronous import process_env
from embodichain.agents.rl.collector.asynchronous.shared_slots import MAX_LAYOUTS, SlotReader, SlotWriter
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.vec_env import SavesState, StepsChunks, VecEnv, mirror_map_of
from embodichain.utils import ConfigError
from embodichain.utils.mirror import Mirror, MirrorMap
from embodichain.utils.state import freeze
from tests.agents.rl.collector.asynchronous.test_async_training import CONFIGS
from tests.agents.rl.fakes import ChunkedEnv, assert_same, linear_policy, tiny_config, write_config

T, H = 4, 3


class RemoteEnv(ChunkedEnv):
    """Scripted, with a state; it fails, hangs or dies when the first action is of a certain number."""

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self.episode, "t": self.t, "pid": os.getpid()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.t = state["episode"].clone(), state["t"].clone()

    def mirror_map(self) -> MirrorMap:
        return MirrorMap(Mirror.of([1, 0], [-1, -1], "obs"), Mirror.of([0], [-1], "action"))

    def step(self, action: torch.Tensor) -> Any:
        match float(action[0, 0]):
            case 7.0:
                raise Unsendable(1, 2)
            case 8.0:
                raise ValueError("the cube is not there")
            case 9.0:
                os.kill(os.getpid(), signal.SIGKILL)
            case 10.0:
                time.sleep(60)
        return super().step(action)


class Unsendable(Exception):  # noqa: N818
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def fail() -> VecEnv:
    raise ConfigError("env.actions: at least one action term is needed")


@pytest.fixture(scope="module")
def of_all_tests() -> Iterator[ProcessEnv]:
    env = ProcessEnv(partial(RemoteEnv, 2))
    yield env
    env.close()


@pytest.fixture
def shared(of_all_tests: ProcessEnv) -> ProcessEnv:
    of_all_tests.set_rollout_buffer(allocate_rollout(2, 20, 2, 1, "cpu"))
    of_all_tests.reset()
    return of_all_tests


def actions(value: float = 0.0) -> torch.Tensor:
    return torch.full((2, 1), value)


def _is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_messages_are_read_as_they_were_written_and_use_their_memory_again() -> None:
    writer, reader = SlotWriter(), SlotReader()
    td = TensorDict({"a": torch.ones(2, 3), "b": {"c": torch.zeros(2, dtype=torch.bool)}}, batch_size=[2])
    value = {"td": td, "list": [torch.empty(0), 1, None, "x"], "tuple": (torch.tensor(3),)}
    for round_ in range(3):
        message = writer.write(value)
        assert (message.new_slots is not None) == (round_ == 0)
        got = reader.read(message)
        assert (got["td"] == td).all()
        assert got["td"]["b", "c"].dtype == torch.bool
        assert got["list"][1:] == [1, None, "x"]
        assert got["tuple"][0] == 3
        td["a"] += 1
        assert not (got["td"]["a"] == td["a"]).any()  # a copy


def test_messages_keep_the_strides_on_which_the_order_of_sums_depends() -> None:
    writer, reader = SlotWriter(), SlotReader()
    rows = torch.arange(6.0).reshape(2, 3)
    for tensor in (rows, rows.t().contiguous().t(), rows[:, 1:], torch.ones(1).expand(4), torch.empty(0, 3)):
        got = reader.read(writer.write(tensor))
        assert torch.equal(got, tensor)
        assert got.stride() == tensor.clone().stride()  # a copy has those that have no gaps


def test_tensors_that_are_one_object_stay_so() -> None:
    writer, reader = SlotWriter(), SlotReader()
    a, b = torch.zeros(2), torch.zeros(2)
    got = reader.read(writer.write({"first": a, "others": [b, a]}))
    assert got["first"] is got["others"][1]
    assert got["first"] is not got["others"][0]
    got = reader.read(writer.write({"first": a, "others": [b, b]}))  # the same shapes, and other objects
    assert got["others"][0] is got["others"][1]


def test_messages_of_ever_new_shapes_give_their_memory_back() -> None:
    writer, reader = SlotWriter(), SlotReader()
    for size in itertools.chain(range(MAX_LAYOUTS + 5), range(3)):
        assert len(reader.read(writer.write(torch.arange(size)))) == size
    assert len(writer._layouts) == len(reader._slots) == MAX_LAYOUTS


def test_it_is_what_a_training_needs(shared: ProcessEnv) -> None:
    assert isinstance(shared, VecEnv)
    assert isinstance(shared, SavesState)
    assert isinstance(shared, StepsChunks)
    assert shared.num_envs == 2
    assert shared.flattened_observation_space.shape == (2,)
    assert shared.state_dict()["pid"] != os.getpid()


@pytest.mark.parametrize("chunk_length", [1, H])
def test_rollouts_are_those_of_the_same_environments_here(shared: ProcessEnv, chunk_length: int) -> None:
    policy = linear_policy(chunk_length=chunk_length)
    rollouts = []
    for env in (shared, RemoteEnv(2)):
        torch.manual_seed(1)
        collector = SyncCollector(env, policy, "cpu")
        rollouts.append([collector.collect(T).clone() for _ in range(2)])
    for ours, theirs in zip(*rollouts, strict=True):
        for name in theirs.keys(include_nested=True, leaves_only=True):
            assert torch.equal(ours[name], theirs[name]), name


def test_state_is_taken_up_again(shared: ProcessEnv) -> None:
    for _ in range(3):
        shared.step(actions())
    state = freeze(shared.state_dict())
    first = shared.step(actions())[0].clone()
    shared.step(actions())
    shared.load_state_dict(state)
    assert (shared.step(actions())[0] == first).all()


def test_results_do_not_change_with_the_next_step(shared: ProcessEnv) -> None:
    obs, reward, *_, info = shared.step(actions())
    before = obs.clone(), reward.clone(), info["final_obs"].clone()
    shared.step(actions())
    assert (obs == before[0]).all()
    assert torch.equal(reward, before[1])
    assert (info["final_obs"] == before[2]).all()


def test_error_of_a_step_is_raised_here_with_its_traceback_and_the_next_step_works(shared: ProcessEnv) -> None:
    with pytest.raises(ValueError, match="the cube is not there") as caught:
        shared.step(actions(8.0))
    assert "in step" in str(caught.value.__cause__)
    assert "test_process_env.py" in str(caught.value.__cause__)
    with pytest.raises(EnvProcessError, match="Unsendable: 1 and 2"):
        shared.step(actions(7.0))
    shared.step(actions())


def test_mirror_map_is_that_of_the_other_process(shared: ProcessEnv) -> None:
    mirror_map = mirror_map_of(shared)
    assert mirror_map.obs(torch.tensor([1.0, 2.0])).tolist() == [-2.0, -1.0]
    assert mirror_map.action(torch.tensor([3.0])).tolist() == [-3.0]


def test_error_of_a_collectors_environment_reaches_the_learner() -> None:
    policy = linear_policy()
    env = ProcessEnv(partial(RemoteEnv, 2))
    collector = AsyncCollector(env, policy, VLABuffer(2), "cpu")
    collector.start()
    try:
        collector.collect(T)
        os.kill(env.state_dict()["pid"], signal.SIGKILL)
        with pytest.raises(EnvProcessError, match="has ended by SIGKILL"):
            any(collector.collect(T) is None for _ in range(10))
    finally:
        collector.stop()
        env.close()
    env.close()  # once more does nothing


def test_error_of_the_beginning_is_raised_here() -> None:
    with pytest.raises(ConfigError, match=r"env\.actions: at least one") as caught:
        ProcessEnv(fail)
    assert "in fail" in str(caught.value.__cause__)


def test_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embodichain.agents.rl.collector.asynchronous.process_env._CLOSE_SECONDS", 0.2)
    env = ProcessEnv(partial(RemoteEnv, 2))
    raised = []

    def hang() -> None:
        try:
            env.step(actions(10.0))
        except EnvProcessError as error:
            raised.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    time.sleep(0.1)
    env.close()
    thread.join(30)
    assert raised


ASYNCHRONOUS = {"backend": "process", "max_staleness": 0}


def test_training_without_staleness_equals_the_synchronous_one_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = []
    for asynchronous in (None, ASYNCHRONOUS):
        config = tiny_config(**CONFIGS["ppo"], trainer__asynchronous=asynchronous)
        summary = train_from_config(write_config(tmp_path, config))
        policies.append(torch.load(summary["checkpoint"], weights_only=True))
    sync, ours = policies
    for part in ("policy", "algorithm", "statistics", "global_step"):
        assert_same(ours[part], sync[part], part)
    envs = ours["env"]["groups"][0], sync["env"]
    for env in envs:
        del env["attributes"]["current_rollout_step"]  # the rollout is written here
    assert_same(*envs, "env")


def test_resumed_training_without_staleness_equals_one_that_was_not_stopped_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tiny_config(
        trainer__num_envs=8,
        trainer__buffer_size=16,
        trainer__asynchronous=ASYNCHRONOUS,
        trainer__enable_eval=False,
        algorithm__cfg={"n_epochs": 1, "batch_size": 64},
    )
    path = write_config(tmp_path, config)
    whole = train_from_config(path, overrides=["trainer.iterations=4"])
    half = train_from_config(path)
    resumed = train_from_config(None, resume=half["run_folder"], overrides=["trainer.iterations=4"])
    ours, theirs = (torch.load(summary["checkpoint"], weights_only=True) for summary in (resumed, whole))
    for part in ("policy", "algorithm", "statistics", "global_step", "env"):
        assert_same(ours[part], theirs[part], part)


def test_run_with_two_processes_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asynchronous = {"backend": "process", "max_staleness": 2, "env_groups": 2}
    config = tiny_config(trainer__enable_eval=False, trainer__asynchronous=asynchronous)
    run = train_from_config(write_config(tmp_path, config))["run_folder"]
    summary = train_from_config(None, resume=str(run), overrides=["trainer.iterations=3"])
    assert summary["env_steps"] == 24


def test_environments_of_the_config_can_be_sent(tmp_path: Path) -> None:
    run = load_run_config(write_config(tmp_path, tiny_config()))
    make = pickle.loads(pickle.dumps(partial(build_task, run.env_id, run.env)))
    env = make()
    assert env.num_envs == 2
    env.close()


def busy_env() -> RemoteEnv:
    process_env._CLOSE_SECONDS = 0.1  # in the other process
    return RemoteEnv(2)


def step_for_ever(sender: Connection) -> None:
    env: Any = ProcessEnv(busy_env)
    sender.send(env.state_dict()["pid"])
    env.step(torch.full((2, 1), 10.0))


def test_busy_process_of_the_environments_ends_with_the_killed_training() -> None:
    context = get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    training = context.Process(target=step_for_ever, args=[sender])
    training.start()
    pid = receiver.recv()
    training.kill()
    training.join()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)
