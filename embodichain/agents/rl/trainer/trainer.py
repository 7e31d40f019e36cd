"""The training loop: collect, update, log, evaluate, save."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import nn

from embodichain import __version__
from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer.layout import num_env_steps
from embodichain.agents.rl.buffer.rollout_buffer import check_sequences, chunk_problems
from embodichain.agents.rl.checkpoint.files import CheckpointFolder
from embodichain.agents.rl.collector import BaseCollector, SyncCollector
from embodichain.agents.rl.config.trainer_cfg import Schedule, TrainerCfg
from embodichain.agents.rl.distributed.process_group import ProcessGroup, get_process_group, stopping_together
from embodichain.agents.rl.metrics.panel import ProgressDisplay, make_progress
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy, load_policy_state
from embodichain.agents.rl.nan_guard import NanGuard
from embodichain.agents.rl.trainer.evaluation import EVAL_SEED_OFFSET, Evaluation, Evaluator
from embodichain.agents.rl.trainer.saving import Saver, own_part
from embodichain.agents.rl.trainer.script_run import ScriptParts, ScriptRun, check_agreement
from embodichain.agents.rl.trainer.step_stats import EpisodeStats, clipped_share
from embodichain.agents.rl.trainer.viewer import Viewer
from embodichain.agents.rl.vec_env import EvalEnv, VecEnv, knows_success
from embodichain.utils import CommandFailedError, ConfigError, logger, raise_problems
from embodichain.utils.border import printing_may_fail
from embodichain.utils.device import torch_threads, warn_of_spinning_threads
from embodichain.utils.profiling import section
from embodichain.utils.state import freeze, generators_state, load_generators_state, seed_generators, thaw

WORK_OF_A_THREAD = 32e6
"""Floating-point operations of a matrix product that repay a thread's being woken, measured on two cores."""
NEVER = f"{10**9} it"
WARM_UP_STEPS = 16  # of each environment, from which an input normaliser gets its first statistics


class UnsavedTrainingError(CommandFailedError):
    """The training is finished, but its last checkpoint could not be written."""


class Trainer:
    """Trains a policy in an environment.

    A checkpoint holds the state between two iterations, of which a copy is kept in memory: an iteration that is
    interrupted, or fails, leaves nothing in it, and a training that is resumed continues bit for bit (on the CPU).

    Where several processes share the training (see ``agents/rl/distributed``), each has its own environments, all make
    the same updates, and rank 0 logs and saves.

    Attributes:
        cfg: the settings.
        config: the resolved config, which the checkpoints keep.
        evaluator: None without ``eval_env`` or ``eval_freq``.
        saver: writer of the checkpoints.
        global_step: environment steps so far, over all environments; in behaviour cloning the frames learned from.
        steps_per_iteration: steps of ``global_step``.
        train_seconds: time spent collecting and updating so far, s.
        last_evaluation: None before the first one.
    """

    def __init__(
        self,
        policy: Policy,
        env: VecEnv,
        algorithm: BaseAlgorithm,
        buffer_size: int,
        batch_size: int | None = None,
        writer: Any = None,
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
            buffer_size: T, steps of each environment in one rollout; a multiple of the policy's ``chunk_length``.
            batch_size: transitions of a minibatch; the algorithm's own value counts, with a warning if this differs.
            writer: a ``SummaryWriter`` or the like, which gets all scalars; the caller closes it.
            eval_freq: environment steps between evaluations, or ``"100 it"``; 0: none.
            save_freq: environment steps between checkpoints, or ``"100 it"``.
            checkpoint_dir: created if missing. Other files of the run go into the run's folder: the parent of a
                folder ``checkpoints``, else this one.
            exp_name: prefix of the checkpoints' names.
            use_wandb: log to Weights & Biases, to the run that ``wandb.init`` has begun or else to a new one.
            event_cfg: events by name (``EventCfg``), to be added to ``env``.
            eval_event_cfg: events for ``eval_env``, likewise.
            num_eval_episodes: episodes of one evaluation, over all its environments: the same ones each time.
            distributed: this is process ``rank`` of ``world_size``, which have met (see ``docs/distributed.md``).
            cfg: the settings of the config's block ``trainer`` that are not given here; None: the defaults.
            config: the resolved config for the checkpoints; None: described from the parts.
            log: destination of scalars; None: ``writer``, W&B, and ``metrics.jsonl`` in the run's folder.
            check_stop: function called after every environment step and update; raises to end the training.
            collector: not running yet, and reset in a script; None: a ``SyncCollector``.
            viewer: updated at each step only with a ``SyncCollector``.
        """
        warn_of_spinning_threads()
        check_agreement(algorithm, batch_size, distributed, rank, world_size)
        checkpoint_dir = Path(checkpoint_dir)
        checkpoint_dir.mkdir(parents=True, exist_ok=True)
        run_folder = checkpoint_dir.parent if checkpoint_dir.name == "checkpoints" else checkpoint_dir
        cfg = cfg or TrainerCfg(gym_config={})
        self._script: ScriptRun | None = None
        if config is None:
            parts = ScriptParts(policy, algorithm, env, eval_env, event_cfg or {}, eval_event_cfg or {})
            given = {"exp_name": exp_name, "buffer_size": buffer_size, "save_freq": save_freq, "use_wandb": use_wandb}
            given |= {"num_eval_episodes": num_eval_episodes, "eval_freq": eval_freq, "distributed": distributed}
            self._script = ScriptRun(run_folder, parts, cfg, given, writer)
            cfg, config = self._script.cfg, self._script.config
            if collector is not None:  # the environments have been numbered
                collector.reset()
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
            if eval_env is env or getattr(getattr(eval_env, "cfg", None), "curriculum", None):
                raise ConfigError("eval_env: must be another environment than env, and without a curriculum")
            seed, videos = cfg.seed + EVAL_SEED_OFFSET, run_folder / "videos"
            players = ProcessGroup() if self._main_evaluates else get_process_group()
            self.evaluator = Evaluator(eval_env, num_eval_episodes, seed, algorithm.device, videos, players)
        self.viewer = viewer or Viewer()
        self.global_step = 0
        self.train_seconds = 0.0
        self.last_evaluation: Evaluation | None = None
        self.checkpoints = CheckpointFolder(checkpoint_dir, exp_name, cfg.keep_last)
        self._iteration = 0
        self._process_group = get_process_group()
        self.saver = Saver(self.checkpoints, self._process_group, algorithm.stores)
        self._stop = check_stop
        self.collector = collector or SyncCollector(env, policy, algorithm.device, self._on_step)
        self.collector.keeps_final_obs = algorithm.reads_final_obs
        self._stats = EpisodeStats(env.num_envs, self.collector.num_env_sets)
        self._threads = cfg.torch_threads or worthwhile_threads(
            policy, algorithm.batch_size, buffer_size, torch.get_num_threads()
        )
        space = getattr(env, "single_observation_space", None)
        self._nan_guard = NanGuard(policy, algorithm, cfg.max_skipped_updates, space)
        world_size = self._process_group.world_size
        self.steps_per_iteration = algorithm.steps_of_update(buffer_size * env.num_envs) * world_size
        self._collects = algorithm.learns_from != "demonstrations"
        self._num_decisions = buffer_size // policy.chunk_length
        if self._collects:
            raise_problems(chunk_problems(buffer_size, policy.chunk_length))
        if algorithm.learns_from == "rollouts":
            check_sequences(policy, self._num_decisions, algorithm.batch_size)
        if algorithm.learns_from == "replay":
            algorithm.prepare(self.collector.allocate(self._num_decisions))
        self._eval_schedule = Schedule(eval_freq or NEVER, "trainer.eval_freq")
        self._save_schedule = Schedule(save_freq, "trainer.save_freq")

    def train(self, total_timesteps: int) -> None:
        """Train until ``global_step`` has reached ``total_timesteps``; the last iteration evaluates and saves.

        If the last checkpoint cannot be written, that is an UnsavedTrainingError; an earlier one is a warning.

        With chunks of actions, of which not all are executed, the number of iterations is the same, with fewer steps.

        If the policy normalises its inputs, the first statistics come from a few steps that are not learned from and
        not counted: an update on raw inputs is largely undone when the inputs change their scale after it.
        """
        iterations = -(-total_timesteps // self.steps_per_iteration)
        self.algorithm.update_share = 1 / max(1, iterations)
        with self._training(iterations) as progress:  # a failed print does not end it
            while self._iteration < iterations:
                self.algorithm.progress = self._iteration / iterations
                metrics = self._iterate()
                is_last, is_best = self._iteration == iterations, False
                if self._eval_schedule.is_due(self.global_step, self._iteration) or is_last:
                    evaluated = self._evaluate(progress)
                    is_best = self.saver.is_best(evaluated, self.global_step)
                    metrics |= evaluated
                self.log.write(metrics, self.global_step)
                progress.update(self._iteration, self.log.last)
                self.viewer.on_iteration(self._iteration, iterations, self.global_step, self.log.last)
                self.saver.finished = freeze(self.state_dict())
                if self._save_schedule.is_due(self.global_step, self._iteration) or is_best or is_last:
                    self.saver.try_to_save(self.saver.finished)
        if self.saver.saved_iteration < self._iteration:
            raise UnsavedTrainingError(
                f"the training is finished, but its last checkpoint could not be written: {self.saver.problem}. "
                f"The last one that is whole: {self.saver.whole() or 'none'}"
            )

    def save_checkpoint(self) -> Path:
        """Write the state after the last finished iteration to ``<exp_name>_step_<its step>.pt``; return its path."""
        return self.saver.save(self.saver.finished or freeze(self.state_dict()))

    def state_dict(self) -> dict[str, Any]:
        """Return the state after an iteration, of replay buffers only their counts: plain data, not copied."""
        return {
            "code_version": __version__,
            "config": self.config,
            "global_step": self.global_step,
            "iteration": self._iteration,
            "train_seconds": self.train_seconds,
            **self.saver.state_dict(),
            "evaluation": None if self.last_evaluation is None else vars(self.last_evaluation),
            "num_threads": self._threads,
            "policy": self.policy.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "stores": {name: store.state_dict() for name, store in self.algorithm.stores().items()},
            "generators": generators_state(),
            "statistics": self._stats.state_dict(),
            "collector": self.collector.state_dict(),
            "env": self.collector.env_state_dict(),
        }

    def load_state_dict(self, content: dict[str, Any], checkpoints: Path | None = None) -> None:
        """Continue from a checkpoint's content; on another number of ranks with new episodes and empty replay buffers.

        ``checkpoints`` is the checkpoint's folder, which has the replay buffers' content; None: this trainer's own.
        """
        own = own_part(content, self._process_group)
        state = thaw(content | (own or {}))
        self.global_step, self._iteration = state["global_step"], state["iteration"]
        self.train_seconds = state["train_seconds"]
        if state["evaluation"] is not None and self.evaluator is not None:
            self.last_evaluation = Evaluation(**state["evaluation"])
        load_policy_state(self.policy, state["policy"], "the checkpoint")
        self.algorithm.load_state_dict(state["algorithm"])
        if own is not None:
            self.saver.load_stores(state["stores"], checkpoints)
            self._stats.load_state_dict(state["statistics"])
            if state["env"] is not None and self.collector.load_env_state_dict(state["env"]):
                self.collector.load_state_dict(state["collector"])
            else:
                self._stats.drop_unfinished()
            load_generators_state(state["generators"])
        else:
            # Not the random numbers of the run's beginning again.
            seed_generators(torch.initial_seed() + self.global_step)
        for schedule in (self._eval_schedule, self._save_schedule):
            schedule.start_from(self.global_step, self._iteration)
        before, now = state["config"], self.config
        if before.get("algorithm") != now.get("algorithm"):  # which a command refuses
            logger.log_warning("algorithm: the checkpoint has another config, and its optimizer's settings stay")
        evaluated = [_evaluated(config.get("trainer", {})) for config in (before, now)]
        self.saver.load_state_dict(state, is_comparable=evaluated[0] == evaluated[1])
        if self._process_group.is_main and self.algorithm.device.type == "cpu":
            warn_of_other_threads(state["num_threads"], self._threads)

    def _on_step(self, step: TensorDict, info: dict[str, Any]) -> None:
        self._stop()
        self.viewer.on_step(self._stop)

    @contextmanager
    def _training(self, iterations: int) -> Iterator[ProgressDisplay]:
        """Run the collector, after the warm-up of a new training; close collector, log and progress at the end."""
        script = self._script.training(self.log, iterations, self.global_step) if self._script else nullcontext()
        # One thread outside the updates: all else is small.
        with printing_may_fail(), script, torch_threads(1):
            progress = make_progress(iterations, self._iteration, self._process_group.is_main)
            try:
                if self._iteration == 0 and self.policy.has_normalizer and self._collects:
                    rollout = self._collect(WARM_UP_STEPS)
                    if not self.algorithm.reset_every_rollout:
                        self._stats.finish_rollout(rollout)  # its episodes go on
                    self.policy.update_normalizer(rollout["obs"])
                    self._nan_guard.check_outliers(0)
                self.saver.finished = freeze(self.state_dict())
                self.collector.reset_every_rollout = self.algorithm.reset_every_rollout
                if self._collects:
                    self.collector.start()
                yield progress
            finally:
                progress.close()
                self.collector.stop()

    @section("iteration")
    def _iterate(self) -> dict[str, float]:
        """Collect a rollout and learn from it; return the metrics."""
        if self.algorithm.reset_every_rollout:
            self._stats.drop_unfinished()
        start = self._clock()
        rollout = self._collect(self._num_decisions) if self._collects else None
        collected = self._clock()
        losses = self._update(rollout)
        updated = self._clock()
        statistics = {} if rollout is None else self._stats.finish_rollout(rollout, knows_success(self.env))
        end = self._clock()
        self._iteration += 1
        num_steps = self.steps_per_iteration
        if rollout is not None and self.policy.chunk_length > 1:  # not all that were chosen are executed
            num_steps = int(self._process_group.sum(torch.tensor(num_env_steps(rollout))))
        self.global_step += num_steps
        self.train_seconds += end - start
        metrics = {
            **{f"train/{name}": value for name, value in losses.items()},
            **statistics,
            **self.collector.scalars(),
            "charts/SPS": num_steps / (end - start),
            "time/collect_seconds": collected - start,
            "time/update_seconds": updated - collected,
            "time/statistics_seconds": end - updated,
            "time/train_seconds": self.train_seconds,
        }
        metrics |= self._nan_guard.end_iteration(rollout, metrics, self.global_step)
        with stopping_together(self._process_group):
            self._stop()
        return metrics

    @section("collect")
    def _collect(self, num_steps: int) -> TensorDict:
        """Collect a rollout; if one rank is stopped, none continues to the update."""
        with stopping_together(self._process_group):
            return self.collector.collect(num_steps)

    @section("update")
    def _update(self, rollout: TensorDict | None) -> dict[str, float]:
        """Improve the policy and then its input statistics; return the losses, means over the ranks."""
        with torch_threads(self._threads), update_precision(self.cfg.precision, self.algorithm.device):
            returned = self.algorithm.update(TensorDict() if rollout is None else rollout)
        losses = {name: x.item() if isinstance(x, torch.Tensor) else float(x) for name, x in returned.items()}
        if rollout is not None:
            losses["clipped_actions"] = clipped_share(rollout["action"][:, :-1], self.env.action_space)
            self.policy.update_normalizer(rollout["obs"][:, :-1])
        # All ranks have the same names, in the same order.
        means = self._process_group.mean(torch.tensor(list(losses.values()), dtype=torch.float64))
        check_in_step(self.policy, self._process_group)
        return dict(zip(losses, means.tolist(), strict=True))

    def _clock(self) -> float:
        """Return the time without pauses, s."""
        return time.perf_counter() - self.viewer.paused_seconds

    @section("evaluate")
    def _evaluate(self, progress: ProgressDisplay) -> dict[str, float]:
        if self._main_evaluates:
            return self._process_group.run_on_main(lambda: self._run_evaluation(progress))
        return self._run_evaluation(progress)

    def _run_evaluation(self, progress: ProgressDisplay) -> dict[str, float]:
        if (evaluator := self.evaluator) is None:
            return {}
        progress.evaluating(evaluator.num_episodes)
        seconds_before = evaluator.seconds
        label, on_step = f"step_{self.global_step}", lambda: progress.evaluating(*evaluator.progress())
        with self.collector.paused():
            self.last_evaluation = evaluator.run(self.policy, label, self._stop, on_step=on_step)
        self.log.write_videos(self.last_evaluation.videos, self.global_step)
        return {**self.last_evaluation.scalars(), "time/eval_seconds": evaluator.seconds - seconds_before}


def check_in_step(policy: nn.Module, process_group: ProcessGroup) -> None:
    """Check that all ranks have the same parameters and buffers; a RuntimeError on all ranks if not."""
    names = process_group.differing(policy.state_dict())
    if names:
        raise RuntimeError(
            f"the processes' policies have parted: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}. An "
            "algorithm must average its gradients before each step, by gradient_step or "
            "get_process_group().average_gradients; a policy's own statistics must be merged by "
            "get_process_group().gather (see docs/distributed.md)"
        )


def worthwhile_threads(policy: Policy, batch_size: int, rollout_length: int, available: int) -> int:
    """Return the number of threads with which a gradient step is fastest, from the size of its largest matrix product.

    A product of some million operations is done before a second thread has woken up: with networks of 64 units a second
    thread makes an update several times slower. It depends on sizes alone, so that trainings are reproducible to the
    last bit.

    Args:
        batch_size: transitions of a minibatch.
        rollout_length: steps of a rollout; a recurrent policy without ``sequence_length`` computes them one by one.
        available: threads available.
    """
    weights = [p for p in policy.parameters() if p.dim() > 1]
    if any(p.dim() > 3 for p in weights):
        return available  # a convolution's product has a row for each place in the image
    length = (policy.sequence_length or rollout_length) if policy.state_size else 1
    rows = max(1, batch_size // length)
    work = 2 * rows * max((p.numel() for p in weights), default=0)
    return int(min(available, max(1, work // WORK_OF_A_THREAD)))


def warn_of_other_threads(before: int, now: int) -> None:
    """Warn if a resumed training computes its updates with another number of threads than before."""
    if before != now:
        logger.log_warning(
            f"the run computed its updates with {before} thread{'s' * (before > 1)}, and now does with {now} "
            f"thread{'s' * (now > 1)}: sums are made in another order, so that the resumed training is not "
            f"bit-identical. With trainer.torch_threads={before} it is"
        )


def update_precision(precision: Literal["float32", "bf16"], device: torch.device) -> AbstractContextManager[object]:
    """Return the context of an update in a precision.

    With ``"bf16"`` matrix products and convolutions compute in bfloat16, forwards and backwards (``torch.autocast``).
    Parameters, optimiser, losses and, in the built-in policies, log-probabilities and values stay float32.
    """
    # Parameters change at each step: their bfloat16 copies must not be cached.
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def _evaluated(trainer: Mapping[str, Any]) -> list[Any]:
    """Return what success rates depend on, of a config's block: not its cameras."""
    events = trainer.get("events", {}).get("eval", {})
    changing = {name: event for name, event in events.items() if "record_camera_data" not in str(event.get("func"))}
    return [trainer.get("num_eval_episodes"), changing]
