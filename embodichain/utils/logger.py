"""Messages to the user, through the standard logger ``embodichain``."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

_LOGGER = logging.getLogger("embodichain")


class _CurrentStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to the current ``sys.stderr``, so that redirection and capture work."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


if not _LOGGER.handlers:
    _HANDLER = _CurrentStderr()
    _HANDLER.setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
    _LOGGER.addHandler(_HANDLER)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False


def speak_as(rank: int, is_started: bool = False) -> None:
    """Let rank 0 of several processes print all messages, the others errors, and warnings once they are started."""
    if rank:
        _LOGGER.setLevel(logging.WARNING if is_started else logging.ERROR)
        for handler in _LOGGER.handlers:
            handler.setFormatter(logging.Formatter(f"[%(levelname)s] rank {rank}: %(message)s"))


@contextmanager
def without_repeats() -> Iterator[None]:
    """Log each message of the block once."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        count = len(seen)
        seen.add(record.getMessage())
        return len(seen) > count

    _LOGGER.addFilter(is_new)
    try:
        yield
    finally:
        _LOGGER.removeFilter(is_new)


def log_info(message: str) -> None:
    """Log at level INFO."""
    _LOGGER.info(message)


def log_warning(message: str) -> None:
    """Log at level WARNING."""
    _LOGGER.warning(message)


@cache
def warn_once(message: str) -> None:
    """Log at level WARNING, each message once in a process."""
    _LOGGER.warning(message)


def log_error(message: str, error_type: type[Exception] = RuntimeError) -> NoReturn:
    """Raise ``error_type(message)``, as in the original project, where logging an error ends the call."""
    raise error_type(message)
