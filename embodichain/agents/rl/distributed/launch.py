"""Starts the processes of a training on this machine, and finds the run of processes that torchrun has restarted."""

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, start_processes

from embodichain.agents.rl.distributed.placement import RENDEZVOUS, Launch, Placement
from embodichain.agents.rl.distributed.stop import InterruptedTraining, signals_to
from embodichain.utils import CommandFailedError, ConfigError, write_json
from embodichain.utils.border import OPTION, printing_may_fail, run_command
from embodichain.utils.system import loopback_interface, starting_workers

_RECORD = "launch.json"
_GRACE = 30.0  # s that the others have to end by themselves once one has failed


class FailedProcessError(CommandFailedError):
    """A process of a local training has failed; the exit code is 2 for a wrong config."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = 2 if code == 2 else 1


def start_local_processes(count: int, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call a function in several processes of one training on this machine, and return what rank 0's returns.

    They meet in a folder that only this user can read, and communicate over the loopback interface: nothing listens on
    a network. If one fails, the others are ended; if this process ends, they end too.

    Raises:
        InterruptedTraining: a signal came; it was forwarded.
        FailedProcessError: a process failed.
        ConfigError: this system has no known loopback interface.
    """
    interface = loopback_interface()
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
        exp_name: of the run; None: any.
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
