"""Torch on this machine: devices, threads, constants, modes; the machine's memory and description."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embodichain import __version__
from embodichain.utils import logger
from embodichain.utils.errors import ConfigError
from embodichain.utils.system import count_processors

_PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "tensordict", "pydantic", "mujoco-warp")
_ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MUJOCO_GL")
_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a number of bytes, or "max"


def resolve_device(name: str, place: str = "trainer.device") -> torch.device:
    """Return the device ``auto``, ``cpu`` or ``cuda:<number>``; a ConfigError at ``place`` if this machine has none."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(f"{place}: must be 'auto', 'cpu' or 'cuda:<number>', got '{name}'")
    if name == "cpu":
        return torch.device("cpu")
    index, count = int(match[1] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        there = f"there are {count} (cuda:0 to cuda:{count - 1})"
        if not count:
            processor = f"{place} cpu" if place.startswith("--") else f"{place}=cpu"
            there = f"CUDA is not available here. For the processor, add {processor} to the command line"
        raise ConfigError(f"{place}: '{name}' cannot be used: {there}")
    return torch.device("cuda", index)


@lru_cache(maxsize=4096)
def constant(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return (nested) tuples of numbers as a cached tensor; do not write into it."""
    return torch.tensor(values, dtype=dtype, device=device)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def warn_of_spinning_threads() -> None:
    """Warn once if torch's idle threads spin, since it was imported before this package."""
    if torch.get_num_threads() > 1 and not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}:
        logger.log_warning(
            "torch was imported before embodichain, so its idle threads keep cores busy; with other processes running, "
            "updates can be ten times slower. Put 'import embodichain' above the imports of torch and of what uses it, "
            "or call torch.set_num_threads(1)"
        )


@contextmanager
def keeping_modes(network: nn.Module) -> Iterator[None]:
    """Restore the training or evaluation mode of each module of a network at the end of the block.

    ``network.train(was_training)`` would set all modules alike, including parts frozen in evaluation mode.
    """
    modes = [(module, module.training) for module in network.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def describe_machine() -> dict[str, Any]:
    """Return plain data: processor, memory and disk in GB (10^9 bytes), GPUs, threads, versions; None if unknown."""
    cuda, memory = torch.cuda.is_available(), _system_memory()
    gigabytes = {name: round(size / 1e9, 1) for name, size in memory.items()}
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
    processor = platform.processor() or None
    with suppress(OSError):  # not Linux
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if match := re.search(r"^model name\s*: (.*)$", text, re.MULTILINE):
            processor = match[1]
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": processor,
        "cores": count_processors(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_gb": gigabytes.get("MemTotal"),
        "free_memory_gb": gigabytes.get("MemAvailable"),
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "gpus": [f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB" for gpu in gpus],
        "torch_cuda": torch.version.cuda,
        "torch_threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "versions": _versions(),
        "commit": _commit(),
        "command": " ".join(sys.argv),
    }


@cache  # to read a package's metadata takes 10 ms, to start git 50
def _versions() -> dict[str, str]:
    versions = {"embodichain-mujoco": __version__}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@cache
def _commit() -> str | None:
    """Return the commit of the package's checkout, with ``-dirty`` after it for changed files; None outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    if (Path(__file__).parents[2] / ".git").exists():
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    return None


def _system_memory() -> dict[str, int]:
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
    sizes = _system_memory()
    limits = [sizes["MemAvailable"] + sizes["SwapFree"]] if sizes else []
    with suppress(OSError, ValueError):
        limits.append(int(_CONTAINER_LIMIT.read_text(encoding="utf-8")))
    return min(limits, default=None)


def check_memory(place: str, what: str, wanted: int, device: torch.device | str = "cpu") -> None:
    """Raise a ConfigError if less memory is available than the ``wanted`` bytes; ``place`` is the config's key."""
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
