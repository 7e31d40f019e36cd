"""What an error says of the term that it is about."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

from torch import Tensor

from embodichain.utils import ConfigError

_PACKAGE, _LIBRARIES = str(Path(__file__).resolve().parents[4]), "site-packages"  # whose lines are not the user's


def name_term(error: Exception, place: str, func: Any) -> None:
    """Say in a note of an error, which its traceback ends with, what term has raised it.

    Args:
        error: with the caller's frame first, and the term's second.
        place: the term's place in the config.
        func: the term.

    Raises:
        ConfigError: it is a key that is not there, or a ConfigError about the term's ``func`` or ``params``, which gets
            the place before it.
    """
    if isinstance(error, ConfigError):
        if str(error).startswith(("func: ", "params.")):
            raise ConfigError(f"{place}.{error}") from error
        return
    where = f"{qualified_name(func)}{_line_of(error)}"
    if isinstance(error, KeyError):
        raise ConfigError(f"{place}: {where}: no such key: {', '.join(map(str, error.args))}") from error
    error.add_note(f"{place}: raised in {where}")


def qualified_name(func: Any) -> str:
    """Return the name of a term's function, class or method, for messages."""
    if inspect.ismethod(func):
        return f"{type(func.__self__).__qualname__}.{func.__name__}"
    return str(getattr(func, "__qualname__", type(func).__qualname__))


def kind_of(value: object) -> str:
    """Return what a term has returned, for messages."""
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _line_of(error: Exception) -> str:
    """Return the line in the user's code, else in ours, from which an error came."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = (frame for frame in frames if not frame.filename.startswith(_PACKAGE) and _LIBRARIES not in frame.filename)
    frame = next(own, frames[0] if frames else None)
    return "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"
