"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
python -m embodichain.agents.rl.train --resume latest
python -m embodichain.agents.rl.train --config train_config.json --processes 2
torchrun --nproc_per_node=2 -m embodichain.agents.rl.train --config train_config.json --distributed
"""

from embodichain.utils.border import end_quietly_when_interrupted
from embodichain.utils.system import limit_openmp_spinning

if __name__ == "__main__":
    end_quietly_when_interrupted()
    limit_openmp_spinning()

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from embodichain.agents.rl.build import for_rank
from embodichain.agents.rl.checkpoint.saved_run import RunLock
from embodichain.agents.rl.config.arguments import all_overrides, parse_args
from embodichain.agents.rl.distributed import ProcessGroup, join_process_group
from embodichain.agents.rl.distributed.launch import start_local_processes
from embodichain.agents.rl.distributed.placement import Placement, count_processes, rank_device, share_processors
from embodichain.agents.rl.run import load_training, run_training
from embodichain.agents.rl.run_folder import print_summary
from embodichain.agents.rl.train_source import TrainSource
from embodichain.utils import ConfigError, logger
from embodichain.utils.border import OPTION, discard_unwritten_output, printing_may_fail, run_command
from embodichain.utils.module_utils import imports_allowed_by_environment
from embodichain.utils.system import end_with_parent

__all__ = ["main", "parse_args", "train", "train_as_command", "train_from_config"]


def train_from_config(
    config_path: TrainSource | None,
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
    placement = Placement.from_environment(distributed=distributed or processes is not None)
    if processes is not None:
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
        device = rank_device(run.trainer.device, placement)
        count = count_processes(is_distributed, processes, device, placement)
        if count == 1:
            if placement is not None:
                process_group.use(device, run.trainer.hang_seconds)
                run = for_rank(run, placement, share_processors(placement), device)
            return run_training(run, point, device, process_group, placement, lock, allowed_writes)
    # The started processes take the lock themselves.
    rank = partial(train_from_config, config_path, True, overrides, allowed_imports, resume, allowed_writes)
    return start_local_processes(count, rank)


def train(config: TrainSource, **overrides: Any) -> dict[str, Any]:
    """Train as a config says: ``train("push_cube", **{"trainer.seed": 3, "algorithm.cfg.gamma": 0.98})``.

    Args:
        config: path, shipped name or content of the config.
        overrides: values of the config by their paths.

    Returns:
        The content of the run folder's ``summary.json``. Errors as for :func:`train_from_config`, which has more
        arguments.
    """
    return train_from_config(config, overrides=[f"{path}={json.dumps(value)}" for path, value in overrides.items()])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, as :func:`run_command`."""
    words = sys.argv[1:] if argv is None else argv
    return run_command(lambda: train_as_command(parse_args(words)), OPTION in words)


def train_as_command(args: argparse.Namespace, show: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Train with the arguments of ``parse_args``; return the exit code.

    Failed output never ends the training. The training ends with its parent process, if that is one of ours.

    Args:
        show: prints the summary; None: ``print_summary``.
    """
    end_with_parent()
    with printing_may_fail():
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
    discard_unwritten_output()
    return 0


if __name__ == "__main__":
    sys.exit(main())
