"""The settings that a sweep searches, as its command line names them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from embodichain.utils import ConfigError


@dataclass(frozen=True)
class Parameter:
    """A setting to search.

    Attributes:
        choices: its values; empty: the interval from ``low`` to ``high``.
        low, high: of the interval; both int: whole numbers.
        log: whether to draw on a logarithmic scale.
    """

    path: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Its first and last value, and those between if they are listed."""
        return self.choices or (self.low, self.high)

    def suggest(self, trial: Any) -> Any:
        """Return a value for an Optuna trial."""
        if self.choices:
            # Optuna stores numbers and strings only: choices go as JSON text.
            return json.loads(trial.suggest_categorical(self.path, [json.dumps(choice) for choice in self.choices]))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.path, self.low, self.high, log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)


def read_parameter(text: str) -> Parameter:
    """Read ``path=low:high``, ``path=low:high:log`` or ``path=a,b,c``.

    Raises:
        ConfigError: the text has another form.
    """
    path, equals, values = text.partition("=")
    form = ConfigError(f"--param '{text}': must be of the form path=low:high, path=low:high:log or path=a,b,c")
    if not (path and equals and values):
        raise form
    if ":" not in values:
        return Parameter(path, choices=tuple(_read(value) for value in values.split(",")))
    parts = values.split(":")
    if len(parts) > 3 or (len(parts) == 3 and parts[2] != "log"):
        raise form
    ends = [_read(part) for part in parts[:2]]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in ends):
        raise form
    low, high = ends
    is_log = len(parts) == 3
    if low >= high or (is_log and low <= 0):
        raise ConfigError(f"--param '{text}': the lowest value must be below the highest, and above 0 with 'log'")
    return Parameter(path, low=low, high=high, log=is_log)


def plain_values(params: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an Optuna trial, by path, as a config has them."""
    return {path: _read(value) if isinstance(value, str) else value for path, value in params.items()}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
