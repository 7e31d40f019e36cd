"""The border of every command: an exception becomes one line and an exit code, its traceback a file."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from embodichain.utils.errors import CommandFailedError, ConfigError, UnavailableError
from embodichain.utils.printing import discard_unwritten_output

OPTION = "--traceback"
OPTION_HELP = "print the traceback of an error"

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<")  # "<": frozen modules
_LONGEST = 400  # letters of an error's message

_run_folder: Path | None = None


def keep_tracebacks_in(folder: Path) -> None:
    """Write the traceback of this command's failure into a folder, the run's, instead of the temporary one."""
    global _run_folder
    _run_folder = folder


def run_command(run: Callable[[], int], prints_traceback: bool) -> int:
    """Run a command and return its exit code.

    The codes are 0 done, 1 failed, 2 wrong usage or config; 129, 130 or 143 interrupted.
    """
    global _run_folder
    _run_folder = None
    try:
        code = run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `embodichain list terms | head`
        code = 0
    except KeyboardInterrupt as interrupt:
        _say("interrupted")
        code = getattr(interrupt, "exit_code", 130)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not _users_frames(error):  # argparse's, with its own message
            raise
        if prints_traceback:
            _say("".join(traceback.format_exception(error)).rstrip())
        _say(f"error: {_message(error, prints_traceback)}")
        code = 2 if isinstance(error, ConfigError) else getattr(error, "exit_code", 1)
    discard_unwritten_output()
    return code


def _message(error: BaseException, prints_traceback: bool) -> str:
    """Return the line for an exception: the config's place if it is known, the exception, the code's place."""
    places = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    if isinstance(error, ConfigError | CommandFailedError | UnavailableError):  # a message for the user
        return f"{places}{error}"
    text = textwrap.shorten(f"{type(error).__name__}: {error}", _LONGEST, placeholder=" ...")
    frame = (_users_frames(error) or list(filter(_is_ours, _frames(error))))[0]
    written = "" if prints_traceback else _written(error)
    return f"{places}{text.rstrip(': ')} in {frame.filename}, line {frame.lineno}{written}"


def _written(error: BaseException) -> str:
    """Write the traceback into a file; return where it is."""
    folder = _run_folder if _run_folder is not None and _run_folder.is_dir() else None
    trace = "".join(traceback.format_exception(error))
    try:
        descriptor, path = tempfile.mkstemp(prefix="traceback_", suffix=".txt", dir=folder, text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(trace)
    except OSError:  # a full disk
        _say(trace)
        return ""
    return f"; traceback in {path}, or {OPTION}"


def _users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in _frames(error) if not (_is_ours(frame) or frame.filename.startswith(_LIBRARIES))]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames that an exception and its causes came through, the innermost first."""
    return [frame for each in _causes(error) for frame in reversed(traceback.extract_tb(each.__traceback__))]


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).resolve().is_relative_to(_PACKAGE)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr)
