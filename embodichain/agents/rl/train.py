"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
python -m embodichain.agents.rl.train --resume latest
python -m embodichain.agents.rl.train --config train_config.json --processes 2
torchrun --nproc_per_node=2 -m embodichain.agents.rl.train --config train_config.json --distributed
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
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
from embodichain.agents.rl.distributed import LostProcessError, Ranks, join_ranks
from embodichain.agents.rl.report.page import REPORT, write_report
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.utils.checkpoint import write_json
from embodichain.agents.rl.utils.config import resolve_device
from embodichain.agents.rl.utils.guards import NonFiniteError
from embodichain.agents.rl.utils.launch import (
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
from embodichain.agents.rl.utils.learning_curve import draw_learning_curve
from embodichain.agents.rl.utils.profiler import Profiler
from embodichain.agents.rl.utils.resume import ResumePoint, changes_of_env_file, check_config, find_resume_point
from embodichain.agents.rl.utils.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.utils.trainer import Trainer, UnsavedTrainingError
from embodichain.agents.rl.utils.viewer import check_viewer_is_installed
from embodichain.utils import ConfigError, logger
from embodichain.utils.machine import describe_machine
from embodichain.utils.module_utils import add_allow_import, imports_allowed_by_environment
from embodichain.utils.parent import end_with_parent
from embodichain.utils.printing import discard_unwritten_output, open_closed_descriptors, printing_may_fail

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
        InterruptedTraining: SIGINT or SIGTERM came, to any process; the finished iterations are saved.
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
        with join_ranks() as ranks:
            run, point = _load_run(config_path, overrides, imports, resume, ranks, placement)
            if not _is_distributed(run, distributed):
                raise ConfigError(
                    f"WORLD_SIZE: this is one of {ranks.world_size} processes, and trainer.distributed is false: each "
                    "would train by itself. Add --distributed"
                )
            device = rank_device(run.train.trainer.device, placement.local_rank)
            ranks.use(device, run.train.trainer.hang_seconds)
            run = for_rank(run, ranks, share_processors(placement), device)
            return _run(run, point, device, ranks, placement, allowed_writes)
    run, point = _load_run(config_path, overrides, imports, resume, Ranks(), Placement())
    device = resolve_device(run.train.trainer.device)
    if _is_distributed(run, distributed):
        count = processes or num_devices(device)
        if device.type != "cpu" and count > num_devices(device):
            raise ConfigError(
                f"--processes {count}: each needs a GPU of its own, and there are {num_devices(device)}; with "
                "trainer.device=cpu they share the processors"
            )
        if count > 1:
            arguments = as_arguments(config_path, overrides, allowed_imports, resume, allowed_writes)
            return start_local_processes(count, arguments)
        if processes is None:
            logger.log_info(
                f"--distributed: one device here ({device}), so one process; --processes N starts as many as it says"
            )
    return _run(run, point, device, Ranks(), Placement(), allowed_writes)


def _run(
    run: RunConfig,
    point: ResumePoint | None,
    device: torch.device,
    ranks: Ranks,
    placement: Placement,
    allowed_writes: Sequence[str],
) -> dict[str, Any]:
    """Build what the config says, train, and return the summary; on all ranks."""
    cfg = run.train.trainer
    start = time.monotonic()
    if point is not None and (finished := ranks.run_on_main(lambda: _finished_summary(point, cfg.iterations))):
        return finished
    torch.manual_seed(cfg.seed + ranks.rank)
    np.random.seed((cfg.seed + ranks.rank) % 2**32)  # noqa: NPY002 (the generator that users' code draws from)
    random.seed(cfg.seed + ranks.rank)
    env, eval_env = build_envs(run)
    env_groups: list[TrainingEnv] = []
    stop = StopSignals()
    try:
        env_groups = build_env_groups(run)
        policy, algorithm = build_learner(run, env, device, point is not None)
        folder = RunFolder(Path(ranks.run_on_main(lambda: _open_folder(run, point, placement))))
        trainer = build_trainer(
            run, folder, env, eval_env, policy, algorithm, point, stop.check, allowed_writes, env_groups
        )
        profiler = Profiler(folder.path, cfg.profile == "trace") if cfg.profile and ranks.is_main else None
        if profiler is not None:
            profiler.watch_training(trainer, [env, *env_groups])
        logger.speak_as(ranks.rank, is_started=True)
        try:
            with stop:
                _train(trainer, cfg.iterations * cfg.buffer_size * env.num_envs * ranks.world_size)
        finally:
            trainer.log.close()
            trainer.viewer.close()
            if profiler is not None:
                profiler.save()
                print(profiler.report())
    finally:
        for each in (env, *env_groups):
            each.close()
        if eval_env is not None:
            eval_env.close()
    with ranks.busy():
        return ranks.run_on_main(lambda: _conclude(trainer, folder, cfg.exp_name, time.monotonic() - start))


def _finished_summary(point: ResumePoint, iterations: int) -> dict[str, Any] | None:
    """Return the summary of a run that has nothing left to do; None where it has."""
    done, path = point.content["iteration"], RunFolder(point.run).summary
    if done < iterations or not path.exists():
        return None
    logger.log_info(f"all of its {done} iterations are made; to go on, ask for more: trainer.iterations={2 * done}")
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted."""
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
        _print_summary(summary)
    return 0


def _train(trainer: Trainer, total_timesteps: int) -> None:
    """Train; whatever ends it early, what was finished is saved."""
    try:
        trainer.train(total_timesteps)
    except UnsavedTrainingError:
        raise
    except BaseException as error:
        trainer.rescue(is_together=isinstance(error, InterruptedTraining))
        path = trainer.last_checkpoint
        if path is not None:
            logger.log_info(f"checkpoint saved: {path}; 'embodichain resume {path.parent.parent}' goes on from there")
        raise


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


def _is_distributed(run: RunConfig, distributed: bool | None) -> bool:
    cfg = run.train.trainer
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
) -> tuple[RunConfig, ResumePoint | None]:
    """Return the run's config and, where one is resumed, the checkpoint to go on from, which rank 0 reads.

    Processes that torchrun has started again go on with the run that they had begun.
    """
    run = None if config_path is None else load_run_config(config_path, overrides, allowed_imports)
    exp_name = None if run is None else run.train.trainer.exp_name
    is_restart = bool(ranks.gather(torch.tensor(placement.restarts)).max() > 0)

    def find() -> tuple[str, str, dict[str, Any]] | None:
        begun = find_launched_run(exp_name, placement, is_restart)
        target = resume if begun is None else str(begun)
        if target is None:
            return None
        point = find_resume_point(target, exp_name)
        return str(point.run), str(point.path), point.content

    found = ranks.run_on_main(find)
    point = None if found is None else ResumePoint(Path(found[0]), Path(found[1]), found[2])
    if run is None:
        assert point is not None
        run = load_checkpoint_config(point.content["config"], overrides, allowed_imports)
        if changes := changes_of_env_file(point.content["config"]):
            logger.log_info(
                f"the run goes on with its own config; {point.content['config']['trainer']['gym_config']} is another: "
                f"{'; '.join(changes)}"
            )
    if run.train.trainer.viewer:
        check_viewer_is_installed()
    if point is None:
        return run, None
    check_config(point.content["config"], run.resolved, resume or str(point.run))
    logger.log_info(f"going on from {point.path}")
    return run, point


def _open_folder(run: RunConfig, point: ResumePoint | None, placement: Placement) -> str:
    """Return the run's folder, a new one or that of the run to go on with."""
    folder = RunFolder.create(run.train.trainer.exp_name) if point is None else RunFolder(point.run)
    if placement.launch is not None:
        record_launch(folder.path, placement.launch)
    return str(folder.path)


def _conclude(trainer: Trainer, folder: RunFolder, title: str, wall_seconds: float) -> dict[str, Any]:
    """Leave picture and summary in the run's folder; the checkpoint is there, so where they cannot be is a warning."""
    summary = _summarise(trainer, folder, wall_seconds)
    try:
        draw_learning_curve(folder.metrics, folder.learning_curve, title)
        write_json(folder.summary, summary, indent=2)
        write_json(folder.path / "machine.json", describe_machine(), indent=2)
        write_report(folder.path)
    except (OSError, ValueError) as error:  # a ValueError where the logs that they are made from are not whole
        logger.log_warning(f"learning curve, summary or report could not be written: {error}")
    return summary


def _summarise(trainer: Trainer, folder: RunFolder, wall_seconds: float) -> dict[str, Any]:
    result = trainer.last_evaluation
    videos = [str(path) for path in result.videos] if result else []
    return {
        "success_rate": result.success_rate if result else None,
        "success_interval_95": list(result.success_interval) if result else None,
        "episodes": result.episodes if result else 0,
        "train_seconds": round(trainer.train_seconds, 2),
        "wall_seconds": round(wall_seconds, 2),
        "env_steps": trainer.global_step,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "run_folder": str(folder.path),
        "checkpoint": str(trainer.last_checkpoint),
        "video": videos[-1] if videos else None,
        "learning_curve": str(folder.learning_curve),
    }


def _print_summary(summary: dict[str, Any]) -> None:
    rate, interval = summary["success_rate"], summary["success_interval_95"]
    if rate is not None:
        low, high = interval
        print(f"success rate    {rate:.1%} of {summary['episodes']} episodes (95 % interval {low:.1%} to {high:.1%})")
    print(f"training time   {summary['train_seconds']:.1f} s for {summary['env_steps']:,} environment steps")
    if "wall_seconds" in summary:  # runs from before it was kept have none
        print(f"wall time       {summary['wall_seconds']:.1f} s since the start or the resume, evaluations included")
    print(f"peak memory     {summary['peak_memory_mb']:,.0f} MB")
    # A recorder that could not draw or write has said so in a warning.
    no_video = "nothing was evaluated" if rate is None else "no event in trainer.events.eval recorded one"
    for name, why_not in (("checkpoint", ""), ("video", f": {no_video}"), ("learning_curve", "")):
        print(f"{name.replace('_', ' '):15} {summary[name] or f'none{why_not}'}")
    print(f"summary         {Path(summary['run_folder']) / 'summary.json'}")
    report = Path(summary["run_folder"]) / REPORT
    print(f"report          {report if report.exists() else 'none'}")


if __name__ == "__main__":
    sys.exit(main())
