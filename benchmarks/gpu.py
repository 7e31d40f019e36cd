"""Time of a training on a GPU, by part: physics, managers, policy, learner, and the idle time of the device.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --task CartPoleRL --num-envs 16384 --iterations 10
    python benchmarks/gpu.py --device warp:cpu --num-envs 64 --iterations 1        (the same code without a GPU)

An iteration is a rollout of T steps and PPO's update with it, as in `train`, with the shipped quick-start config, but
4 minibatches per epoch. On a GPU, each part's share comes from events on its stream, so the device's waiting in a part
counts there. The idle share is the time in which no kernel runs, from the profiler's record of one more iteration. On
the CPU the parts are wall-clock time, and nothing is idle.

managers/physics: the environment without its physics, and the policy, as a share of the physics. memory: what the GPU
holds more than before the training was built, of PyTorch, of the physics and of their libraries.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.build import build_learner
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.run_config import load_run_config, with_scene
from embodichain.agents.rl.trainer.step_stats import EpisodeStats
from embodichain.lab.gym.envs.tasks.rl import build_env

TASKS = ("CartPoleRL", "Go2FlatRL", "OpenDrawerRL", "PickCubeRL", "PushCubeRL", "ReachRL")
SIZES = (64, 256, 1024, 4096, 16384)
PARTS = ("physics", "managers", "policy", "learner", "other")


class Clock:
    """Time on the device's stream, or on the wall, spent in functions."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._marks: dict[str, list[tuple[Any, Any]]] = {}

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls timed under a name."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            result = function(*args, **kwargs)
            self._marks.setdefault(name, []).append((start, self._now()))
            return result

        return timed

    def take(self) -> dict[str, float]:
        """Return the seconds by name since the last call; waits for the device."""
        if self._is_cuda:
            torch.cuda.synchronize()
        marks, self._marks = self._marks, {}
        return {name: sum(self._between(*pair) for pair in pairs) for name, pairs in marks.items()}

    def _now(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end) / 1e3) if self._is_cuda else float(end - start)


class Case:
    """A training of N environments."""

    def __init__(self, task: str, num_envs: int, steps: int, device: str, sim_device: str) -> None:
        overrides = [
            f"trainer.device={device}",
            f"trainer.sim_device={sim_device}",
            f"trainer.num_envs={num_envs}",
            f"trainer.buffer_size={steps}",
            "trainer.enable_eval=false",
            f"algorithm.cfg.batch_size={num_envs * steps // 4}",
        ]
        run = load_run_config(task, overrides)
        self.device = torch.device(device)
        self._held_before = held_memory(self.device)
        self.num_steps, self.env = steps, build_env(run.env_id, with_scene(run.env, "gpu"))
        self.clock = Clock(self.device)
        self._stats = EpisodeStats(num_envs)
        watch, backend = self.clock.watch, self.env.sim.backend
        vars(backend)["step"] = watch("physics", backend.step)
        vars(self.env)["step"] = watch("env", self.env.step)
        self.policy, self.algorithm = build_learner(run, self.env, self.device)
        self._collect = watch("rollout", SyncCollector(self.env, self.policy, self.device).collect)
        self._update = watch("learner", self._learn)

    def iterate(self) -> None:
        """Collect and learn, as the trainer does."""
        rollout = self._collect(self.num_steps)
        self._update(rollout)
        self._stats.finish_rollout(rollout)

    def _learn(self, rollout: TensorDict) -> None:
        self.algorithm.update(rollout)
        self.policy.update_normalizer(rollout["obs"][:, :-1])

    def run(self, iterations: int) -> dict[str, Any]:
        """Return the times of some iterations, after one that is not counted."""
        self.iterate()
        self.clock.take()
        start = time.perf_counter()
        for _ in range(iterations):
            self.iterate()
        spent = self.clock.take()
        wall = time.perf_counter() - start
        parts = {
            "physics": spent["physics"],
            "managers": spent["env"] - spent["physics"],
            "policy": spent["rollout"] - spent["env"],
            "learner": spent["learner"],
        }
        parts["other"] = wall - sum(parts.values())
        return {
            "steps_per_second": iterations * self.num_steps * self.env.num_envs / wall,
            "env_steps_per_second": iterations * self.num_steps * self.env.num_envs / spent["env"],
            "seconds": {name: parts[name] / iterations for name in PARTS},
            "managers_to_physics": (parts["managers"] + parts["policy"]) / parts["physics"],
            "idle": self._idle(),
            "memory_mb": (held_memory(self.device) - self._held_before) / 2**20,
            "diverged": int(self.env.divergences.count),
        }

    def _idle(self) -> float | None:
        """Return the share of an iteration in which the GPU runs nothing; None on the CPU."""
        if self.device.type != "cuda":
            return None
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.iterate()
            torch.cuda.synchronize()
            wall = time.perf_counter() - start
        spans = sorted((e.time_range.start, e.time_range.end) for e in profile.events() if e.device_type.name == "CUDA")
        return 1.0 - union(spans) / 1e6 / wall


def held_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that are in use; 0 for the CPU."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def union(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals, which are sorted by their starts."""
    covered, reached = 0.0, float("-inf")
    for start, end in spans:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=["PushCubeRL", "CartPoleRL"])
    parser.add_argument("--num-envs", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--steps", type=int, default=32, help="T, of a rollout")
    parser.add_argument("--iterations", type=int, default=5, help="that are counted")
    parser.add_argument("--device", default="cuda:0", help="of the physics and, unless it is warp:cpu, of the learner")
    args = parser.parse_args(arguments)
    learner = args.device if args.device.startswith("cuda") else "cpu"
    print(torch.cuda.get_device_name(learner) if learner != "cpu" else "on the CPU, without a GPU")
    heads = "".join(f"{name:>10}" for name in PARTS)
    print(f"{'task':13}{'N':>6}{'steps/s':>11}{'env only':>11}{heads}  (ms/iteration){'ratio':>8}{'idle':>7}{'MB':>8}")
    results = []
    for task in args.task:
        for num_envs in args.num_envs:
            case = Case(task, num_envs, args.steps, learner, args.device)
            row = case.run(args.iterations)
            case.env.close()
            results.append({"task": task, "num_envs": num_envs, **row})
            cells = "".join(f"{1e3 * row['seconds'][name]:10.2f}" for name in PARTS)
            idle = "-" if row["idle"] is None else f"{row['idle']:.0%}"
            memory = "-" if row["idle"] is None else f"{row['memory_mb']:.0f}"
            print(
                f"{task:13}{num_envs:6}{row['steps_per_second']:11.0f}{row['env_steps_per_second']:11.0f}{cells}"
                f"{'':16}{row['managers_to_physics']:8.0%}{idle:>7}{memory:>8}",
                flush=True,
            )
    print(json.dumps({"benchmark": "gpu", "device": args.device, "steps": args.steps, "results": results}))


if __name__ == "__main__":
    main()
