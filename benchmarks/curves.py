"""Learning curves of several seeds: trainings in processes of their own, and their plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.build import build_learner
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.agents.rl.trainer.trainer import Trainer

Point = dict[str, float]
"""Results of an evaluation, with ``step`` and ``seconds``, the time of the training until then."""
NAMES = {"ours": "this library", "sb3": "Stable-Baselines3"}
COLORS = {"ours": "C0", "sb3": "C1"}
"""Of the learners, in plots."""


def print_point(point: Point) -> None:
    """Print a point of a curve, in the form that ``run_child`` reads: ``step`` comes first."""
    print(json.dumps(point), flush=True)


class Curve:
    """Evaluates policies on the same episodes, and prints the points of a curve; a sink of our trainer's log.

    Attributes:
        every: iterations between two points.
        results: names of an evaluation's results, by the point's key.
    """

    name = "learning curve"

    def __init__(self, evaluator: Evaluator, every: int, steps_per_iteration: int, results: Mapping[str, str]) -> None:
        self.evaluator = evaluator
        self.every = every
        self.results = results
        self._steps = steps_per_iteration
        self._start = time.perf_counter()

    def after(self, iteration: int, policy: Any) -> None:
        """Evaluate the policy if this iteration, from 1, is due."""
        if iteration % self.every == 0:
            result = self.evaluator.run(policy, "")
            scalars = {f"eval/{name}": getattr(result, name) for name in self.results.values()}
            self.write(scalars, iteration * self._steps)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Print the point of an evaluation."""
        if {f"eval/{name}" for name in self.results.values()} <= set(scalars):
            point = {"step": step, "seconds": round(time.perf_counter() - self._start - self.evaluator.seconds, 1)}
            print_point(point | {key: round(scalars[f"eval/{name}"], 4) for key, name in self.results.items()})

    def close(self) -> None:
        """Close nothing."""


def train_ours(run: RunConfig, env: Any, curve: Curve) -> None:
    """Train with this library."""
    cfg, cpu = run.trainer, torch.device("cpu")
    policy, algorithm = build_learner(run, env, cpu)
    with TemporaryDirectory() as folder:
        trainer = Trainer(
            policy,
            env,
            algorithm,
            cfg.buffer_size,
            eval_freq=f"{curve.every} it",
            save_freq=f"{cfg.iterations} it",
            checkpoint_dir=folder,
            config={},
            log=RunLog([curve]),
        )
        trainer.evaluator = curve.evaluator
        trainer.train(cfg.iterations * cfg.buffer_size * env.num_envs)


def run_child(module: str, arguments: Sequence[str]) -> list[Point]:
    """Run ``python -m module arguments`` with one thread, and return the points that it prints.

    Raises:
        SystemExit: it failed; the message has its output.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"step"')]


def plot_runs(axis: Any, runs: Sequence[Sequence[Point]], key: str, learner: str) -> None:
    """Plot the median and the range of a point's ``key`` over the steps of several runs."""
    steps = [point["step"] for point in runs[0]]
    values = np.array([[point[key] for point in points] for points in runs])
    label = f"{NAMES[learner]}, {len(runs)} seed{'s' * (len(runs) > 1)}"
    axis.plot(steps, np.median(values, axis=0), label=label, color=COLORS[learner])
    axis.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=COLORS[learner])
