"""The training loop: collect, update, log, evaluate, save."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain import __version__
from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.utils.checkpoint import save_checkpoint
from embodichain.agents.rl.utils.episode_stats import EpisodeStats
from embodichain.agents.rl.utils.evaluation import Evaluation, Evaluator
from embodichain.agents.rl.utils.run_log import RunLog, make_progress
from embodichain.agents.rl.utils.schedule import Schedule
from embodichain.agents.rl.vec_env import VecEnv

__all__ = ["Trainer", "TrainerOptions"]

WARM_UP_STEPS = 16  # of each environment, from which an input normaliser gets its first statistics


@dataclass(frozen=True)
class TrainerOptions:
    """What the trainer needs to know of the config.

    Attributes:
        exp_name: begins the checkpoints' names.
        buffer_size: steps of each environment in one rollout.
        eval_freq: environment steps between evaluations, or ``"100 it"``.
        save_freq: the same for checkpoints.
        checkpoint_dir: where they go; it is there.
        config: the resolved config, to be kept in the checkpoints.
    """

    exp_name: str
    buffer_size: int
    eval_freq: int | str
    save_freq: int | str
    checkpoint_dir: Path
    config: dict[str, Any]


class Trainer:
    """Trains a policy in an environment.

    Attributes:
        global_step: environment steps so far, over all environments.
        train_seconds: time spent collecting and updating so far.
        last_evaluation: the latest one, if any.
        last_checkpoint: path of the latest one, if any.
    """

    def __init__(
        self,
        options: TrainerOptions,
        env: VecEnv,
        policy: Policy,
        algorithm: BaseAlgorithm,
        log: RunLog,
        evaluator: Evaluator | None = None,
    ) -> None:
        self.options = options
        self.policy = policy
        self.algorithm = algorithm
        self.log = log
        self.evaluator = evaluator
        self.global_step = 0
        self.train_seconds = 0.0
        self.last_evaluation: Evaluation | None = None
        self.last_checkpoint: Path | None = None
        self._iteration = 0
        self._stats = EpisodeStats(env.num_envs)
        self._collector = SyncCollector(env, policy, algorithm.device, self._stats.on_step)
        self._steps_per_iteration = options.buffer_size * env.num_envs
        self._eval_schedule = Schedule(options.eval_freq, "trainer.eval_freq")
        self._save_schedule = Schedule(options.save_freq, "trainer.save_freq")

    def train(self, total_timesteps: int) -> None:
        """Train until ``global_step`` has reached ``total_timesteps``; the last iteration evaluates and saves.

        Where the policy normalises its inputs, the first statistics come from a few steps that are not learned from and
        not counted: an update on raw inputs is largely undone when the inputs change their scale after it.
        """
        iterations = -(-total_timesteps // self._steps_per_iteration)
        progress = make_progress(iterations)
        try:
            if self._iteration == 0 and self.policy.has_normalizer:
                self._warm_up()
            while self._iteration < iterations:
                self.algorithm.set_progress(self._iteration / iterations)
                scalars = self._iterate()
                is_last = self._iteration == iterations
                if self._eval_schedule.is_due(self.global_step, self._iteration) or is_last:
                    scalars |= self._evaluate()
                self.log.write(scalars, self.global_step)
                progress.update(self._iteration, self.log.last)
                if self._save_schedule.is_due(self.global_step, self._iteration) or is_last:
                    self.save_checkpoint()
        finally:
            progress.close()

    def save_checkpoint(self) -> Path:
        """Write policy, optimiser and counters to ``<exp_name>_step_<global_step>.pt``, and return its path."""
        path = self.options.checkpoint_dir / f"{self.options.exp_name}_step_{self.global_step}.pt"
        content = {
            "code_version": __version__,
            "config": self.options.config,
            "global_step": self.global_step,
            "iteration": self._iteration,
            "train_seconds": self.train_seconds,
            "policy": self.policy.state_dict(),
            "algorithm": self.algorithm.state_dict(),
        }
        save_checkpoint(path, content)
        self.last_checkpoint = path
        return path

    def _warm_up(self) -> None:
        rollout = self._collector.collect(WARM_UP_STEPS)
        self._stats.finish_rollout(rollout)
        self.policy.update_normalizer(rollout["obs"])

    def _iterate(self) -> dict[str, float]:
        """Collect a rollout and learn from it; return what is to be logged."""
        start = time.perf_counter()
        if self.algorithm.reset_every_rollout:
            self._collector.reset()
            self._stats.drop_unfinished()
        rollout = self._collector.collect(self.options.buffer_size)
        collected = time.perf_counter()
        losses = self.algorithm.update(rollout)
        self.policy.update_normalizer(rollout["obs"][:, :-1])
        updated = time.perf_counter()
        statistics = self._stats.finish_rollout(rollout)
        end = time.perf_counter()
        seconds = end - start
        self._iteration += 1
        self.global_step += self._steps_per_iteration
        self.train_seconds += seconds
        return {
            **{f"train/{name}": value for name, value in losses.items()},
            **statistics,
            "charts/SPS": self._steps_per_iteration / seconds,
            "time/collect_seconds": collected - start,
            "time/update_seconds": updated - collected,
            "time/statistics_seconds": end - updated,
            "time/train_seconds": self.train_seconds,
        }

    def _evaluate(self) -> dict[str, float]:
        if self.evaluator is None:
            return {}
        result = self.evaluator.run(self.policy, f"step_{self.global_step}")
        self.last_evaluation = result
        return {
            "eval/success_rate": result.success_rate,
            "eval/avg_reward": result.avg_reward,
            "eval/avg_length": result.avg_length,
        }
