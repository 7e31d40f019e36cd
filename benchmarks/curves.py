"""Learning curves of several seeds: trainings in processes of their own, and their plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from embodichain.agents.rl.build import build_learner, provide
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.trainer.evaluation import Evaluation, Evaluator
from embodichain.agents.rl.trainer.trainer import Trainer

Point = dict[str, float]
"""Results of an evaluation, with ``step`` and ``seconds``, the time of the training until then."""
EVAL_SEED = 1_000_004
NAMES = {"ours": "this library", "sb3": "Stable-Baselines3"}
COLORS = {"ours": "C0", "sb3": "C1"}
"""Of the learners, in plots."""


class Acting(nn.Module):
    """A policy for an ``Evaluator``; ``act`` returns the actions [N, A] of flat observations [N, O]."""

    state_size, obs_keys, chunk_length, has_normalizer = 0, (), 1, False

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._act = act

    @torch.no_grad()
    def get_action(self, td: Any, deterministic: bool = False) -> dict[str, torch.Tensor]:
        """Return the ``action`` [N, A] for ``obs`` [N, O]."""
        return {"action": self._act(td["obs"])}


class Curve(Evaluator):
    """Evaluates policies on the same episodes, and prints the point of each evaluation, labelled ``step_<step>``.

    The time of the training begins with this object, and is without the evaluations.

    Args:
        results: names of an evaluation's results, by the point's key.
        now: returns the time, s.
    """

    def __init__(
        self, env: Any, num_episodes: int, results: Mapping[str, str], now: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(env, num_episodes, EVAL_SEED, torch.device("cpu"), Path("unused"))
        self._results, self._now = results, now
        self._excluded = now()  # time that is not the training's, s

    def run(self, policy: Policy, label: str, *args: Any, **kwargs: Any) -> Evaluation:
        """Evaluate."""
        start = self._now()
        result = super().run(policy, label, *args, **kwargs)
        point = {"step": int(label.removeprefix("step_")), "seconds": round(start - self._excluded, 3)}
        point |= {key: round(getattr(result, name), 4) for key, name in self._results.items()}
        print(json.dumps(point), flush=True)
        self._excluded += self._now() - start
        return result


def train_ours(run: RunConfig, env: Any, curve: Curve, eval_freq: int | str, steps: int) -> None:
    """Train with this library for a number of environment steps."""
    policy, algorithm = build_learner(run, env, torch.device("cpu"))
    with TemporaryDirectory() as folder:
        provide(algorithm, run, env, Path(folder))
        trainer = Trainer(
            policy,
            env,
            algorithm,
            run.trainer.buffer_size,
            eval_freq=eval_freq,
            save_freq="1000000 it",
            checkpoint_dir=folder,
            cfg=run.trainer,
            config={},
            log=RunLog(),
        )
        trainer.evaluator = curve
        trainer.train(steps)


def run_child(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None
) -> list[Point]:
    """Run ``python -m module arguments``, and return the points of a curve that it prints.

    Args:
        environment: its environment variables; None: ours, with one thread.
        folder: its working directory; None: ours.

    Raises:
        SystemExit: it failed; the message has its output.
    """
    environment = environment or os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"step"')]


def plot_runs(axis: Any, runs: Sequence[Sequence[Point]], key: str, name: str, color: str | None = None) -> None:
    """Plot the median and the range of a point's ``key`` over the steps of several runs."""
    steps = [point["step"] for point in runs[0]]
    values = np.array([[point[key] for point in points] for points in runs])
    label = f"{name}, {len(runs)} seed{'s' * (len(runs) > 1)}"
    (line,) = axis.plot(steps, np.median(values, axis=0), label=label, color=color)
    axis.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color())
