"""Spin time of OpenMP's idle threads. This module imports nothing that loads OpenMP."""

from __future__ import annotations

import os
from collections.abc import MutableMapping


def limit_openmp_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch's idle threads sleep after some 0.1 ms, unless ``OMP_WAIT_POLICY`` is set already.

    OpenMP reads these variables once, when it is loaded: call this before torch is imported. Our own entry points do;
    `import embodichain` leaves the process of a user's script as it is.

    By default idle threads spin for milliseconds, and an update is several times slower as soon as another process
    needs a core. Waking a sleeping thread takes longer than a small operation; 2000 spins bridge the gap between two
    operations at little cost.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"  # for OpenMPs other than GNU's, which torch's wheels have
        environment.setdefault("GOMP_SPINCOUNT", "2000")
