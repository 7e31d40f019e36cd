"""Schedules of evaluations and checkpoints."""

import re

from embodichain.utils import ConfigError


def parse_period(period: int | str) -> tuple[int, bool]:
    """Return the number, and whether it counts iterations (``"100 it"``) instead of environment steps.

    Raises:
        ValueError: the period is neither, or not positive.
    """
    match = re.fullmatch(r"\s*(\d+)\s*(it)?\s*", str(period))
    if match is None or int(match[1]) == 0:
        raise ValueError("must be a positive number of steps, or iterations as '100 it'")
    return int(match[1]), match[2] is not None


class Schedule:
    """Fires once at the first check at or past each multiple of a period, by threshold: no multiple is missed.

    Args:
        period: environment steps, or ``"100 it"`` for iterations.
        place: value's place in the config, for the ConfigError of a wrong one.
    """

    def __init__(self, period: int | str, place: str) -> None:
        try:
            self._period, self._counts_iterations = parse_period(period)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}, got {period!r}") from None
        self._next = self._period

    def start_from(self, step: int, iteration: int) -> None:
        """Continue after ``step`` environment steps and ``iteration`` iterations, which were checked already."""
        count = iteration if self._counts_iterations else step
        self._next = (count // self._period + 1) * self._period

    def is_due(self, step: int, iteration: int) -> bool:
        """Return whether to fire now, after ``step`` environment steps and ``iteration`` iterations."""
        count = iteration if self._counts_iterations else step
        if count < self._next:
            return False
        self.start_from(step, iteration)
        return True
