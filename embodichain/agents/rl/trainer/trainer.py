"""The training loop: collect, update, log, evaluate, save."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from embodichain import __version__
from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer import num_env_steps
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.collector import BaseCollector, SyncCollector
from embodichain.agents.rl.config.schedule import Schedule
from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.distributed import Ranks, get_ranks
from embodichain.agents.rl.distributed.shards import (
    bundle_folder,
    check_in_step,
    mean_over_ranks,
    own_part,
    with_all_parts,
)
from embodichain.agents.rl.distributed.stop import stopping_together
from embodichain.agents.rl.metrics.sinks import ProgressDisplay, RunLog, ScalarWriter, make_progress
from embodichain.agents.rl.models import Policy, load_policy_state
from embodichain.agents.rl.nan_guard.bundle import spaces_to_data
from embodichain.agents.rl.nan_guard.guard import Guards
from embodichain.agents.rl.trainer.evaluation import EVAL_SEED_OFFSET, EvalEnv, Evaluation, Evaluator
from embodichain.agents.rl.trainer.precision import update_precision
from embodichain.agents.rl.trainer.script_run import ScriptParts, ScriptRun, check_agreement
from embodichain.agents.rl.trainer.step_stats import EpisodeStats
from embodichain.agents.rl.trainer.threads import update_threads, warn_of_other_threads, worthwhile_threads
from embodichain.agents.rl.trainer.viewer import NoViewer, Viewer
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.utils import logger
from embodichain.utils.printing import printing_may_fail
from embodichain.utils.state import freeze, generators_state, load_generators_state, thaw
from embodichain.utils.threads import torch_threads

__all__ = ["Trainer", "UnsavedTrainingError"]

NEVER = f"{10**9} it"
WARM_UP_STEPS = 16  # of each environment, from which an input normaliser gets its first statistics


class UnsavedTrainingError(RuntimeError):
    """A training came to its end, but its result is not on the disk."""


class Trainer:
    """Trains a policy in an environment.

    A checkpoint holds the state between two iterations, of which a copy is kept in memory: an iteration that is
    interrupted, or fails, leaves nothing in it, and a training that is resumed goes on bit for bit (on the CPU).

    Where several processes share the training (see ``agents/rl/distributed``), each has its own environments, all make
    the same updates, and rank 0 logs and saves.

    Attributes:
        cfg: the settings.
        config: the resolved config, which the checkpoints keep.
        evaluator: evaluates the policy, if anything does.
        collector: fills the rollouts.
        global_step: environment steps so far, over all environments.
        train_seconds: time spent collecting and updating so far.
        last_evaluation: the latest one, if any.
        last_checkpoint: path of the latest one, if any.
        viewer: shows the training.
    """

    def __init__(
        self,
        policy: Policy,
        env: VecEnv,
        algorithm: BaseAlgorithm,
        buffer_size: int,
        batch_size: int | None = None,
        writer: ScalarWriter | None = None,
        eval_freq: int | str = 0,
        save_freq: int | str = 50_000,
        checkpoint_dir: str | Path = "checkpoints",
        exp_name: str = "generic_exp",
        use_wandb: bool = False,
        eval_env: EvalEnv | None = None,
        event_cfg: Mapping[str, Any] | None = None,
        eval_event_cfg: Mapping[str, Any] | None = None,
        num_eval_episodes: int = 5,
        distributed: bool = False,
        rank: int = 0,
        world_size: int = 1,
        *,
        cfg: TrainerCfg | None = None,
        config: dict[str, Any] | None = None,
        log: RunLog | None = None,
        check_stop: Callable[[], None] = lambda: None,
        collector: BaseCollector | None = None,
        viewer: Viewer | None = None,
    ) -> None:
        """Set up.

        Args:
            policy: the policy.
            env: the environments.
            algorithm: improves it.
            buffer_size: steps of each environment in one rollout; with chunks of actions, at most so many.
            batch_size: transitions of a minibatch; the algorithm's own counts, and a warning says where this differs.
            writer: a ``SummaryWriter`` or the like, which gets all scalars; the caller closes it.
            eval_freq: environment steps between evaluations, or ``"100 it"``; 0: none.
            save_freq: the same for checkpoints.
            checkpoint_dir: where they go; it is made. What else a run writes goes into the run's folder: the parent
                where this is named ``checkpoints``, else this one.
            exp_name: begins the checkpoints' names.
            use_wandb: log to Weights & Biases, to the run that ``wandb.init`` has begun or else to a new one.
            eval_env: the environments of the evaluation.
            event_cfg: events by name (``EventCfg``), to be added to ``env``.
            eval_event_cfg: the same for ``eval_env``.
            num_eval_episodes: episodes of one evaluation, over all its environments: the same ones each time.
            distributed: this is one of several processes, which have met (see ``docs/distributed.md``).
            rank: its number.
            world_size: how many there are.
            cfg: the settings of the config's block ``trainer`` that are not given here; None: the defaults.
            config: the resolved config, kept in the checkpoints; None: as the parts themselves tell it.
            log: where scalars go; None: to ``writer``, to W&B, and to ``metrics.jsonl`` in the run's folder.
            check_stop: called after every step of an environment and every update; raises what ends the training.
            collector: collects with the policy in ``env``; None: a ``SyncCollector``.
            viewer: shows the training; told of each step only by a ``SyncCollector``.

        Raises:
            ConfigError: (a ValueError) something does not fit together; the message names it.
        """
        check_agreement(algorithm, batch_size, distributed, rank, world_size)
        checkpoint_dir = Path(checkpoint_dir)
        checkpoint_dir.mkdir(parents=True, exist_ok=True)
        run_folder = checkpoint_dir.parent if checkpoint_dir.name == "checkpoints" else checkpoint_dir
        cfg = cfg or TrainerCfg(gym_config={})
        self._script: ScriptRun | None = None
        if config is None:
            given: dict[str, Any] = {
                "exp_name": exp_name,
                "device": str(algorithm.device),
                "num_envs": env.num_envs,
                "buffer_size": buffer_size,
                "save_freq": save_freq,
                "use_wandb": use_wandb,
                "num_eval_episodes": num_eval_episodes,
                "distributed": distributed,
            }
            if eval_env is not None and eval_freq:
                given |= {"enable_eval": True, "eval_freq": eval_freq, "num_eval_envs": eval_env.num_envs}
            parts = ScriptParts(policy, algorithm, env, eval_env, event_cfg or {}, eval_event_cfg or {})
            self._script = ScriptRun(run_folder, parts, cfg, given, writer)
            cfg, config = self._script.cfg, self._script.config
        self.cfg = cfg
        self.config = config
        self.policy = policy
        self.env = env
        self.algorithm = algorithm
        self.log = log or RunLog()
        self.evaluator: Evaluator | None = None
        # A script with several processes has evaluation environments in rank 0 alone.
        self._main_evaluates = self._script is not None and distributed and bool(eval_freq)
        if eval_env is not None and eval_freq:
            seed, players = cfg.seed + EVAL_SEED_OFFSET, Ranks() if self._main_evaluates else get_ranks()
            videos = run_folder / "videos"
            self.evaluator = Evaluator(eval_env, num_eval_episodes, seed, algorithm.device, videos, players)
        self.viewer = viewer or NoViewer()
        self.global_step = 0
        self.train_seconds = 0.0
        self.last_evaluation: Evaluation | None = None
        self.last_checkpoint: Path | None = None
        self.checkpoints = CheckpointFolder(checkpoint_dir, exp_name, cfg.keep_last)
        self._iteration = 0
        self._best = (0.0, -math.inf)  # success rate and return of the best evaluation
        self._best_checkpoint: str | None = None  # name of the file of that time
        self._finished: dict[str, Any] | None = None  # the state after the last iteration that was finished
        self._saved_iteration = 0
        self._save_problem = ""
        self._saving = threading.Lock()  # by the training or, where it hangs, by the thread that watches for signals
        self._ranks = get_ranks()
        self._stop = check_stop
        self.collector = collector or SyncCollector(env, policy, algorithm.device, self._on_step)
        self.collector.keeps_final_obs = algorithm.reads_final_obs
        self._stats = EpisodeStats(env.num_envs, self.collector.num_env_sets)
        self._threads = cfg.torch_threads or worthwhile_threads(
            policy, algorithm.batch_size, buffer_size, torch.get_num_threads()
        )
        self._guards = Guards(
            bundle_folder(run_folder, self._ranks),
            policy,
            algorithm,
            cfg.max_skipped_updates,
            {"config": config, "spaces": spaces_to_data(env), "num_threads": self._threads},
        )
        self._steps_per_iteration = buffer_size * env.num_envs * self._ranks.world_size
        self._num_decisions = buffer_size // policy.chunk_length
        self._eval_schedule = Schedule(eval_freq or NEVER, "trainer.eval_freq")
        self._save_schedule = Schedule(save_freq, "trainer.save_freq")

    def train(self, total_timesteps: int) -> None:
        """Train until ``global_step`` has reached ``total_timesteps``; the last iteration evaluates and saves.

        With chunks of actions, of which not all are executed, it makes as many iterations, which have fewer steps.

        Where the policy normalises its inputs, the first statistics come from a few steps that are not learned from and
        not counted: an update on raw inputs is largely undone when the inputs change their scale after it.

        That something cannot be printed meanwhile, by whomever, ends nothing.

        Raises:
            UnsavedTrainingError: the last checkpoint cannot be written. That any other cannot be is a warning.
        """
        iterations = -(-total_timesteps // self._steps_per_iteration)
        script = self._script.training(self.log, iterations, self._iteration) if self._script else nullcontext()
        # One thread but in the updates: what else is computed is small.
        with printing_may_fail(), script, torch_threads(1):
            self._train(iterations)
        if self._saved_iteration < self._iteration:
            raise UnsavedTrainingError(
                f"the training is finished, but its last checkpoint could not be written: {self._save_problem}. "
                f"The last one that is whole: {self.whole_checkpoint() or 'none'}"
            )

    def _train(self, iterations: int) -> None:
        progress = make_progress(iterations, self._iteration, self._ranks.is_main, self.config)
        try:
            if self._iteration == 0 and self.policy.has_normalizer:
                self._warm_up()
            self._finished = freeze(self.state_dict())
            self.collector.reset_every_rollout = self.algorithm.reset_every_rollout
            self.collector.start()
            while self._iteration < iterations:
                self.algorithm.set_progress(self._iteration / iterations)
                scalars = self._iterate()
                with stopping_together(self._ranks):
                    self._check_stop()
                is_last, is_best = self._iteration == iterations, False
                if self._eval_schedule.is_due(self.global_step, self._iteration) or is_last:
                    figures = self._evaluate(progress)
                    is_best = self._is_best(figures)
                    scalars |= figures
                self.log.write(scalars, self.global_step)
                progress.update(self._iteration, self.log.last)
                self.viewer.on_iteration(self._iteration, iterations, self.global_step, self.log.last)
                self._finished = freeze(self.state_dict())
                self._ranks.settle()
                if self._save_schedule.is_due(self.global_step, self._iteration) or is_best or is_last:
                    self._try_to_save(self._finished)
        finally:
            progress.close()
            self.collector.stop()

    def save_checkpoint(self) -> Path:
        """Write the state after the last finished iteration to ``<exp_name>_step_<its step>.pt``; return its path."""
        return self._save(self._finished or freeze(self.state_dict()))

    def rescue(self, is_together: bool = True) -> Path | None:
        """Save what finished iterations achieved since the last checkpoint.

        Args:
            is_together: all ranks do this. Else, as when one has failed, rank 0 saves what it has by itself: all but
                the others' environments.

        Returns:
            Its path; None where there was nothing to save, or where it could not be written, which a warning says.
        """
        if self._finished is None or self._finished["iteration"] <= self._saved_iteration:
            return None
        return self._try_to_save(self._finished, is_together)

    def rescue_alone(self) -> Path | None:
        """Save, from another thread than the training's, what finished iterations achieved since the last checkpoint.

        Where the training is about to save, that is waited for.

        Returns:
            As :meth:`rescue`.
        """
        with self._saving:
            pass
        return self.rescue(is_together=False)

    def whole_checkpoint(self) -> Path | None:
        """Return the path of the last checkpoint that is on the disk, if any: others may have deleted files."""
        path = self.last_checkpoint
        return path if path is not None and path.exists() else self.checkpoints.newest()

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next iterations depend on, as plain data; nothing is copied."""
        evaluation = None
        if self.last_evaluation is not None:
            evaluation = asdict(self.last_evaluation) | {"videos": list(map(str, self.last_evaluation.videos))}
        return {
            "code_version": __version__,
            "config": self.config,
            "global_step": self.global_step,
            "iteration": self._iteration,
            "train_seconds": self.train_seconds,
            "best_success": self._best[0],
            "best_reward": self._best[1],
            "best_checkpoint": self._best_checkpoint,
            "evaluation": evaluation,
            "num_threads": self._threads,
            "policy": self.policy.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "generators": generators_state(),
            "statistics": self._stats.state_dict(),
            "collector": self.collector.state_dict(),
            "env": self.collector.env_state_dict(),
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds, on as many ranks or on others; then environments begin new episodes."""
        own = own_part(content, self._ranks)
        state = thaw(content | (own or {}))
        self.global_step, self._iteration = state["global_step"], state["iteration"]
        self.train_seconds = state["train_seconds"]
        # Checkpoints from before they were kept have no return, and no name.
        self._best = (state["best_success"], state.get("best_reward", -math.inf))
        self._best_checkpoint = state.get("best_checkpoint")
        if state["evaluation"] is not None:
            videos = list(map(Path, state["evaluation"].pop("videos")))
            self.last_evaluation = Evaluation(**state["evaluation"], videos=videos)
        load_policy_state(self.policy, state["policy"], "the checkpoint")
        self.algorithm.load_state_dict(state["algorithm"])
        if own is not None:
            self._load_own_part(state)
        else:
            # Other numbers than those that the run began with.
            torch.manual_seed(torch.initial_seed() + self.global_step)
        for schedule in (self._eval_schedule, self._save_schedule):
            schedule.start_from(self.global_step, self._iteration)
        self._saved_iteration = self._iteration
        if self._ranks.is_main and self.algorithm.device.type == "cpu":
            # Checkpoints from before it was kept do not say.
            warn_of_other_threads(state.get("num_threads", self._threads), self._threads)

    def _load_own_part(self, state: dict[str, Any]) -> None:
        self._stats.load_state_dict(state["statistics"])
        if state["env"] is not None and self.collector.load_env_state_dict(state["env"]):
            self.collector.load_state_dict(state["collector"])
        else:
            self._stats.drop_unfinished()
        load_generators_state(state["generators"])

    def _try_to_save(self, content: dict[str, Any], is_together: bool = True) -> Path | None:
        """Save; where that fails, say so and return None: there may be room again when the next one is due."""
        try:
            return self._save(content, is_together)
        except OSError as error:
            self._save_problem = str(error)
            logger.log_warning(
                f"the checkpoint of step {content['global_step']} could not be written: {error}. The last one that is "
                f"whole: {self.whole_checkpoint() or 'none'}"
            )
            return None

    def _save(self, content: dict[str, Any], is_together: bool = True) -> Path:
        ranks, step = self._ranks, content["global_step"]
        content = with_all_parts(content, ranks, is_together)
        with self._saving:
            if ranks.is_main:
                with ranks.busy():
                    self.checkpoints.save(content, step)
            self.last_checkpoint = self.checkpoints.path_of(step)
            self._saved_iteration = content["iteration"]
        return self.last_checkpoint

    def _check_stop(self) -> None:
        self._ranks.step()
        self._stop()

    def _on_step(self, step: TensorDict, info: dict[str, Any]) -> None:
        self._check_stop()
        self.viewer.on_step(self._stop)

    def _is_best(self, figures: dict[str, float]) -> bool:
        """Return whether an evaluation is above all before it, in success or else in return, and remember it then."""
        if not figures:
            return False
        reached = (figures["eval/success_rate"], figures["eval/avg_reward"])
        if not reached > self._best:  # nor is a return that is no number
            return False
        self._best = reached
        self._best_checkpoint = self.checkpoints.path_of(self.global_step).name
        return True

    def _warm_up(self) -> None:
        rollout = self._collect(WARM_UP_STEPS)
        self._stats.finish_rollout(rollout)
        self.policy.update_normalizer(rollout["obs"])
        self._guards.end_warm_up()

    def _collect(self, num_steps: int) -> TensorDict:
        """Collect a rollout; where one rank is stopped in it, none goes on to the update."""
        with stopping_together(self._ranks):
            rollout = self.collector.collect(num_steps)
        return rollout

    def _clock(self) -> float:
        """Return the time that counts, s: not that for which the training was paused."""
        return time.perf_counter() - self.viewer.paused_seconds

    def _iterate(self) -> dict[str, float]:
        """Collect a rollout and learn from it; return what is to be logged."""
        start = self._clock()
        if self.algorithm.reset_every_rollout:
            self._stats.drop_unfinished()
        rollout = self._collect(self._num_decisions)
        collected = self._clock()
        self._guards.begin_update()
        with (
            update_threads(self.policy, self._threads),
            update_precision(self.cfg.precision, self.algorithm.device),
        ):
            losses = self.algorithm.update(rollout)
        self.policy.update_normalizer(rollout["obs"][:, :-1])
        losses = mean_over_ranks(losses, self._ranks)
        check_in_step(self.policy, self._ranks)
        updated = self._clock()
        statistics = self._stats.finish_rollout(rollout)
        end = self._clock()
        seconds = end - start
        self._iteration += 1
        num_steps = self._steps_per_iteration
        if self.policy.chunk_length > 1:  # not all that were chosen are executed
            num_steps = int(self._ranks.sum(torch.tensor(num_env_steps(rollout))))
        self.global_step += num_steps
        self.train_seconds += seconds
        figures = {
            **{f"train/{name}": value for name, value in losses.items()},
            **statistics,
            **self.collector.scalars(),
            "charts/SPS": num_steps / seconds,
            "time/collect_seconds": collected - start,
            "time/update_seconds": updated - collected,
            "time/statistics_seconds": end - updated,
            "time/train_seconds": self.train_seconds,
        }
        assert self._finished is not None  # the state after the iteration before this one, or before the first
        return figures | self._guards.end_iteration(rollout, self._finished, figures, self.global_step)

    def _evaluate(self, progress: ProgressDisplay) -> dict[str, float]:
        if self._main_evaluates:
            return self._ranks.run_on_main(lambda: self._run_evaluation(progress))
        return self._run_evaluation(progress)

    def _run_evaluation(self, progress: ProgressDisplay) -> dict[str, float]:
        if self.evaluator is None:
            return {}
        progress.evaluating(self.evaluator.num_episodes)
        with self.collector.paused():
            result = self.evaluator.run(self.policy, f"step_{self.global_step}", self._check_stop)
        self.last_evaluation = result
        return {
            "eval/success_rate": result.success_rate,
            "eval/avg_reward": result.avg_reward,
            "eval/avg_length": result.avg_length,
        }
