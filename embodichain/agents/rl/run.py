"""The training of one process: from its config to the results in the run's folder."""

import random
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.build import build_env_sets, build_envs, build_learner, build_trainer
from embodichain.agents.rl.checkpoint.saved_run import RunLock, SavedRun
from embodichain.agents.rl.config_changes import changes_of_env_file, check_resumed_config
from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.agents.rl.distributed.placement import Placement
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.run_folder import RunFolder, conclude, finished_summary, open_run_folder, take_run
from embodichain.agents.rl.train_source import TrainSource
from embodichain.agents.rl.trainer.trainer import Trainer, UnsavedTrainingError
from embodichain.utils import logger
from embodichain.utils.border import keep_tracebacks_in
from embodichain.utils.profiling import Profiler


def load_training(
    config: TrainSource | None,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    resume: str | None,
    process_group: ProcessGroup,
    placement: Placement | None,
    lock: RunLock,
) -> tuple[RunConfig, SavedRun | None]:
    """Read the config and, for a resume, the checkpoint to continue from, which rank 0 locks and reads.

    Processes that torchrun has restarted continue their run.

    Raises:
        ConfigError: the config or the checkpoint cannot be used, or they do not fit each other.
    """
    run = None if config is None else load_run_config(config, overrides, allowed_imports)
    point = None
    if resume is not None or (placement is not None and placement.launch is not None):
        point = take_run(resume, None if run is None else run.trainer.exp_name, process_group, placement, lock)
    if run is None:
        assert point is not None
        saved = point.content["config"]
        run = load_checkpoint_config(saved, overrides, allowed_imports)
        if changes := changes_of_env_file(saved, overrides, allowed_imports):
            logger.log_info(
                f"the run continues with its own config; {saved['trainer']['gym_config']} differs: {'; '.join(changes)}"
            )
    if point is not None:
        check_resumed_config(point.content["config"], run, resume or str(point.folder), allowed_imports)
        logger.log_info(f"continuing from {point.checkpoint}")
    return run, point


def run_training(
    run: RunConfig,
    point: SavedRun | None,
    device: torch.device,
    process_group: ProcessGroup,
    placement: Placement | None,
    lock: RunLock,
    allowed_writes: Sequence[str],
) -> dict[str, Any]:
    """Build, train, and return the summary; on all ranks.

    Raises:
        ConfigError, CommandFailedError, InterruptedTraining, NonFiniteError, UnsavedTrainingError: as
            ``train_from_config``.
    """
    cfg, start = run.trainer, time.monotonic()
    if point is not None and (finished := process_group.run_on_main(lambda: finished_summary(point, cfg.iterations))):
        return finished
    torch.manual_seed(cfg.seed + process_group.rank)
    np.random.seed((cfg.seed + process_group.rank) % 2**32)  # noqa: NPY002 (the generator that users' code draws from)
    random.seed(cfg.seed + process_group.rank)
    new_folder: RunFolder | None = None
    try:
        with ExitStack() as at_end:
            with logger.without_repeats():  # of the scene, which all have
                env, eval_env = build_envs(run)
                at_end.callback(env.close)
                if eval_env is not None:
                    at_end.callback(eval_env.close)
                more_sets = build_env_sets(run)
                for env_set in more_sets:
                    at_end.callback(env_set.close)
            policy, algorithm = build_learner(run, env, device, point is not None)
            with StopSignals() as stop:
                path = process_group.run_on_main(partial(open_run_folder, cfg.exp_name, point, placement, lock))
                folder = RunFolder(Path(path))
                keep_tracebacks_in(folder.path)
                trainer = build_trainer(
                    run, folder, env, eval_env, policy, algorithm, point, stop.check, allowed_writes, more_sets
                )
                new_folder = folder if point is None and process_group.is_main else None
                at_end.callback(trainer.viewer.close)
                at_end.callback(trainer.log.close)
                if cfg.profile and process_group.is_main:
                    profiler = Profiler(folder.path, cfg.profile == "trace")
                    profiler.start()
                    at_end.callback(lambda: print(profiler.report()))
                    at_end.callback(profiler.stop)
                logger.speak_as(process_group.rank, is_started=True)
                with _rescuing(trainer, stop):
                    trainer.train(cfg.iterations * trainer.steps_per_iteration)
    except BaseException:
        if new_folder is not None:
            new_folder.remove_without_results()
        raise
    return process_group.run_on_main(lambda: conclude(trainer, folder, cfg.exp_name, time.monotonic() - start))


@contextmanager
def _rescuing(trainer: Trainer, stop: StopSignals) -> Iterator[None]:
    """Save the finished iterations on any exception in the block, and log how to continue."""

    def rescue_alone() -> str:
        trainer.saver.rescue_alone()
        return _saved_text(trainer) or "Nothing was finished, so nothing is saved"

    stop.rescue = rescue_alone
    try:
        yield
    except UnsavedTrainingError:
        raise
    except BaseException as error:
        trainer.saver.rescue(is_together=isinstance(error, InterruptedTraining))
        if text := _saved_text(trainer):
            logger.log_info(text)
        raise


def _saved_text(trainer: Trainer) -> str:
    """Return the log line with the checkpoint to resume from; "" if there is none."""
    path = trainer.saver.whole()
    if path is None:
        return ""
    return f"checkpoint saved: {path}; 'embodichain resume {shlex.quote(str(path.parent.parent))}' continues from there"
