"""The notice of a run that takes hours on this machine: logged once, with a config that learns the task in minutes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import embodichain
from embodichain.utils import ConfigError, logger
from embodichain.utils.utility import load_config_file

__all__ = ["SlowRunNotice", "find_quickstart"]

ITERATIONS_TO_ESTIMATE = 3  # the first one warms up
HOURS_THAT_ARE_LONG = 2.0

_QUICKSTARTS = "configs/agents/rl/**/train_config_quickstart.json"


class SlowRunNotice:
    """Estimates the time left after the first iterations of a run, of which ``done`` were made before a resume."""

    def __init__(self, iterations: int, done: int, config: Mapping[str, Any]) -> None:
        self._iterations = iterations
        self._done = done
        self._config = config
        self._start = time.monotonic()

    def update(self, iteration: int) -> None:
        """Log the notice, if this is the iteration of the estimate and the rest takes long."""
        made = iteration - self._done
        if made != ITERATIONS_TO_ESTIMATE:
            return
        hours = (time.monotonic() - self._start) / made * (self._iterations - iteration) / 3600
        if hours <= HOURS_THAT_ARE_LONG:
            return
        env_id = self._config.get("gym_config", {}).get("id")
        quickstart = find_quickstart(env_id)
        shorter = f". {env_id} in minutes: embodichain train {quickstart}" if quickstart else ""
        logger.log_info(f"at this speed the training takes {hours:.1f} hours on this machine{shorter}")


def find_quickstart(env_id: object) -> Path | None:
    """Return the config that learns a task in minutes, or None where none is shipped.

    Args:
        env_id: the task's registered name.
    """
    package = Path(embodichain.__file__).parent.parent
    for root in dict.fromkeys((Path(), package)):
        for path in sorted(root.glob(_QUICKSTARTS)):
            # A file in the working directory may be anything.
            with suppress(ConfigError, KeyError, TypeError):
                env = load_config_file(root / load_config_file(path)["trainer"]["gym_config"])
                if env["id"] == env_id:
                    return path
    return None
