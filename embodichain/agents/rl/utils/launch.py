"""How the processes of a training come about: by torchrun, by a launcher that sets its variables, or from here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from embodichain.agents.rl.utils.checkpoint import write_json
from embodichain.agents.rl.utils.config import resolve_device
from embodichain.agents.rl.utils.stop import InterruptedTraining
from embodichain.utils import ConfigError

__all__ = [
    "Launch",
    "Placement",
    "as_arguments",
    "find_launched_run",
    "num_devices",
    "processor_share",
    "rank_device",
    "record_launch",
    "share_processors",
    "start_local_processes",
]

_RECORD = "launch.json"


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
    """Which of the training's processes this is, as torchrun says by environment variables.

    Attributes:
        rank: its number.
        world_size: how many there are.
        local_rank: its number on this machine.
        local_world_size: how many there are on this machine.
        restarts: how often torchrun has started this machine's processes again.
        launch: what it was started with.
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
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                if world_size == 1:
                    return None
                raise ConfigError(f"{name}: RANK and WORLD_SIZE are set, so this must be too: where the processes meet")
        if rank >= world_size:
            raise ConfigError(f"RANK: must be less than WORLD_SIZE, got {rank} and {world_size}")
        launch = Launch(environment.get("TORCHELASTIC_RUN_ID", "none"), _parent())
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


def start_local_processes(count: int, arguments: Sequence[str]) -> Path:
    """Run a training in several processes on this machine, by torchrun, and wait for its end.

    Args:
        count: how many.
        arguments: of the command line; ``--distributed`` is added.

    Returns:
        The run's folder.

    Raises:
        InterruptedTraining: a signal came; it was handed on.
        subprocess.CalledProcessError: the training failed; it has said why.
    """
    run_id = str(uuid.uuid4())
    torchrun = ["torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={run_id}"]
    own = ["-m", "embodichain.agents.rl.train", *arguments, "--distributed"]
    command = [sys.executable, "-m", *torchrun, f"--nproc-per-node={count}", *own]
    environment = {"OMP_NUM_THREADS": str(processor_share(count))} | os.environ
    received: list[int] = []
    # In a session of its own: Ctrl-C then reaches it once, by us.
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:

        def hand_on(number: int, frame: FrameType | None) -> None:
            received.append(number)
            process.send_signal(number)

        before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if received:
        raise InterruptedTraining(received[0])
    if code:
        raise subprocess.CalledProcessError(code, command)
    (path,) = [path for path in Path("outputs").glob(f"*/{_RECORD}") if _read(path).get("run_id") == run_id]
    return path.parent


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
