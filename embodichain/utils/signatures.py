"""What functions can be called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["takes"]


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with so many positional arguments and nothing else; ``self`` counts."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True
