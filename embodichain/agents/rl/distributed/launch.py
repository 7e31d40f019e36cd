"""How the processes of a training come about: by torchrun, by a launcher that sets its variables, or from here."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from embodichain.agents.rl.distributed import RENDEZVOUS
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.utils import ConfigError
from embodichain.utils.device import resolve_device
from embodichain.utils.files import write_json
from embodichain.utils.parent import with_this_parent

__all__ = [
    "SIGNALS",
    "FailedProcessError",
    "Launch",
    "Placement",
    "as_arguments",
    "find_launched_run",
    "hand_back",
    "num_devices",
    "processor_share",
    "rank_device",
    "record_launch",
    "share_processors",
    "start_local_processes",
]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Those that ask for an end, which whoever has started trainings hands on to them."""

_RECORD = "launch.json"
_SUMMARY = "summary.json"
_ERROR = "error_{}.json"
_POLL = 0.1  # s between two looks whether a process has ended
_GRACE = 30.0  # s that the others have for an end of their own once one has failed


class FailedProcessError(RuntimeError):
    """A process of a local training has failed.

    Attributes:
        code: its exit code; negative: minus the signal that has ended it.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Failed(NamedTuple):
    """A process that has ended with another code than 0."""

    rank: int
    pid: int
    code: int


@dataclass(frozen=True)
class Launch:
    """What was started together; a process that replaces one that failed belongs to the same.

    Attributes:
        run_id: torchrun's ``--rdzv-id``; ``"none"`` where it was given none.
        agent: what started rank 0: its host, process id and start time.
    """

    run_id: str
    agent: str


@dataclass(frozen=True)
class Placement:
    """Which of the training's processes this is, as what has started it says by environment variables.

    Attributes:
        rank: its number.
        world_size: how many there are.
        local_rank: its number on this machine.
        local_world_size: how many there are on this machine.
        restarts: how often torchrun has started this machine's processes again.
        launch: what it was started with; None where ``start_local_processes`` did it, which never starts it again.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restarts: int = 0
    launch: Launch | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Placement | None:
        """Return it, or None where no launcher has set ``RANK`` and ``WORLD_SIZE``.

        Raises:
            ConfigError: a variable is missing or no number.
        """
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return None

        def number(name: str, default: int | None = None) -> int:
            text = environment.get(name, "" if default is None else str(default))
            if not text.isdecimal():
                raise ConfigError(f"{name}: a launcher such as torchrun sets it to a number, got '{text}'")
            return int(text)

        rank, world_size = number("RANK"), number("WORLD_SIZE")
        is_local = RENDEZVOUS in environment  # see start_local_processes
        for name in () if is_local else ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                if world_size == 1:
                    return None
                raise ConfigError(f"{name}: RANK and WORLD_SIZE are set, so this must be too: where the processes meet")
        if not is_local and not 0 < number("MASTER_PORT") < 2**16:
            raise ConfigError(f"MASTER_PORT: must be from 1 to 65535, got {environment['MASTER_PORT']}")
        if rank >= world_size:
            raise ConfigError(f"RANK: must be less than WORLD_SIZE, got {rank} and {world_size}")
        launch = None if is_local else Launch(environment.get("TORCHELASTIC_RUN_ID", "none"), _parent())
        return cls(
            rank,
            world_size,
            number("LOCAL_RANK"),
            number("LOCAL_WORLD_SIZE", 1),
            number("TORCHELASTIC_RESTART_COUNT", 0),
            launch,
        )


def rank_device(name: str, local_rank: int) -> torch.device:
    """Return the device of one of several processes: the CPU for all, or each its own GPU.

    Args:
        name: ``trainer.device``. Of ``"cuda:<number>"`` the number says nothing here.
        local_rank: number of the process on its machine.

    Raises:
        ConfigError: there is no such device here.
    """
    device = resolve_device(name)
    if device.type == "cpu":
        return device
    count = torch.cuda.device_count()
    if local_rank >= count:
        there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ConfigError(
            f"LOCAL_RANK: process {local_rank} of this machine has no GPU: there are {count} ({there}); start no more "
            f"than {count} here (torchrun --nproc_per_node={count})"
        )
    return torch.device("cuda", local_rank)


def num_devices(device: torch.device) -> int:
    """Return how many processes can have one like this each: as many as there are GPUs, or one on the CPU."""
    return 1 if device.type == "cpu" else torch.cuda.device_count()


def processor_share(local_world_size: int) -> int:
    """Return how many processors each of the processes on this machine may keep busy."""
    return max(1, len(os.sched_getaffinity(0)) // local_world_size)


def share_processors(placement: Placement) -> int:
    """Let torch use this process's share of the processors, unless ``OMP_NUM_THREADS`` says how many; return it."""
    share = processor_share(placement.local_world_size)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(share)
    return share


def as_arguments(
    config_path: str | None,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    resume: str | None,
    allowed_writes: Sequence[str],
) -> list[str]:
    """Return the command line that says the same."""
    config = [] if config_path is None else ["--config", config_path]
    imports = [argument for prefix in allowed_imports for argument in ("--allow-import", prefix)]
    writes = [argument for folder in allowed_writes for argument in ("--allow-write", folder)]
    return [*config, *imports, *writes, *([] if resume is None else ["--resume", resume]), *overrides]


def record_launch(folder: Path, launch: Launch) -> None:
    """Note in a run's folder what works on it, for processes that are started again."""
    write_json(folder / _RECORD, asdict(launch))


def find_launched_run(exp_name: str | None, placement: Placement, is_restart: bool) -> Path | None:
    """Return the folder of the run that this launch works on, the newest one; None where none has a checkpoint.

    Args:
        exp_name: of the run; None: any.
        placement: of rank 0.
        is_restart: whether torchrun has started any machine's processes again. A run id that was given anew is no sign
            of it: people reuse them.
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
    """Run a training in several processes on this machine, and wait for its end.

    They meet in a folder that this user alone can read, and talk over the loopback interface: nothing listens on a
    network. If one fails, the others are ended; if this process is gone, they end by themselves.

    Args:
        count: how many.
        arguments: of the command line; ``--distributed`` is added.

    Returns:
        The run's summary.

    Raises:
        InterruptedTraining: a signal came; it was handed on.
        FailedProcessError: a process failed; it has said why.
    """
    command = [sys.executable, "-m", "embodichain.agents.rl.train", *arguments, "--distributed"]
    received: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for process in processes:
            process.send_signal(number)

    with tempfile.TemporaryDirectory(prefix="embodichain_") as name, _signals_to(hand_on):
        folder = Path(name)
        try:
            for rank in range(count):
                # In a session of its own: Ctrl-C then reaches it once, by us.
                own = os.environ | _rank_variables(rank, count, folder)
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
    """Give a run's summary to the process that has started this one by ``start_local_processes``, if it was so."""
    folder = os.environ.get(RENDEZVOUS)
    if folder is None:
        return False
    write_json(Path(folder) / _SUMMARY, dict(summary))
    return True


def _rank_variables(rank: int, count: int, folder: Path) -> dict[str, str]:
    """Return the environment variables of a local process."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    return {
        **with_this_parent(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(processor_share(count))),
        RENDEZVOUS: str(folder),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_ERROR_FILE": str(folder / _ERROR.format(rank)),  # where join_ranks says why it fails
        **{name: str(number) for name, number in numbers.items()},
    }


@contextmanager
def _signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler have the signals that end a training; they are the main thread's, in another this does nothing."""
    is_main = threading.current_thread() is threading.main_thread()
    # One that is ignored, as by nohup, stays so.
    taken = [number for number in SIGNALS if is_main and signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in taken}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _wait(processes: Sequence[subprocess.Popen[bytes]], received: Sequence[int]) -> list[_Failed]:
    """Return when all have ended: those that were seen to fail first. The others are ended then."""
    failed: list[_Failed] = []
    deadline = math.inf
    while any(process.poll() is None for process in processes):
        codes = [process.poll() for process in processes]
        if not failed and not received and any(codes):
            failed = _nonzero(processes)
            deadline = time.monotonic() + _GRACE
            for process in processes:
                process.terminate()  # it may wait for those that are gone
        if time.monotonic() > deadline:
            return failed
        time.sleep(_POLL)
    return failed or _nonzero(processes)


def _nonzero(processes: Sequence[subprocess.Popen[bytes]]) -> list[_Failed]:
    return [
        _Failed(rank, process.pid, process.returncode) for rank, process in enumerate(processes) if process.returncode
    ]


def _failure(failed: Sequence[_Failed], folder: Path) -> FailedProcessError:
    """Return the error that names the process whose failure made the others fail, as far as that can be told."""
    reasons = {each.rank: _read(folder / _ERROR.format(each.rank)).get("message", {}) for each in failed}
    told = [each for each in failed if reasons[each.rank]]  # one that has only lost the others does not tell
    killed = [each for each in failed if each.code < 0]
    first = (told or killed or failed)[0]
    how = f"was ended by {signal.Signals(-first.code).name}" if first.code < 0 else f"failed (exit code {first.code})"
    why = str(reasons[first.rank].get("message", "see above")) if told else "see above"
    message = f"the training has failed: rank {first.rank} (process {first.pid}) {how}: {why}"
    return FailedProcessError(message, first.code)


def _parent() -> str:
    """Return host, process id and start time (in the kernel's ticks) of the process that has started this one."""
    pid = os.getppid()
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return f"{socket.gethostname()}:{pid}:{fields[19]}"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
