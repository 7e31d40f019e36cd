"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
python -m embodichain.agents.rl.train --resume latest
python -m embodichain.agents.rl.train --config train_config.json --processes 2
torchrun --nproc_per_node=2 -m embodichain.agents.rl.train --config train_config.json --distributed
"""

from embodichain.utils import border, system

if __name__ == "__main__":
    border.end_quietly_when_interrupted()

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl import run_config
from embodichain.agents.rl.build import build_env_sets, build_envs, build_learner, build_trainer, for_rank
from embodichain.agents.rl.checkpoint.saved_run import RunLock, SavedRun
from embodichain.agents.rl.config.arguments import all_overrides, parse_args
from embodichain.agents.rl.distributed import ProcessGroup, join_process_group, launch
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.run_folder import (
    conclude,
    finished_summary,
    open_folder,
    print_summary,
    remove_without_results,
    take_run,
)
from embodichain.agents.rl.trainer.trainer import Trainer, UnsavedTrainingError
from embodichain.utils import ConfigError, logger
from embodichain.utils.module_utils import imports_allowed_by_environment
from embodichain.utils.profiling import Profiler
from embodichain.utils.state import seed_generators
from embodichain.utils.utility import as_json

__all__ = ["main", "parse_args", "train", "train_as_command", "train_from_config"]


def train_from_config(
    config_path: run_config.TrainSource | None,
    distributed: bool | None = None,
    overrides: Sequence[str] = (),
    allowed_imports: Sequence[str] = (),
    resume: str | None = None,
    allowed_writes: Sequence[str] = (),
    processes: int | None = None,
) -> dict[str, Any]:
    """Train as a config says.

    Args:
        config_path: path of the training config's file or folder, or a shipped one's name; or such a file's
            content, as a dictionary or a ``TrainCfg``; None: the config of the run to be resumed.
        distributed: several processes; None: as the config says. In each process of a launcher such as torchrun, this
            function is called; without one, it starts them itself where there are several GPUs.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths, in addition to the environment variable ``EMBODICHAIN_ALLOW_IMPORT`` (comma-separated).
        resume: the run to continue: its folder, one of its checkpoints, or ``"latest"``.
        allowed_writes: folders outside the run's own that a ``save_path`` of the config may lead into.
        processes: number of processes to start; None: one for each GPU, if distributed.

    Returns:
        The content of the run folder's ``summary.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used, or does not fit the run to be resumed;
            nothing is left behind.
        CommandFailedError: an environment's process has ended, its ``info`` cannot be read, or it called ``sys.exit``.
        InterruptedTraining: SIGINT, SIGTERM or SIGHUP, to any process; the finished iterations are saved.
        NonFiniteError: updates or parameters are not finite; the finished iterations are saved.
        UnsavedTrainingError: the training is finished, but its last checkpoint cannot be written.
        LostProcessError: another process of the launcher has failed.
        FailedProcessError: a process that this function has started has failed.
    """
    if config_path is None and resume is None:
        raise ConfigError("config_path: a training config is needed, or a run to resume, got None")
    placement = launch.Placement.from_environment(distributed=distributed or processes is not None)
    if processes is not None:
        if processes < 1:
            raise ConfigError(f"--processes {processes}: must be at least 1")
        if distributed is False or (placement is not None and placement.world_size > 1):
            raise ConfigError("--processes: starts processes: leave it out with --no-distributed or a launcher's")
        distributed = True
    logger.speak_as(0 if placement is None else placement.rank)
    imports = [*allowed_imports, *imports_allowed_by_environment()]
    with ExitStack() as stack:
        process_group = ProcessGroup() if placement is None else stack.enter_context(join_process_group())
        lock = stack.enter_context(RunLock())
        run, point = load_training(config_path, overrides, imports, resume, process_group, placement, lock)
        is_distributed = run.trainer.distributed if distributed is None else distributed
        run.trainer.check_distributed(is_distributed)
        device = launch.rank_device(run.trainer.device, placement)
        count = launch.count_processes(is_distributed, processes, device, placement)
        if count == 1:
            if placement is not None:
                process_group.use(device, run.trainer.hang_seconds)
                run = for_rank(run, placement, launch.share_processors(placement), device)
            return run_training(run, point, device, process_group, placement, lock, allowed_writes)
    # The started processes take the lock themselves.
    rank = partial(train_from_config, config_path, True, overrides, allowed_imports, resume, allowed_writes)
    return launch.start_local_processes(count, rank)


def load_training(
    config: run_config.TrainSource | None,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    resume: str | None,
    process_group: ProcessGroup,
    placement: launch.Placement | None,
    lock: RunLock,
) -> tuple[run_config.RunConfig, SavedRun | None]:
    """Read the config and, for a resume, the checkpoint to continue from, which rank 0 locks and reads.

    Processes that torchrun has restarted continue their run.
    """
    run = None if config is None else run_config.load_run_config(config, overrides, allowed_imports)
    point = None
    if resume is not None or (placement is not None and placement.launch is not None):
        point = take_run(resume, None if run is None else run.trainer.exp_name, process_group, placement, lock)
    if run is None:
        assert point is not None
        saved = point.content["config"]
        run = run_config.load_checkpoint_config(saved, overrides, allowed_imports)
        if changes := run_config.changes_of_env_file(saved, run, overrides, allowed_imports):
            logger.log_info(
                f"the run continues with its own config; {saved['trainer']['gym_config']} differs: {'; '.join(changes)}"
            )
    if point is not None:
        run_config.check_resumed_config(point.content["config"], run, resume or str(point.folder), allowed_imports)
        logger.log_info(f"continuing from {point.checkpoint}")
    return run, point


def run_training(
    run: run_config.RunConfig,
    point: SavedRun | None,
    device: torch.device,
    process_group: ProcessGroup,
    placement: launch.Placement | None,
    lock: RunLock,
    allowed_writes: Sequence[str],
) -> dict[str, Any]:
    """Build, train, and return the summary; on all ranks."""
    cfg, start = run.trainer, time.monotonic()
    if point is not None and (finished := process_group.run_on_main(lambda: finished_summary(point, cfg.iterations))):
        return finished
    seed_generators(cfg.seed + process_group.rank)
    new_folder: Path | None = None
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
                opened = process_group.run_on_main(partial(open_folder, cfg.exp_name, point, placement, lock))
                border.keep_tracebacks_in(folder := Path(opened))
                trainer = build_trainer(
                    run, folder, env, eval_env, policy, algorithm, point, stop.check, allowed_writes, more_sets
                )
                new_folder = folder if point is None and process_group.is_main else None
                at_end.callback(trainer.viewer.close)
                at_end.callback(trainer.log.close)
                if cfg.profile and process_group.is_main:
                    profiler = Profiler(folder, cfg.profile == "trace")
                    profiler.start()
                    at_end.callback(lambda: print(profiler.report()))
                    at_end.callback(profiler.stop)
                logger.speak_as(process_group.rank, is_started=True)
                with _rescuing(trainer, stop):
                    trainer.train(cfg.iterations * trainer.steps_per_iteration)
    except BaseException:
        if new_folder is not None:
            remove_without_results(new_folder)
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


def train(config: run_config.TrainSource, **overrides: Any) -> dict[str, Any]:
    """Train as a config says: ``train("push_cube", **{"trainer.seed": 3, "algorithm.cfg.gamma": 0.98})``.

    Args:
        config: path, shipped name or content of the config.
        overrides: values of the config by their paths.

    Returns:
        The content of the run folder's ``summary.json``. Errors as for :func:`train_from_config`, which has more
        arguments.
    """
    plain = as_json(overrides, "overrides")
    return train_from_config(config, overrides=[f"{path}={json.dumps(value)}" for path, value in plain.items()])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, as :func:`run_command`."""
    words = sys.argv[1:] if argv is None else argv
    return border.run_command(lambda: train_as_command(parse_args(words)), border.OPTION in words)


def train_as_command(args: argparse.Namespace, show: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Train with the arguments of ``parse_args``; return the exit code.

    Failed output never ends the training. The training ends with its parent process, if that is one of ours.

    Args:
        show: prints the summary; None: ``print_summary``.
    """
    system.end_with_parent()
    with border.printing_may_fail():
        summary = train_from_config(
            args.config,
            args.distributed,
            all_overrides(args),
            args.allow_import,
            args.resume,
            args.allow_write,
            args.processes,
        )
        if int(os.environ.get("RANK", "0")) == 0:
            (show or print_summary)(summary)
    border.discard_unwritten_output()
    return 0


if __name__ == "__main__":
    sys.exit(main())
