"""The border of every command: an exception becomes one line and an exit code; output that fails is no error."""

import math
import os
import sys
import sysconfig
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from embodichain.utils.errors import CommandFailedError, ConfigError, UnavailableError

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
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong usage or config, 129, 130, 143 interrupted."""
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
    frames: list[traceback.FrameSummary] = []
    cause: BaseException | None = error
    while cause is not None:
        frames += reversed(traceback.extract_tb(cause.__traceback__))
        cause = cause.__cause__
    return frames


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).resolve().is_relative_to(_PACKAGE)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr)


def format_finite(value: float | None) -> str:
    """Return a number with four digits, or "not finite" for NaN, infinity and None, which files have for these."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "not finite"


class _UnfailingStream:
    """A text stream that ignores failed writes; all other attributes are the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks become escapes such as ``\\xfc``."""
        with suppress(OSError, ValueError):  # a ValueError where the stream is closed
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Write the buffer, as far as possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printing_may_fail() -> Iterator[None]:
    """Let no write to ``sys.stdout`` or ``sys.stderr`` raise inside the block.

    It covers ``print``, ``warnings``, ``logging`` and rich, also in users' code, and can be nested. Failed writes are
    repeated by the stream's buffer, or lost.
    """
    replaced = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _UnfailingStream):
            own = _UnfailingStream(stream)
            setattr(sys, name, own)
            replaced.append((name, own, stream))
    try:
        yield
    finally:
        for name, own, stream in replaced:
            if getattr(sys, name) is own:  # else it was replaced inside the block
                setattr(sys, name, stream)


def discard_unwritten_output() -> None:
    """Discard unwritten output at a program's end; the interpreter would exit with 120 because of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # a stream without a descriptor, or one that is closed
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, stream.fileno())
                os.close(devnull)
                stream.flush()


def end_quietly_when_interrupted() -> None:
    """Let an uncaught Ctrl-C print one line and no traceback, in a program with slow imports.

    The process ends by the signal, which a shell shows as 130.
    """

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = show
