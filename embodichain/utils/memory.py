"""How much memory there is, for sizes that a config asks for."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import torch

from embodichain.utils.errors import ConfigError

__all__ = ["available_memory", "check_memory", "system_memory"]

_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a number of bytes, or "max"


def system_memory() -> dict[str, int]:
    """Return the sizes in ``/proc/meminfo`` by name, bytes; an empty dict where the system has no such file."""
    with suppress(OSError):
        sizes = re.findall(r"^(\w+):\s*(\d+) kB$", _MEMINFO.read_text(encoding="utf-8"), re.MULTILINE)
        return {name: 1024 * int(size) for name, size in sizes}
    return {}


def available_memory(device: torch.device | str = "cpu") -> int | None:
    """Return how many bytes can still be allocated on a device; None where the system does not tell.

    On the CPU it is what is free, can be freed or swapped, and not more than the container may have.
    """
    if torch.device(device).type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    sizes = system_memory()
    limits = [sizes["MemAvailable"] + sizes["SwapFree"]] if sizes else []
    with suppress(OSError, ValueError):
        limits.append(int(_CONTAINER_LIMIT.read_text(encoding="utf-8")))
    return min(limits, default=None)


def check_memory(place: str, what: str, wanted: int, device: torch.device | str = "cpu") -> None:
    """Refuse what wants more memory than there is, before it is allocated.

    Args:
        place: what of the config asks for it.
        wanted: bytes, at least.

    Raises:
        ConfigError: it is more than is available.
    """
    available = available_memory(device)
    if available is not None and wanted > available:
        raise ConfigError(
            f"{place}: {what} take {_gigabytes(wanted)} of memory at least, and {_gigabytes(available)} are available"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
