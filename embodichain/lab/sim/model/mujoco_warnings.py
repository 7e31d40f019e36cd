"""MuJoCo's warnings, which Python would print with lines of our source."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_warnings(lines: list[str]) -> Iterator[None]:
    """Add the warnings in the block to ``lines``, each in one line and once, instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    lines += dict.fromkeys(line for each in caught if (line := " ".join(str(each.message).split())) not in lines)
