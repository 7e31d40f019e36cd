"""One learner in a separate process: build the environment, train for some iterations, report their times."""

from __future__ import annotations

import dataclasses
import importlib
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import floors
from benchmarks.peers.clock import Clock, Iteration
from benchmarks.peers.setting import Setting, load_setting
from embodichain.agents.rl.build import build_envs
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.system import limit_openmp_spinning

ROOT = Path(__file__).resolve().parents[2]

LEARNERS = {
    "ours": "ours",
    "rsl_rl": "with_rsl_rl",
    "skrl": "with_skrl",
    "sb3": "with_sb3",
    "torchrl": "with_torchrl",
    "cleanrl": "cleanrl_loop",
}
"""Module of each learner; it has ``train(setting, env, clock, iterations)``."""

FLOORS = "floors"


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one process.

    Attributes:
        task: one of ``setting.TASKS``.
        learner: one of ``LEARNERS``, or ``FLOORS``.
        warm_up: iterations that are not counted.
        iterations: counted iterations.
        cpu_time: measure CPU seconds instead of wall time.
        overrides: overrides of the training config.
    """

    task: str
    learner: str
    warm_up: int
    iterations: int
    cpu_time: bool
    overrides: Sequence[str]


def process_environment(learner: str, threads: int) -> dict[str, str]:
    """Return the environment variables of a learner's process.

    Each learner has the OpenMP of its users: our commands let idle threads sleep sooner than the default, which is
    faster on a busy machine and slower on an idle one.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))} | own
    if learner == "ours":
        limit_openmp_spinning(environment)
    return environment


def run_job(job: Job, folder: Path) -> dict[str, Any]:
    """Run a job, with ``folder`` as working directory, where logs go.

    Raises:
        RuntimeError: the learner made another number of iterations or optimizer steps.
    """
    setting = load_setting(job.task, job.overrides)
    torch.manual_seed(setting.seed)
    np.random.seed(setting.seed)  # noqa: NPY002 (what libraries draw from)
    env, _ = build_envs(setting.run)
    now = time.process_time if job.cpu_time else time.perf_counter
    try:
        with chdir(folder):
            if job.learner == FLOORS:
                assert isinstance(env, EmbodiedEnv)  # it is stepped in this process
                return floors.measure(job.task, setting, env, job.warm_up, job.iterations, now)
            module = importlib.import_module(f"benchmarks.peers.{LEARNERS[job.learner]}")
            with Clock(now) as clock:
                clock.watch(env)
                module.train(setting, env, clock, job.warm_up + job.iterations)
    finally:
        env.close()
    check_work(clock.iterations, setting, job)
    return summarise(clock.iterations, job.warm_up)


def check_work(iterations: Sequence[Iteration], setting: Setting, job: Job) -> None:
    """Check the number of iterations and optimizer steps against the setting."""
    made = [iteration.gradient_steps for iteration in iterations]
    if made != [setting.gradient_steps] * (job.warm_up + job.iterations):
        raise RuntimeError(
            f"{job.learner}: asked for {job.warm_up + job.iterations} iterations of {setting.gradient_steps} gradient "
            f"steps, made {made}"
        )


def summarise(iterations: Sequence[Iteration], warm_up: int) -> dict[str, Any]:
    """Return the median seconds of the counted iterations and of each part of them, and the returns of all."""
    counted = iterations[warm_up:]
    medians: dict[str, Any] = {
        name: statistics.median(getattr(iteration, name) for iteration in counted)
        for name in ("seconds", "env_step", "policy", "update")
    }
    return medians | {"threads": counted[-1].threads, "returns": [iteration.returns for iteration in iterations]}
