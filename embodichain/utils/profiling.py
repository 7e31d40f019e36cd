"""Profiling of a training: a tree of timed code sections, and a trace of one iteration.

``with section("physics"):``, or ``@section("physics")`` above a function, is a section inside the open one.
While no profiler is started it does nothing.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ContextDecorator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, record_function

from embodichain.utils.files import write_atomically, write_json

TRACED_ITERATION = 3  # the first ones allocate and warm up
_active: "Profiler | None" = None


class section(ContextDecorator):  # noqa: N801 (used like a function)
    """Times the block as a child of the enclosing section, while a profiler is started."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if _active is not None:
            _active.enter(self.name)

    def __exit__(self, *error: object) -> None:
        if _active is not None:
            _active.leave(self.name)


@dataclass
class Section:
    """Time, with its children's, and calls of one section; the inner sections by name."""

    seconds: float = 0.0
    calls: int = 0
    children: "dict[str, Section]" = field(default_factory=dict)


class Profiler:
    """Times the sections that are opened between :meth:`start` and :meth:`stop`, in all threads.

    Times are the host's: work on a GPU counts where the host launches it and where it waits for results. Each thread
    has a separate tree.

    Args:
        folder: run's folder; ``profile.txt``, ``profile.json`` and ``profile_trace.json`` go there.
        is_traced: also trace one ``iteration``, for ``chrome://tracing`` or https://ui.perfetto.dev; it is not counted.
    """

    def __init__(self, folder: Path, is_traced: bool = False) -> None:
        self.threads: dict[str, Section] = {}
        """The sections of each thread, by its name."""
        self._folder = folder
        self._iterations_to_trace = TRACED_ITERATION if is_traced else 0
        self._trace: torch.profiler.profile | None = None
        self._local = threading.local()

    def start(self) -> None:
        """Time sections from now on, in place of any other profiler."""
        global _active
        _active = self

    def stop(self) -> None:
        """Stop timing and write the report into the run's folder."""
        global _active
        _active = None
        data = {name: asdict(root)["children"] for name, root in self.threads.items()}
        text = self.report() + "\n"
        write_json(self._folder / "profile.json", data, indent=2)
        write_atomically(self._folder / "profile.txt", lambda file: file.write(text.encode()))

    def enter(self, name: str) -> None:
        """Enter a section inside this thread's current one."""
        if name == "iteration" and self._iterations_to_trace:
            self._iterations_to_trace -= 1
            if not self._iterations_to_trace:
                cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
                self._trace = torch.profiler.profile(activities=[ProfilerActivity.CPU, *cuda])
                self._trace.start()
        stack = self._stack()
        parent, *_ = stack[-1]
        if self._trace is not None:
            record = record_function(name)
            record.__enter__()
            stack.append((parent, 0.0, record))
        else:
            stack.append((parent.children.setdefault(name, Section()), time.perf_counter(), None))

    def leave(self, name: str) -> None:
        """Leave the section that was entered last in this thread."""
        stack = self._stack()
        if len(stack) == 1:
            return  # it was entered before the start
        entered, start, record = stack.pop()
        if record is None:
            entered.seconds += time.perf_counter() - start
            entered.calls += 1
            return
        record.__exit__(None, None, None)
        if name == "iteration" and self._trace is not None:
            self._trace.stop()
            self._trace.export_chrome_trace(str(self._folder / "profile_trace.json"))
            self._trace = None

    def report(self) -> str:
        """Return a table of all sections, for each thread."""
        lines = [f"{'section':44}{'seconds':>10}{'share':>8}{'calls':>10}{'ms a call':>11}"]
        for thread, root in self.threads.items():
            total = sum(child.seconds for child in root.children.values())
            if len(self.threads) > 1:
                lines.append(f"thread {thread}")
            lines += [line for name, child in root.children.items() for line in _lines(name, child, total, 0)]
        return "\n".join(lines)

    def _stack(self) -> list[tuple[Section, float, record_function | None]]:
        if not hasattr(self._local, "stack"):
            root = self.threads.setdefault(threading.current_thread().name, Section())
            self._local.stack = [(root, 0.0, None)]
        stack: list[tuple[Section, float, record_function | None]] = self._local.stack
        return stack


def _lines(name: str, section: Section, total: float, depth: int) -> Iterator[str]:
    yield _line(name, section.seconds, total, depth, section.calls)
    for child_name, child in sorted(section.children.items(), key=lambda item: -item[1].seconds):
        yield from _lines(child_name, child, total, depth + 1)
    if section.children:
        own = section.seconds - sum(child.seconds for child in section.children.values())
        yield _line("(itself)", own, total, depth + 1, section.calls)


def _line(name: str, seconds: float, total: float, depth: int, calls: int) -> str:
    share, each = seconds / total if total else 0.0, 1e3 * seconds / max(calls, 1)
    return f"{'  ' * depth + name:44}{seconds:10.3f}{share:8.1%}{calls:10,}{each:11.3f}"
