"""Speed of Gymnasium's MuJoCo tasks on our physics, beside Gymnasium's own vector environments.

    python benchmarks/gymnasium_tasks.py
    python benchmarks/gymnasium_tasks.py --task HalfCheetah --num-envs 64 --rounds 7

Three ways to simulate the same task in N environments on the same cores: ours (one process, MuJoCo's batch on threads),
Gymnasium's ``AsyncVectorEnv`` (a process for each environment) and ``SyncVectorEnv`` (a loop). ``env`` steps the
environments alone with random actions. ``learn`` is an iteration of our PPO with the shipped config, the same for all
three: N environments collect ``--transitions`` transitions, and the policy is updated. Episodes end and are reset.

The ways alternate in rounds, so that a busy machine slows all of them; the table has medians over the rounds. ``cpu``
is the processor's time for one environment step, over all processes: it hardly depends on what else the machine does.
Asynchronous environments beyond ``--most-processes`` are left out. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.build import build_learner
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.trainer.threads import update_threads, worthwhile_threads
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.threads import torch_threads

CONFIGS = Path(__file__).parents[1] / "configs" / "agents" / "rl" / "gymnasium"
TASKS = {"HalfCheetah": "half_cheetah_native", "Hopper": "hopper_native", "Walker2d": "walker2d_native"}
TICKS = os.sysconf("SC_CLK_TCK")


class Steps(Protocol):
    """Environments that step with an action [N, A] float32."""

    def step(self, action: Any) -> Any:
        """Step them."""

    def close(self) -> None:
        """Release them."""


class GymnasiumEnvs:
    """Gymnasium's vector environment for our learner; see ``embodichain.agents.rl.vec_env.VecEnv``."""

    device = torch.device("cpu")

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        self._envs, self.num_envs = envs, envs.num_envs
        self.single_action_space, self.action_space = envs.single_action_space, envs.action_space
        size = (envs.single_observation_space.shape or (0,))[0]
        self.single_observation_space = spaces.Dict({"observation": spaces.Box(-np.inf, np.inf, (size,), np.float32)})
        self.flattened_observation_space = spaces.Box(-np.inf, np.inf, (self.num_envs, size), np.float32)
        self._low, self._high = envs.action_space.low, envs.action_space.high  # type: ignore[attr-defined]
        self._rollout: TensorDict | None = None
        self._elapsed = torch.zeros(self.num_envs, dtype=torch.int64)
        self._never = torch.zeros(self.num_envs, dtype=torch.bool)
        self.current_rollout_step = 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Start new episodes everywhere."""
        obs, _ = self._envs.reset(seed=seed)
        return self._observation(obs), {}

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Advance every environment by one control step."""
        obs, rewards, ends, cuts, infos = self._envs.step(np.clip(action.numpy(), self._low, self._high))
        reward, terminated = torch.from_numpy(np.asarray(rewards, np.float32)), torch.from_numpy(ends)
        truncated = torch.from_numpy(cuts)
        done = terminated | truncated
        now = self._observation(obs)
        final = now
        if "final_obs" in infos:
            rows = done.nonzero().squeeze(1)
            final = now.clone()
            final["observation"][rows] = torch.from_numpy(np.stack(infos["final_obs"][rows.numpy()])).float()
        self._elapsed = self._elapsed + 1
        info = {"success": self._never, "fail": terminated, "rewards": {}, "metrics": {}, "final_obs": final}
        info["elapsed_steps"] = self._elapsed
        self._elapsed = self._elapsed.masked_fill(done, 0)
        if self._rollout is not None:
            slot = self._rollout[:, self.current_rollout_step]
            for name, value in {
                "reward": reward,
                "done": done,
                "terminated": terminated,
                "truncated": truncated,
            }.items():
                slot[name].copy_(value)
            self.current_rollout_step += 1
        return now, reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write the next steps into a rollout [N, T+1]."""
        self._rollout, self.current_rollout_step = rollout, 0

    def close(self) -> None:
        """End the processes."""
        self._envs.close()

    def _observation(self, obs: np.ndarray) -> TensorDict:
        return TensorDict({"observation": torch.from_numpy(obs).float()}, [self.num_envs])


@dataclass
class Side:
    """One way to simulate, alone or with the learner.

    Attributes:
        work: makes some environment steps and returns how many.
        rates: environment steps a second, a number for each round.
        cpu: the processor's seconds for an environment step, likewise.
    """

    work: Callable[[], int]
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def round(self, seconds: float) -> None:
        """Work for at least ``seconds``."""
        begin, cpu, steps = time.perf_counter(), cpu_seconds(), 0
        while time.perf_counter() - begin < seconds:
            steps += self.work()
        self.rates.append(steps / (time.perf_counter() - begin))
        self.cpu.append((cpu_seconds() - cpu) / steps)


def cpu_seconds() -> float:
    """Return the processor's time of this process and of its children."""
    total = sum(os.times()[:2])
    for child in multiprocessing.active_children():
        user, system = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        total += (int(user) + int(system)) / TICKS
    return total


def run_of(task: str, num_envs: int, transitions: int) -> RunConfig:
    """Return the shipped run's config with other numbers of environments and steps."""
    steps = max(1, transitions // num_envs)
    overrides = [f"trainer.num_envs={num_envs}", f"trainer.buffer_size={steps}", "trainer.enable_eval=false"]
    return load_run_config(CONFIGS / TASKS[task] / "train_config_ppo.json", [*overrides, "trainer.device=cpu"])


def gymnasium_envs(task: str, num_envs: int, mode: str) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Return Gymnasium's vector environment, which resets in the step that ends an episode, as ours does."""
    kwargs = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return gym.make_vec(f"{task}-v5", num_envs, vectorization_mode=mode, vector_kwargs=kwargs)


def stepping(env: Steps, actions: list[Any], num_envs: int) -> Callable[[], int]:
    """Return work that steps environments once for each action."""

    def work() -> int:
        with torch_threads(1):
            for action in actions:
                env.step(action)
        return num_envs * len(actions)

    return work


def learning(run: RunConfig, env: Any) -> Callable[[], int]:
    """Return work that makes an iteration of the run's learner, as the trainer does."""
    device = torch.device("cpu")
    torch.manual_seed(0)
    policy, algorithm = build_learner(run, env, device)
    collector = SyncCollector(env, policy, device)
    steps = run.trainer.buffer_size
    threads = worthwhile_threads(policy, algorithm.batch_size, steps, torch.get_num_threads())

    def work() -> int:
        rollout = collector.collect(steps)
        with update_threads(policy, threads):
            algorithm.update(rollout)
        policy.update_normalizer(rollout["obs"][:, :-1])
        return int(env.num_envs) * steps

    return work


def measure(task: str, num_envs: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each way and kind of work."""
    run = run_of(task, num_envs, args.transitions)
    modes = ["sync"] + ["async"] * (num_envs <= args.most_processes)
    random = np.random.default_rng(0)
    space = gym.make(f"{task}-v5").action_space
    assert isinstance(space, spaces.Box)
    actions = [random.uniform(space.low, space.high, (num_envs, *space.shape)).astype(np.float32) for _ in range(10)]
    sides: dict[tuple[str, str], Side] = {}
    opened: list[Any] = []
    for mode in modes:  # before torch has threads, which a fork does not copy
        envs = gymnasium_envs(task, num_envs, mode)
        envs.reset(seed=0)
        opened.append(envs)
        sides["env", mode] = Side(stepping(envs, actions, num_envs))
        learner = GymnasiumEnvs(gymnasium_envs(task, num_envs, mode))
        opened.append(learner)
        sides["learn", mode] = Side(learning(run, learner))
    for kind in ("env", "learn"):
        env = build_env(run.env_id, run.env)
        env.reset(seed=0)
        opened.append(env)
        ours = stepping(env, [torch.from_numpy(action) for action in actions], num_envs)
        sides[kind, "ours"] = Side(ours if kind == "env" else learning(run, env))
    for _ in range(args.rounds):
        for side in sides.values():
            side.round(args.seconds)
    for env in opened:
        env.close()
    rows = []
    for (kind, way), side in sides.items():
        rate, cpu = statistics.median(side.rates), statistics.median(side.cpu)
        rows.append({"task": task, "num_envs": num_envs, "kind": kind, "way": way, "steps_per_s": rate, "cpu_s": cpu})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows of one task and number of environments, with how many times ours is faster."""
    for kind in ("env", "learn"):
        ours = next(row for row in rows if (row["kind"], row["way"]) == (kind, "ours"))
        for row in (row for row in rows if row["kind"] == kind):
            faster, less = ours["steps_per_s"] / row["steps_per_s"], row["cpu_s"] / ours["cpu_s"]
            print(
                f"{row['task']:12}{row['num_envs']:6}  {kind:6}{row['way']:6}{row['steps_per_s']:10.0f}"
                f"{1e6 * row['cpu_s']:9.1f}{faster:8.2f}{less:8.2f}",
                flush=True,
            )


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--num-envs", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--transitions", type=int, default=8192, help="of an iteration of the learner")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each way in a round, at least")
    parser.add_argument("--most-processes", type=int, default=256, help="of asynchronous environments")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*settotalmass")
    print(f"{'task':12}{'N':>6}  {'work':6}{'way':6}{'steps/s':>10}{'cpu us':>9}{'ours is':>8}{'by cpu':>8}")
    results: list[dict[str, Any]] = []
    for task in args.task:
        for num_envs in args.num_envs:
            rows = measure(task, num_envs, args)
            show(rows)
            results += rows
    print(json.dumps({"benchmark": "gymnasium_tasks", "cores": len(os.sched_getaffinity(0)), "results": results}))


if __name__ == "__main__":
    main()
