"""This machine: its processor, memory, GPUs and installed versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from embodichain import __version__
from embodichain.utils.errors import ConfigError
from embodichain.utils.system import count_processors, load_average, total_memory

_PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "tensordict", "pydantic", "mujoco-warp")
_ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MUJOCO_GL")
_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a number of bytes, or "max"


def describe_machine() -> dict[str, Any]:
    """Return plain data: the processor, memory, GPUs, threads and versions.

    Sizes are in GB (10^9 bytes); unknown values are None.
    """
    cuda, memory = torch.cuda.is_available(), system_memory()
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": count_processors(),
        "load_average": load_average(),
        "memory_gb": _gigabytes(memory.get("MemTotal", total_memory())),
        "free_memory_gb": _gigabytes(memory.get("MemAvailable")),
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "gpus": [f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB" for gpu in gpus],
        "torch_cuda": torch.version.cuda,
        "torch_threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "versions": {"embodichain-mujoco": __version__, **_versions()},
        "command": " ".join(sys.argv),
    }


def _processor() -> str | None:
    with suppress(OSError):  # not Linux
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if match := re.search(r"^model name\s*: (.*)$", text, re.MULTILINE):
            return match[1]
    return platform.processor() or None


def _gigabytes(size: int | None) -> float | None:
    return None if size is None else round(size / 1e9, 1)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def system_memory() -> dict[str, int]:
    """Return the sizes in ``/proc/meminfo`` by name, bytes; empty if there is no such file."""
    with suppress(OSError):
        sizes = re.findall(r"^(\w+):\s*(\d+) kB$", _MEMINFO.read_text(encoding="utf-8"), re.MULTILINE)
        return {name: 1024 * int(size) for name, size in sizes}
    return {}


def available_memory(device: torch.device | str = "cpu") -> int | None:
    """Return the bytes that can still be allocated on a device; None if unknown.

    On the CPU: free, reclaimable and swap memory, at most the container's limit.
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
    """Check before an allocation that memory suffices.

    Args:
        place: the config's key, for the message.
        wanted: bytes, at least.

    Raises:
        ConfigError: less is available.
    """
    available = available_memory(device)
    if available is not None and wanted > available:
        raise ConfigError(
            f"{place}: {what} take {format_size(wanted)} of memory at least, and {format_size(available)} are available"
        )


def format_megabytes(size: float | None) -> str:
    """Return a size in MB as text; None: unknown."""
    return "unknown" if size is None else f"{size:,.0f} MB"


def format_size(size: int) -> str:
    """Return a number of bytes in GB, or in MB if it is less than 0.1 GB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
