"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
python -m embodichain.agents.rl.train --resume latest
python -m embodichain.agents.rl.train --config train_config.json --processes 2
torchrun --nproc_per_node=2 -m embodichain.agents.rl.train --config train_config.json --distributed
"""

from __future__ import annotations

from embodichain.utils.openmp import limit_openmp_spinning
from embodichain.utils.profiling import Profiler

if __name__ == "__main__":
    limit_openmp_spinning()

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.build import (
    RunFolder,
    TrainingEnv,
    build_env_groups,
    build_envs,
    build_learner,
    build_trainer,
    for_rank,
)
from embodichain.agents.rl.checkpoint.resume import ResumePoint, find_resume_point, find_run_folder
from embodichain.agents.rl.checkpoint.run_access import RunLock
from embodichain.agents.rl.conclusion import conclude, finished_summary, print_summary
from embodichain.agents.rl.config_changes import changes_of_env_file, check_resumed_config
from embodichain.agents.rl.distributed import LostProcessError, Ranks, join_ranks
from embodichain.agents.rl.distributed.launch import (
    FailedProcessError,
    Placement,
    as_arguments,
    find_launched_run,
    hand_back,
    num_devices,
    rank_device,
    record_launch,
    share_processors,
    start_local_processes,
)
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.nan_guard.guard import NonFiniteError
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.trainer.trainer import Trainer, UnsavedTrainingError
from embodichain.agents.rl.trainer.viewer import check_viewer_is_installed
from embodichain.utils import ConfigError, logger
from embodichain.utils.device import resolve_device
from embodichain.utils.files import write_json
from embodichain.utils.module_utils import add_allow_import, imports_allowed_by_environment
from embodichain.utils.parent import end_with_parent
from embodichain.utils.printing import discard_unwritten_output, open_closed_descriptors, printing_may_fail

_RESTART_PATIENCE = 100.0  # s; an NFS server keeps the locks of a machine that has stopped for 90 s

__all__ = ["add_options", "main", "parse_args", "run_training", "train_from_config"]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line: ``config``, ``distributed`` (None where unset) and ``overrides``."""
    parser = argparse.ArgumentParser(
        prog="python -m embodichain.agents.rl.train",
        description="Train a policy from one config file.",
        epilog="example: %(prog)s --config train_config.json trainer.num_envs=256 algorithm.cfg.gamma=0.98",
    )
    parser.add_argument("--config", metavar="PATH", help="training config, JSON or YAML")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run: its folder, a checkpoint of it, or 'latest'; without --config, by the run's own config",
    )
    add_options(parser)
    args = parser.parse_intermixed_args(argv)
    if args.config is None and args.resume is None:
        parser.error("one of --config and --resume is needed")
    return args


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what may be said beside config and run: the rest of what ``parse_args`` returns."""
    parser.add_argument(
        "--distributed",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="several processes (unset: as trainer.distributed says)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="with so many processes on this machine, which implies --distributed (unset: one for each GPU)",
    )
    add_allow_import(parser, "the config (trainer.import_modules, dotted paths)")
    parser.add_argument(
        "--allow-write",
        action="append",
        default=[],
        metavar="FOLDER",
        help="let a save_path of the config lead into this folder, outside the run's own",
    )
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="values in place of the config's")


def train_from_config(
    config_path: str | None,
    distributed: bool | None = None,
    overrides: Sequence[str] = (),
    allowed_imports: Sequence[str] = (),
    resume: str | None = None,
    allowed_writes: Sequence[str] = (),
    processes: int | None = None,
) -> dict[str, Any]:
    """Train as a config says.

    Args:
        config_path: of the training config; None: that of the run to be resumed.
        distributed: several processes; None: as the config says. In each process of a launcher such as torchrun, this
            function is called; without one, it starts them itself where there are several GPUs.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths, beside those in the environment variable ``EMBODICHAIN_ALLOW_IMPORT`` (comma-separated).
        resume: go on with a run: its folder, one of its checkpoints, or ``"latest"``.
        allowed_writes: folders outside the run's own that a ``save_path`` of the config may lead into.
        processes: how many of them it starts itself; None: one for each GPU, where it is distributed.

    Returns:
        What also stands in the run folder's ``summary.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used, or does not fit the run to be resumed;
            nothing is left behind.
        InterruptedTraining: SIGINT, SIGTERM or SIGHUP came, to any process; the finished iterations are saved.
        NonFiniteError: what is computed is not finite any more; the finished iterations are saved.
        UnsavedTrainingError: the training is finished, but its last checkpoint cannot be written.
        LostProcessError: another process has failed.
        FailedProcessError: one of those that it has started itself has failed.
    """
    placement = Placement.from_environment()
    distributed = _check_processes(processes, distributed, placement)
    imports = [*allowed_imports, *imports_allowed_by_environment()]
    if placement is not None and (placement.world_size > 1 or distributed):
        logger.speak_as(placement.rank)
        with join_ranks() as ranks, RunLock() as lock:
            run, point = _load_run(config_path, overrides, imports, resume, ranks, placement, lock)
            if not _is_distributed(run, distributed):
                raise ConfigError(
                    f"WORLD_SIZE: this is one of {ranks.world_size} processes, and trainer.distributed is false: each "
                    "would train by itself. Add --distributed"
                )
            device = rank_device(run.trainer.device, placement.local_rank)
            ranks.use(device, run.trainer.hang_seconds)
            run = for_rank(run, ranks, share_processors(placement), device)
            return _run(run, point, device, ranks, placement, allowed_writes, lock)
    with RunLock() as lock:
        run, point = _load_run(config_path, overrides, imports, resume, Ranks(), Placement(), lock)
        device = resolve_device(run.trainer.device)
        count = _count_processes(run, distributed, processes, device)
        if count == 1:
            return _run(run, point, device, Ranks(), Placement(), allowed_writes, lock)
    # Those that are started take the lock themselves.
    arguments = as_arguments(config_path, overrides, allowed_imports, resume, allowed_writes)
    return start_local_processes(count, arguments)


def _run(
    run: RunConfig,
    point: ResumePoint | None,
    device: torch.device,
    ranks: Ranks,
    placement: Placement,
    allowed_writes: Sequence[str],
    lock: RunLock,
) -> dict[str, Any]:
    """Build what the config says, train, and return the summary; on all ranks."""
    cfg = run.trainer
    start = time.monotonic()
    if point is not None and (finished := ranks.run_on_main(lambda: finished_summary(point, cfg.iterations))):
        return finished
    torch.manual_seed(cfg.seed + ranks.rank)
    np.random.seed((cfg.seed + ranks.rank) % 2**32)  # noqa: NPY002 (the generator that users' code draws from)
    random.seed(cfg.seed + ranks.rank)
    env, eval_env = build_envs(run)
    env_groups: list[TrainingEnv] = []
    stop, signals = StopSignals(), ExitStack()
    unused: RunFolder | None = None
    try:
        env_groups = build_env_groups(run)
        policy, algorithm = build_learner(run, env, device, point is not None)
        signals.enter_context(stop)
        folder = RunFolder(Path(ranks.run_on_main(lambda: _open_folder(run, point, placement, lock))))
        trainer = build_trainer(
            run, folder, env, eval_env, policy, algorithm, point, stop.check, allowed_writes, env_groups
        )
        stop.rescue = lambda: _rescue_alone(trainer)
        trainer.checkpoints.on_made_again = lambda: _furnish_again(run, folder, lock)
        profiler = Profiler(folder.path, cfg.profile == "trace") if cfg.profile and ranks.is_main else None
        if profiler is not None:
            profiler.start()
        logger.speak_as(ranks.rank, is_started=True)
        try:
            with signals:
                _train(trainer, cfg.iterations * cfg.buffer_size * env.num_envs * ranks.world_size)
        finally:
            trainer.log.close()
            trainer.viewer.close()
            if profiler is not None:
                profiler.stop()
                print(profiler.report())
    except InterruptedTraining:
        if point is None and ranks.is_main and not folder.has_results():
            unused = folder
        raise
    finally:
        signals.close()
        for each in (env, *env_groups):
            each.close()
        if eval_env is not None:
            eval_env.close()
        if unused is not None:
            unused.remove()
    with ranks.busy():
        return ranks.run_on_main(lambda: conclude(trainer, folder, cfg.exp_name, time.monotonic() - start))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 failed, 2 wrong usage or config, 129, 130 or 143 interrupted."""
    return run_training(parse_args(argv))


def run_training(args: argparse.Namespace) -> int:
    """Do what ``parse_args`` read; return the exit code.

    Whatever becomes of what is printed, the training goes on. It ends with the process that has started it, where that
    is another one of ours.
    """
    open_closed_descriptors()
    end_with_parent()
    with printing_may_fail():
        code = _run_training(args)
    discard_unwritten_output()
    return code


def _run_training(args: argparse.Namespace) -> int:
    try:
        summary = train_from_config(
            args.config,
            args.distributed,
            args.overrides,
            args.allow_import,
            args.resume,
            args.allow_write,
            args.processes,
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (NonFiniteError, UnsavedTrainingError, LostProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except InterruptedTraining as signal:
        print("interrupted", file=sys.stderr)
        return signal.exit_code
    except FailedProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if error.code == 2 else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if int(os.environ.get("RANK", "0")) == 0 and not hand_back(summary):
        print_summary(summary)
    return 0


def _train(trainer: Trainer, total_timesteps: int) -> None:
    """Train; whatever ends it early, what was finished is saved."""
    try:
        trainer.train(total_timesteps)
    except UnsavedTrainingError:
        raise
    except BaseException as error:
        trainer.rescue(is_together=isinstance(error, InterruptedTraining))
        if text := _saved_text(trainer):
            logger.log_info(text)
        raise


def _rescue_alone(trainer: Trainer) -> str:
    """Save what was finished, while the training hangs; return what to say of it."""
    trainer.rescue_alone()
    return _saved_text(trainer) or "Nothing was finished, so nothing is saved"


def _saved_text(trainer: Trainer) -> str:
    """Return where the training goes on; an empty text where it has no checkpoint."""
    path = trainer.whole_checkpoint()
    return (
        ""
        if path is None
        else f"checkpoint saved: {path}; 'embodichain resume {path.parent.parent}' goes on from there"
    )


def _furnish_again(run: RunConfig, folder: RunFolder, lock: RunLock) -> None:
    """Put into a run's folder, which somebody has removed, what belongs in it from the beginning."""
    lock.take_again()
    write_json(folder.path / "config.json", run.resolved, indent=2)


def _check_processes(processes: int | None, distributed: bool | None, placement: Placement | None) -> bool | None:
    """Return whether ``--distributed`` holds, which a number of processes implies; None: as the config says.

    Raises:
        ConfigError: the number makes no sense.
    """
    if processes is None:
        return distributed
    if processes < 1:
        raise ConfigError(f"--processes: must be at least 1, got {processes}")
    if distributed is False:
        raise ConfigError("--processes: cannot go together with --no-distributed")
    if placement is not None and placement.world_size > 1:
        raise ConfigError(
            f"--processes: this is one of {placement.world_size} processes that torchrun or another launcher has "
            "started; leave it out"
        )
    return True


def _count_processes(run: RunConfig, distributed: bool | None, processes: int | None, device: torch.device) -> int:
    """Return how many processes are to share the training on this machine.

    Raises:
        ConfigError: there are not so many devices.
    """
    if not _is_distributed(run, distributed):
        return 1
    count = processes or num_devices(device)
    if device.type != "cpu" and count > num_devices(device):
        raise ConfigError(
            f"--processes {count}: each needs a GPU of its own, and there are {num_devices(device)}; with "
            "trainer.device=cpu they share the processors"
        )
    if count == 1 and processes is None:
        logger.log_info(
            f"--distributed: one device here ({device}), so one process; --processes N starts as many as it says"
        )
    return count


def _is_distributed(run: RunConfig, distributed: bool | None) -> bool:
    cfg = run.trainer
    is_distributed = cfg.distributed if distributed is None else distributed
    cfg.check_distributed(is_distributed)
    return is_distributed


def _load_run(
    config_path: str | None,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    resume: str | None,
    ranks: Ranks,
    placement: Placement,
    lock: RunLock,
) -> tuple[RunConfig, ResumePoint | None]:
    """Return the run's config and, where one is resumed, the checkpoint to go on from, which rank 0 locks and reads.

    Processes that torchrun has started again go on with the run that they had begun.
    """
    run = None if config_path is None else load_run_config(config_path, overrides, allowed_imports)
    exp_name = None if run is None else run.trainer.exp_name
    is_restart = bool(ranks.gather(torch.tensor(placement.restarts)).max() > 0)

    def find() -> tuple[str, str, dict[str, Any]] | None:
        begun = find_launched_run(exp_name, placement, is_restart)
        target = resume if begun is None else str(begun)
        if target is None:
            return None
        folder = find_run_folder(target, exp_name)
        # Before it is read, since another process may be writing. One of this launch is about to end.
        lock.take(folder, _RESTART_PATIENCE if begun is not None else 0.0)
        point = find_resume_point(str(folder) if target == "latest" else target)
        return str(point.run), str(point.path), point.content

    found = ranks.run_on_main(find)
    point = None if found is None else ResumePoint(Path(found[0]), Path(found[1]), found[2])
    if run is None:
        assert point is not None
        run = load_checkpoint_config(point.content["config"], overrides, allowed_imports)
        if changes := changes_of_env_file(point.content["config"], overrides, allowed_imports):
            logger.log_info(
                f"the run goes on with its own config; {point.content['config']['trainer']['gym_config']} is another: "
                f"{'; '.join(changes)}"
            )
    if run.trainer.viewer:
        check_viewer_is_installed()
    if point is None:
        return run, None
    check_resumed_config(point.content["config"], run, resume or str(point.run), allowed_imports)
    logger.log_info(f"going on from {point.path}")
    return run, point


def _open_folder(run: RunConfig, point: ResumePoint | None, placement: Placement, lock: RunLock) -> str:
    """Return the run's folder, a new one or that of the run to go on with."""
    folder = RunFolder.create(run.trainer.exp_name) if point is None else RunFolder(point.run)
    if point is None:
        lock.take(folder.path)
    if placement.launch is not None:
        record_launch(folder.path, placement.launch)
    return str(folder.path)


if __name__ == "__main__":
    sys.exit(main())
