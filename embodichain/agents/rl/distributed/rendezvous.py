"""How the processes of a training find each other. Only this and ``process_group.py`` import torch.distributed."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from datetime import timedelta
from pathlib import Path

from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from embodichain.agents.rl.distributed.heartbeat import LostProcessError
from embodichain.utils import ConfigError

RENDEZVOUS = "EMBODICHAIN_RENDEZVOUS"
"""The environment variable with the folder in which the processes of one machine meet; unset: they meet by network."""

_JOIN_TIMEOUT = timedelta(minutes=5)  # to wait for processes that have not started yet


def rendezvous_folder() -> Path | None:
    """Return the folder in which the processes of one machine meet; None: by network."""
    folder = os.environ.get(RENDEZVOUS)
    return None if folder is None else Path(folder)


def meet() -> tuple[Store, int, int]:
    """Wait for the other processes; return the store that all share, this one's rank, and the number of processes.

    Raises:
        ConfigError: an environment variable is missing or wrong.
        LostProcessError: some process did not come.
    """
    store: Store
    try:
        if (folder := rendezvous_folder()) is None:
            store, rank, world_size = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
        else:
            rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            store = FileStore(str(folder / "store"), world_size)
    except ValueError as error:
        said = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        raise ConfigError(
            f"the processes cannot meet by the environment variables that a launcher such as torchrun sets, which are "
            f"{said}: {str(error).splitlines()[0]}"
        ) from error
    return PrefixStore(_agree_on_name(store, rank, world_size), store), rank, world_size


def _agree_on_name(store: Store, rank: int, world_size: int) -> str:
    """Return a name that only the processes of this start share: torchrun's store outlives a restart, with its keys."""
    greetings = [f"embodichain/greeting/{r}" for r in range(world_size)]
    store.set(greetings[rank], uuid.uuid4().hex)
    deadline = time.monotonic() + _JOIN_TIMEOUT.total_seconds()
    while time.monotonic() < deadline:
        if store.check(greetings):
            # A process that reads an old greeting gets another name, to which the restarted process never agrees.
            name = hashlib.sha256(b"".join(store.multi_get(greetings))).hexdigest()
            store.set(f"embodichain/agreed/{name}/{rank}", "")
            if store.check([f"embodichain/agreed/{name}/{r}" for r in range(world_size)]):
                return name
        time.sleep(0.05)
    raise LostProcessError(f"not all of the {world_size} processes have come within {_JOIN_TIMEOUT}")
