"""What asynchronous collection wins with a slow policy, beside what it could win at most.

python benchmarks/async.py

Three things take time: the policy's choice, the environments' step, and the update. Each is given a stated time, as a
sleep: like a computation on a GPU it holds neither the interpreter nor a core, so that what is measured is how well the
collector overlaps them, on a busy machine too. The bound is (Tc + Tu) / max(Tc, Tu), where Tc is the time to collect a
rollout and Tu that of an update; with two groups of environments, choices, steps and updates may all overlap:
(Ti + Te + Tu) / max(Ti, Te, Tu). Where a policy chooses chunks of actions, it is compared with one that chooses single
ones, in turn: an update then takes its time a decision. At the end, environments whose step is work in Python, which
holds the interpreter's lock, beside an update that is such work too: in threads, and in a process of their own. Prints
a table and, last, one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, BaseCollector, ProcessEnv, SyncCollector
from embodichain.agents.rl.models import ActorCritic

N = 4


@dataclass(frozen=True)
class Case:
    """Times of one choice, one step and one update (s), groups of environments, steps of a rollout and of a chunk."""

    name: str
    infer: float
    step: float
    update: float
    groups: int = 1
    steps: int = 10
    chunk: int = 1

    @property
    def bound(self) -> float:
        """The most that overlapping can win."""
        infer, step = self.steps * self.infer, self.steps * self.step
        in_turn = infer + step + self.update
        infer, update = infer / self.chunk, self.update / self.chunk
        return in_turn / (max(infer, step, update) if self.groups == 2 else max(infer + step, update))


CASES = (
    Case("inference and learning balance", 0.1, 0.0, 1.0),
    Case("inference takes twice as long as learning", 0.1, 0.0, 0.5),
    Case("learning takes twice as long as inference", 0.05, 0.0, 1.0),
    Case("environments and inference against learning", 0.06, 0.04, 1.0),
    Case("two groups: environments as slow as inference and learning", 0.1, 0.1, 1.0, groups=2),
    Case("two groups: environments as slow as inference, learning fast", 0.1, 0.1, 0.5, groups=2),
    Case("chunks of 8 against single actions", 0.1, 0.01, 3.2, steps=32, chunk=8),
    Case("chunks of 8 against single actions, slower environments", 0.1, 0.02, 3.2, steps=32, chunk=8),
)


class SleepingEnv:
    """Environments that do nothing but take time."""

    num_envs = N
    device = torch.device("cpu")
    flattened_observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (N, 1))

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fails = threading.Event()
        self.failed_at = 0.0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Begin."""
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Take time."""
        if self.fails.is_set():
            self.failed_at = time.perf_counter()
            raise RuntimeError("failed as asked")
        time.sleep(self.seconds)
        never = torch.zeros(N, dtype=torch.bool)
        info = {"rewards": {}, "metrics": {}, "success": never, "final_obs": self._obs()}
        return self._obs(), torch.zeros(N), never, never, info

    def step_chunk(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Take the time of each action."""
        for own in action.unbind(1):
            obs, reward, terminated, truncated, info = self.step(own)
        return obs, reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Nothing is written."""

    def _obs(self) -> TensorDict:
        return TensorDict({"x": torch.zeros(N, 2)}, batch_size=[N])


class BusyEnv(SleepingEnv):
    """Environments whose step is work in Python."""

    def __init__(self, work: int) -> None:
        super().__init__(0.0)
        self.work = work

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Work."""
        work_in_python(self.work)
        return super().step(action)

    def state_dict(self) -> dict[str, Any]:
        """There is no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no state."""

    def close(self) -> None:
        """There is nothing to release."""


def work_in_python(count: int) -> int:
    """Do something that holds the interpreter's lock."""
    total = 0
    for i in range(count):
        total += i & 3
    return total


class SlowPolicy(ActorCritic):
    """Takes its time to choose."""

    seconds = 0.0

    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose, after a while."""
        time.sleep(self.seconds)
        return super().get_action(td, deterministic)


def make_policy(seconds: float, chunk: int = 1) -> SlowPolicy:
    """Return a policy that takes so long to choose so many actions."""
    policy = SlowPolicy(2, 1, "cpu", nn.Linear(2, chunk), nn.Linear(2, 1), chunk_length=chunk)
    policy.seconds = seconds
    return policy


def measure(collector: BaseCollector, decisions: int, update: Callable[[], object], iterations: int) -> float:
    """Return the seconds of one iteration, after those in which the pipeline fills."""
    collector.start()
    warm_up = 3 if isinstance(collector, AsyncCollector) else 0
    for i in range(warm_up + iterations):
        if i == warm_up:
            start = time.perf_counter()
        collector.collect(decisions)
        update()
    seconds = (time.perf_counter() - start) / iterations
    collector.stop()
    return seconds


def run(case: Case, iterations: int) -> dict[str, Any]:
    """Measure one case, in turn and asynchronously."""
    in_turn = SyncCollector(SleepingEnv(case.step), make_policy(case.infer), "cpu")
    sync = measure(in_turn, case.steps, partial(time.sleep, case.update), iterations)
    staleness = case.groups
    envs = [SleepingEnv(case.step) for _ in range(case.groups)]
    policy = make_policy(case.infer, case.chunk)
    collector = AsyncCollector(envs, policy, VLABuffer(staleness + 1), "cpu", max_staleness=staleness)
    update = partial(time.sleep, case.update / case.chunk)
    asynchronous = measure(collector, case.steps // case.chunk, update, iterations)
    speedup = sync / asynchronous
    return {
        "case": case.name,
        "max_staleness": staleness,
        "sync_seconds": round(sync, 3),
        "async_seconds": round(asynchronous, 3),
        "speedup": round(speedup, 2),
        "bound": round(case.bound, 2),
        "share_of_bound": round(speedup / case.bound, 3),
    }


def lock_holding(iterations: int, steps: int = 10, seconds: float = 0.04) -> dict[str, float]:
    """Return the seconds of an iteration with steps and updates in Python, both as long, by how it collects."""
    start = time.perf_counter()
    work_in_python(2_000_000)
    work = int(2_000_000 * seconds / (time.perf_counter() - start))
    update = partial(work_in_python, work * steps)
    policy = make_policy(0.0)
    times = {"in turn": measure(SyncCollector(BusyEnv(work), policy, "cpu"), steps, update, iterations)}
    in_process = ProcessEnv(partial(BusyEnv, work))
    for backend, env in (("thread", BusyEnv(work)), ("process", in_process)):
        collector = AsyncCollector(env, policy, VLABuffer(2), "cpu")
        times[backend] = measure(collector, steps, update, iterations)
    in_process.close()
    return {name: round(value, 3) for name, value in times.items()}


def error_latency(repeats: int) -> dict[str, float]:
    """Return how long after an environment's failure a waiting learner has the error (ms)."""
    delays = []
    for _ in range(repeats):
        env = SleepingEnv(0.001)
        collector = AsyncCollector(env, make_policy(0.0), VLABuffer(2), "cpu")
        collector.start()
        threading.Timer(0.05, env.fails.set).start()
        try:
            collector.collect(1000)
        except RuntimeError:
            delays.append(1000 * (time.perf_counter() - env.failed_at))
        collector.stop()
    return {"median_ms": round(statistics.median(delays), 2), "max_ms": round(max(delays), 2)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    print(f"{'':60} {'infer':>6} {'step':>6} {'update':>6} {'in turn':>8} {'async':>7} {'ratio':>6} {'bound':>6}")
    rows = []
    for case in CASES:
        row = run(case, args.iterations)
        rows.append(row)
        times = f"{case.infer:>6.2f} {case.step:>6.2f} {case.update:>6.2f}"
        print(
            f"{case.name:60} {times} {row['sync_seconds']:>8.2f} {row['async_seconds']:>7.2f} {row['speedup']:>6.2f} "
            f"{row['bound']:>6.2f}  {row['share_of_bound']:.0%}",
            flush=True,
        )
    busy = lock_holding(args.iterations)
    shown = ", ".join(f"{name} {value:.2f} s ({busy['in turn'] / value:.2f}x)" for name, value in busy.items())
    print(f"steps and updates that hold the interpreter's lock: {shown}")
    latency = error_latency(20)
    print(f"from a failed step to the learner: median {latency['median_ms']} ms, at most {latency['max_ms']} ms of 20")
    print(json.dumps({"benchmark": "async", "cases": rows, "lock_holding_seconds": busy, "error_latency": latency}))


if __name__ == "__main__":
    main()
