"""Speed-up by asynchronous collection with a slow policy, compared with the bound.

python benchmarks/async.py

Three operations take time: choosing an action, stepping the environments, and the update. Each has a fixed duration, a
sleep: like a computation on a GPU it holds neither the interpreter nor a core, so that the benchmark measures how well
the collector overlaps them, on a busy machine too. The bound is (Tc + Tu) / max(Tc, Tu), where Tc is the time to
collect a rollout and Tu that of an update. With two env sets, choices, steps and updates may all overlap:
(Ti + Te + Tu) / max(Ti, Te, Tu). A policy that chooses chunks of actions is compared with synchronous collection by one
that chooses single actions; the update's time is then per decision. At the end, steps and updates are work in Python,
which holds the interpreter lock: in threads, and in a separate process. Prints a table and, last, one line of JSON.
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
    """Times of one choice, one step and one update (s), env sets, steps of a rollout and of a chunk."""

    name: str
    infer: float
    step: float
    update: float
    env_sets: int = 1
    steps: int = 10
    chunk: int = 1

    @property
    def bound(self) -> float:
        """The largest speed-up that overlapping allows."""
        infer, step = self.steps * self.infer, self.steps * self.step
        synchronous = infer + step + self.update
        infer, update = infer / self.chunk, self.update / self.chunk
        return synchronous / (max(infer, step, update) if self.env_sets == 2 else max(infer + step, update))


CASES = (
    Case("inference and learning balance", 0.1, 0.0, 1.0),
    Case("inference takes twice as long as learning", 0.1, 0.0, 0.5),
    Case("learning takes twice as long as inference", 0.05, 0.0, 1.0),
    Case("environments and inference against learning", 0.06, 0.04, 1.0),
    Case("two env sets: environments as slow as inference and learning", 0.1, 0.1, 1.0, env_sets=2),
    Case("two env sets: environments as slow as inference, learning fast", 0.1, 0.1, 0.5, env_sets=2),
    Case("chunks of 8 against single actions", 0.1, 0.01, 3.2, steps=32, chunk=8),
    Case("chunks of 8 against single actions, slower environments", 0.1, 0.02, 3.2, steps=32, chunk=8),
)


class SleepingEnv:
    """Environments whose step is a sleep."""

    num_envs = N
    device = torch.device("cpu")
    flattened_observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (N, 1))

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.rollout: TensorDict | None = None
        self.slot = 0
        self.fails = threading.Event()
        self.failed_at = 0.0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Return the first observation."""
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Sleep."""
        if self.fails.is_set():
            self.failed_at = time.perf_counter()
            raise RuntimeError("failed as asked")
        time.sleep(self.seconds)
        return self._results(torch.zeros(N))

    def step_chunk(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Sleep for each action of the chunk."""
        time.sleep(self.seconds * action.shape[1])
        size = N, action.shape[1]
        return self._results(torch.zeros(size), executed=torch.ones(size, dtype=torch.bool))

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write into a rollout from now on."""
        self.rollout, self.slot = rollout, 0

    def _results(self, reward: Tensor, **fields: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        never = torch.zeros(N, dtype=torch.bool)
        fields |= {"reward": reward, "done": never, "terminated": never, "truncated": never}
        if self.rollout is not None:  # none in another process: ProcessEnv writes
            for name, value in fields.items():
                self.rollout[name][:, self.slot] = value
            self.slot += 1
        info = {"rewards": {}, "metrics": {}, "success": never, "final_obs": self._obs()}
        return self._obs(), reward, never, never, info

    def _obs(self) -> TensorDict:
        return TensorDict({"x": torch.zeros(N, 2)}, batch_size=[N])


class BusyEnv(SleepingEnv):
    """Environments whose step is work in Python."""

    def __init__(self, work: int) -> None:
        super().__init__(0.0)
        self.work = work

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Hold the interpreter lock."""
        work_in_python(self.work)
        return super().step(action)

    def state_dict(self) -> dict[str, Any]:
        """Return or load no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return or load no state."""

    def close(self) -> None:
        """Release nothing."""


def work_in_python(count: int) -> int:
    """Compute in Python, which holds the interpreter lock."""
    total = 0
    for i in range(count):
        total += i & 3
    return total


class SlowPolicy(ActorCritic):
    """A policy that sleeps before it chooses."""

    seconds = 0.0

    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Sleep, then choose."""
        time.sleep(self.seconds)
        return super().get_action(td, deterministic)


def make_policy(seconds: float, chunk: int = 1) -> SlowPolicy:
    """Return a policy that takes ``seconds`` to choose a chunk of actions."""
    policy = SlowPolicy(2, 1, "cpu", nn.Linear(2, chunk), nn.Linear(2, 1), chunk_length=chunk)
    policy.seconds = seconds
    return policy


def measure(collector: BaseCollector, decisions: int, update: Callable[[], object], iterations: int) -> float:
    """Return the seconds per iteration, without the first ones, which fill the pipeline."""
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
    """Measure one case, synchronous and asynchronous."""
    synchronous = SyncCollector(SleepingEnv(case.step), make_policy(case.infer), "cpu")
    sync = measure(synchronous, case.steps, partial(time.sleep, case.update), iterations)
    staleness = case.env_sets
    envs = [SleepingEnv(case.step) for _ in range(case.env_sets)]
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
    """Return the seconds per iteration with steps and updates in Python, of equal length, by kind of collection."""
    start = time.perf_counter()
    work_in_python(2_000_000)
    work = int(2_000_000 * seconds / (time.perf_counter() - start))
    update = partial(work_in_python, work * steps)
    policy = make_policy(0.0)
    times = {"synchronous": measure(SyncCollector(BusyEnv(work), policy, "cpu"), steps, update, iterations)}
    in_process = ProcessEnv(partial(BusyEnv, work))
    for backend, env in (("thread", BusyEnv(work)), ("process", in_process)):
        collector = AsyncCollector(env, policy, VLABuffer(2), "cpu")
        times[backend] = measure(collector, steps, update, iterations)
    in_process.close()
    return {name: round(value, 3) for name, value in times.items()}


def error_latency(repeats: int) -> dict[str, float]:
    """Return the time from an environment's failure to the error in a waiting learner, ms."""
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
    print(f"{'':60} {'infer':>6} {'step':>6} {'update':>6} {'sync':>8} {'async':>7} {'ratio':>6} {'bound':>6}")
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
    shown = ", ".join(f"{name} {value:.2f} s ({busy['synchronous'] / value:.2f}x)" for name, value in busy.items())
    print(f"steps and updates that hold the interpreter lock: {shown}")
    latency = error_latency(20)
    print(f"from a failed step to the learner: median {latency['median_ms']} ms, at most {latency['max_ms']} ms of 20")
    print(json.dumps({"benchmark": "async", "cases": rows, "lock_holding_seconds": busy, "error_latency": latency}))


if __name__ == "__main__":
    main()
