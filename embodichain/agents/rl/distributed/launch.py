"""Starts the processes of a training on this machine, and finds the run of a launcher's processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from embodichain.agents.rl.distributed.placement import Launch, Placement, processor_share
from embodichain.agents.rl.distributed.rendezvous import RENDEZVOUS
from embodichain.agents.rl.distributed.stop import InterruptedTraining, signals_to
from embodichain.utils import ConfigError
from embodichain.utils.errors import CommandFailedError
from embodichain.utils.files import write_json
from embodichain.utils.parent import child_variables
from embodichain.utils.system import forward_signal, loopback_interface

_RECORD = "launch.json"
_SUMMARY = "summary.json"
_ERROR = "error_{}.json"
_POLL = 0.1  # s between two checks for ended processes
_GRACE = 30.0  # s that the others have to end by themselves once one has failed


class FailedProcessError(CommandFailedError):
    """A process of a local training has failed.

    Attributes:
        exit_code: of the command: 2 for a wrong config, else 1.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = 2 if code == 2 else 1


class _Failed(NamedTuple):
    """A process that has ended with an exit code other than 0."""

    rank: int
    pid: int
    code: int


def as_arguments(
    config_path: str | None,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    resume: str | None,
    allowed_writes: Sequence[str],
) -> list[str]:
    """Return the command line of these arguments."""
    config = [] if config_path is None else ["--config", config_path]
    imports = [argument for prefix in allowed_imports for argument in ("--allow-import", prefix)]
    writes = [argument for folder in allowed_writes for argument in ("--allow-write", folder)]
    return [*config, *imports, *writes, *([] if resume is None else ["--resume", resume]), *overrides]


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
        launch = _read(path)
        same_id = is_restart and own.run_id != "none" and launch.get("run_id") == own.run_id
        same_agent = launch.get("agent") == own.agent and launch.get("run_id") == own.run_id
        if (same_id or same_agent) and any((path.parent / "checkpoints").glob("*.pt")):
            found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def start_local_processes(count: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a training in several processes on this machine, and return its summary.

    They meet in a folder that only this user can read, and communicate over the loopback interface: nothing listens on
    a network. If one fails, the others are ended; if this process ends, they end too.

    Args:
        arguments: of the command line; ``--distributed`` is added.

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
    command = [sys.executable, "-m", "embodichain.agents.rl.train", *arguments, "--distributed"]
    received: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for process in processes:
            forward_signal(process, number)

    with tempfile.TemporaryDirectory(prefix="embodichain_") as name, signals_to(forward):
        folder = Path(name)
        try:
            for rank in range(count):
                # In a separate session: Ctrl-C then reaches it once, through us.
                own = os.environ | _rank_variables(rank, count, folder, interface)
                processes.append(subprocess.Popen(command, env=own, start_new_session=True))
            failed = _wait(processes, received)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if received:
            raise InterruptedTraining(received[0])
        if failed:
            raise _failure(failed, folder)
        summary: dict[str, Any] = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
        return summary


def hand_back(summary: Mapping[str, Any]) -> bool:
    """Pass a run's summary to ``start_local_processes``; return whether that started this process."""
    folder = os.environ.get(RENDEZVOUS)
    if folder is None:
        return False
    write_json(Path(folder) / _SUMMARY, dict(summary))
    return True


def _rank_variables(rank: int, count: int, folder: Path, interface: str) -> dict[str, str]:
    """Return the environment variables of a local process."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    return {
        **child_variables(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(processor_share(count))),
        RENDEZVOUS: str(folder),
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "TORCHELASTIC_ERROR_FILE": str(folder / _ERROR.format(rank)),  # where join_process_group says why it fails
        **{name: str(number) for name, number in numbers.items()},
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]], received: Sequence[int]) -> list[_Failed]:
    """Wait for all processes, ending the others once one fails; return the first that failed."""
    failed: list[_Failed] = []
    deadline = math.inf
    while any(process.poll() is None for process in processes):
        codes = [process.poll() for process in processes]
        if not failed and not received and any(codes):
            failed = _nonzero(processes)
            deadline = time.monotonic() + _GRACE
            for process in processes:
                process.terminate()  # it may wait for the failed one
        if time.monotonic() > deadline:
            return failed
        time.sleep(_POLL)
    return failed or _nonzero(processes)


def _nonzero(processes: Sequence[subprocess.Popen[bytes]]) -> list[_Failed]:
    return [
        _Failed(rank, process.pid, process.returncode) for rank, process in enumerate(processes) if process.returncode
    ]


def _failure(failed: Sequence[_Failed], folder: Path) -> FailedProcessError:
    """Return the error that names the process whose failure made the others fail, as far as known."""
    reasons = {each.rank: _read(folder / _ERROR.format(each.rank)).get("message", {}) for each in failed}
    told = [each for each in failed if reasons[each.rank]]  # one that has only lost the others gives no reason
    killed = [each for each in failed if each.code < 0]
    first = (told or killed or failed)[0]
    how = f"was ended by {signal.Signals(-first.code).name}" if first.code < 0 else f"failed (exit code {first.code})"
    why = str(reasons[first.rank].get("message", "see above")) if told else "see above"
    message = f"the training has failed: rank {first.rank} (process {first.pid}) {how}: {why}"
    return FailedProcessError(message, first.code)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
