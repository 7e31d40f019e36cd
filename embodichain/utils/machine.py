"""What this machine is, and which versions are installed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from embodichain import __version__

__all__ = ["describe_machine"]

_PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "tensordict", "pydantic", "mujoco-warp")
_ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MUJOCO_GL")


def describe_machine() -> dict[str, Any]:
    """Return plain data: the processor, memory, GPUs, threads and versions.

    Sizes are in GB (10^9 bytes); what the system does not tell is None.
    """
    cuda = torch.cuda.is_available()
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "memory_gb": _memory("MemTotal"),
        "free_memory_gb": _memory("MemAvailable"),
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "gpus": [f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB" for gpu in gpus],
        "torch_cuda": torch.version.cuda,
        "torch_threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "versions": {"embodichain-mujoco": __version__, **_versions()},
        "command": " ".join(sys.argv),
    }


def _processor() -> str | None:
    match = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.processor() or None


def _memory(name: str) -> float | None:
    match = re.search(rf"^{name}:\s*(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE)
    return round(int(match[1]) * 1024 / 1e9, 1) if match else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:  # not Linux
        return ""


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
