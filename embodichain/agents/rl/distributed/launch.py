"""The processes of a training: the place and share of each, from the launcher's environment variables; starting them
on this machine; and the run of processes that torchrun has restarted.
"""

import json
import multiprocessing
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, start_processes

from embodichain.agents.rl.distributed.process_group import RENDEZVOUS
from embodichain.agents.rl.distributed.stop import InterruptedTraining, signals_to
from embodichain.utils import CommandFailedError, ConfigError, logger, write_json
from embodichain.utils.border import OPTION, printing_may_fail, run_command
from embodichain.utils.device import resolve_device
from embodichain.utils.system import count_processors, process_start, starting_workers

_RECORD = "launch.json"
_GRACE = 30.0  # s that the others have to end by themselves once one has failed


@dataclass(frozen=True)
class Launch:
    """Identity of a launch by torchrun; a restarted process has the same."""

    run_id: str  # torchrun's ``--rdzv-id``; "none" if unset
    agent: str  # host, process id and start time of the process that started rank 0


@dataclass(frozen=True)
class Placement:
    """Place of this process in the training, from the launcher's environment variables."""

    rank: int = 0  # number of this process
    world_size: int = 1  # number of all processes
    local_rank: int = 0  # the same on this machine
    local_world_size: int = 1
    restarts: int = 0  # of this machine's processes, by torchrun
    launch: Launch | None = None  # None if started by ``start_local_processes``, which restarts nothing

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, distributed: bool | None = None
    ) -> Self | None:
        """Return the placement; None if no launcher has set ``RANK`` and ``WORLD_SIZE``.

        None also for the only process of a launcher, as some clusters set the variables everywhere, unless
        ``distributed`` is set: torchrun may continue with one process.
        """
        if not {"RANK", "WORLD_SIZE"} <= environment.keys():
            return None
        if environment["WORLD_SIZE"] == "1" and not (distributed and "MASTER_ADDR" in environment):
            return None
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
        numbers = (int(environment.get(name, name == "LOCAL_WORLD_SIZE")) for name in names)
        rank, world_size, local_rank, local_world_size, restarts = numbers
        host = f"{socket.gethostname()}:{os.getppid()}:{process_start(os.getppid())}"
        launch = Launch(environment.get("TORCHELASTIC_RUN_ID", "none"), host)
        is_local = RENDEZVOUS in environment
        return cls(rank, world_size, local_rank, local_world_size, restarts, None if is_local else launch)


def count_processes(distributed: bool, processes: int | None, device: torch.device, placement: Placement | None) -> int:
    """Return the number of processes to start on this machine, one for each GPU unless given; 1: this one trains."""
    if placement is not None and not distributed:
        raise ConfigError(
            f"WORLD_SIZE: this is one of {placement.world_size} processes, and trainer.distributed is false: each "
            "would train by itself. Add --distributed"
        )
    if placement is not None or not distributed:
        return 1
    num_devices = 1 if device.type == "cpu" else torch.cuda.device_count()
    count = processes or num_devices
    if device.type != "cpu" and count > num_devices:
        raise ConfigError(
            f"--processes {count}: each needs its own GPU, and there are {num_devices}; with trainer.device=cpu "
            "they share the processors"
        )
    if count == 1 and processes is None:
        logger.log_info(f"--distributed: one device here ({device}), so one process; --processes N starts N")
    return count


def rank_device(name: str, placement: Placement | None) -> torch.device:
    """Return the device of this process: the CPU for all, or a GPU for each.

    Args:
        name: ``trainer.device``. The number of ``"cuda:<number>"`` counts only for a single process.
        placement: place of this process in the process group, if it is one of several.
    """
    device = resolve_device(name)
    if placement is None or device.type == "cpu":
        return device
    count, local_rank = torch.cuda.device_count(), placement.local_rank
    if local_rank >= count:
        there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ConfigError(
            f"LOCAL_RANK: process {local_rank} of this machine has no GPU: there are {count} ({there}); start no more "
            f"than {count} here (torchrun --nproc_per_node={count})"
        )
    return torch.device("cuda", local_rank)


def share_processors(placement: Placement) -> int:
    """Let torch use this process's share of the processors, unless ``OMP_NUM_THREADS`` is set; return the share."""
    share = max(1, count_processors() // placement.local_world_size)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(share)
    return share


class FailedProcessError(CommandFailedError):
    """A process of a local training has failed; the exit code is 2 for a wrong config."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = 2 if code == 2 else 1


def start_local_processes(count: int, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call a function in several processes of one training on this machine, and return what rank 0's returns.

    They meet in a folder that only this user can read, and communicate over the loopback interface: nothing listens on
    a network. If one fails, the others are ended; if this process ends, they end too.
    """
    # It reaches this machine alone; on macOS its name is lo0.
    interface = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if interface is None:
        raise ConfigError(
            "trainer.distributed: several processes are started on Linux and macOS only; leave out --processes and "
            "--distributed, or set trainer.distributed=false"
        )
    received: list[int] = []
    context: ProcessContext | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for pid in [] if context is None else context.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="embodichain_") as folder, signals_to(forward):
        with starting_workers():
            arguments = (count, folder, interface, function, results)
            context = start_processes(_run_rank, arguments, count, join=False, start_method="spawn")
        try:
            while not context.join(grace_period=_GRACE):
                pass
        except ProcessExitedException as error:
            if not received:
                message = f"the training has failed: rank {error.error_index}: {error} (see above)"
                raise FailedProcessError(message, error.exit_code) from None
        finally:
            for process in context.processes:
                process.kill()
        if received:
            raise InterruptedTraining(received[0])
        summary: dict[str, Any] = results.get()
        return summary


def _run_rank(
    rank: int, count: int, folder: str, interface: str, function: Callable[[], dict[str, Any]], results: Any
) -> None:
    os.setsid()  # Ctrl-C then reaches this process once, through its parent
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {RENDEZVOUS: folder, "GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    os.environ |= {name: str(number) for name, number in numbers.items()}

    def run() -> int:
        with printing_may_fail():
            summary = function()
        if rank == 0:
            results.put(summary)
        return 0

    if code := run_command(run, OPTION in sys.argv):
        sys.exit(code)


def record_launch(folder: Path, launch: Launch) -> None:
    """Write the launch into a run's folder, for processes that torchrun restarts."""
    write_json(folder / _RECORD, asdict(launch))


def find_launched_run(exp_name: str | None, placement: Placement, is_restart: bool) -> Path | None:
    """Return the newest run folder of this launch; None if none has a checkpoint.

    Args:
        exp_name: experiment's name; None: any.
        is_restart: whether torchrun has restarted any machine's processes. An equal run id alone is no sign of it:
            people reuse them.
    """
    own, found = placement.launch, []
    if own is None:
        return None
    for path in Path("outputs").glob(f"{'' if exp_name is None else exp_name + '_'}*/{_RECORD}"):
        launch = Launch(**json.loads(path.read_text(encoding="utf-8")))
        is_same = launch == own or (is_restart and "none" != launch.run_id == own.run_id)
        if is_same and any((path.parent / "checkpoints").glob("*.pt")):
            found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None
