"""Rank, device and share of the processors of this process, from the launcher's environment variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from embodichain.utils import ConfigError, logger
from embodichain.utils.device import resolve_device
from embodichain.utils.system import count_processors, process_start

RENDEZVOUS = "EMBODICHAIN_RENDEZVOUS"
"""The environment variable with the folder in which the processes of one machine meet; unset: they meet by network."""


@dataclass(frozen=True)
class Launch:
    """Identity of a launch by torchrun; a restarted process has the same.

    Attributes:
        run_id: torchrun's ``--rdzv-id``; ``"none"`` if unset.
        agent: host, process id and start time of the process that started rank 0.
    """

    run_id: str
    agent: str


@dataclass(frozen=True)
class Placement:
    """Place of this process in the training, from the launcher's environment variables.

    Attributes:
        rank, world_size: number of this process, and of all.
        local_rank, local_world_size: the same on this machine.
        restarts: how often torchrun has restarted this machine's processes.
        launch: None if started by ``start_local_processes``, which restarts nothing.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restarts: int = 0
    launch: Launch | None = None

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, distributed: bool | None = None
    ) -> Placement | None:
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
        placement: of this process, if it is one of several.
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
