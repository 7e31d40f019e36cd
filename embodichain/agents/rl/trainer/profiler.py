"""Where a training's time goes: a tree of sections, and a trace of one iteration.

Methods are watched by putting a timed one in their place on the object, so that a training that is not profiled pays
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from embodichain.agents.rl.collector import AsyncCollector
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.utils import logger
from embodichain.utils.files import write_atomically, write_json

__all__ = ["Profiler", "Section"]

TRACED_ITERATION = 3  # the first ones allocate and warm up

_TRAINER = {
    "_iterate": "iteration",
    "_collect": "collect",
    "_evaluate": "evaluate",
    "_save": "save",
}
_ENV = {
    "step": "environment",
    "step_chunk": "environment",
    "_step_action": "actions",
    "_update_sim_state": "task state",
    "get_obs": "observations",
    "get_info": "info",
    "get_reward": "rewards",
    "_reset_episodes": "resets",
    "_record": "recording",
}
_ALGORITHM = {"update": "update", "_prepare": "advantages", "loss": "loss"}
_POLICY = {"get_action": "policy", "get_value": "value"}


@dataclass
class Section:
    """One section: how often it was entered, and for how long; sections within it are its children.

    Attributes:
        seconds: in it, its children included.
        calls: how often.
        children: by name, in the order in which they were first entered.
    """

    seconds: float = 0.0
    calls: int = 0
    children: dict[str, Section] = field(default_factory=dict)

    @property
    def own_seconds(self) -> float:
        """In it, but in none of its children."""
        return self.seconds - sum(child.seconds for child in self.children.values())

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        children = {name: child.as_data() for name, child in self.children.items()}
        return {"seconds": self.seconds, "calls": self.calls, "children": children}


class Profiler:
    """Times the parts of a training.

    Times are the host's: where something computes on a GPU they are those of handing the work over, and whoever waits
    for the results has the time of the waiting. Each thread has a tree of its own.

    Args:
        folder: the run's; ``profile.txt``, ``profile.json`` and ``profile_trace.json`` go there.
        is_traced: also trace one iteration, for ``chrome://tracing`` or https://ui.perfetto.dev.
    """

    def __init__(self, folder: Path, is_traced: bool = False) -> None:
        self.threads: dict[str, Section] = {}
        """The sections of each thread, by its name."""
        self._folder = folder
        self._is_traced = is_traced
        self._counts = True
        self._local = threading.local()

    def watch_training(self, trainer: Trainer, envs: Iterable[Any]) -> None:
        """Watch a trainer, its parts, and the environments that it trains in."""
        watched: list[tuple[object, dict[str, str]]]
        watched = [(trainer, _TRAINER), (trainer.algorithm, _ALGORITHM), (trainer.policy, _POLICY)]
        if isinstance(trainer.collector, AsyncCollector):
            watched.append((trainer.collector.inference, _POLICY))
        for env in envs:
            watched += [(env, _ENV), (env.sim, {"update": "physics"})]
        for owner, names in watched:
            for method, name in names.items():
                if hasattr(owner, method):
                    self.watch(owner, method, name)
        optimizer = getattr(trainer.algorithm, "optimizer", None)
        if optimizer is not None:
            self.watch(optimizer, "step", "optimiser")
        if self._is_traced:
            vars(trainer)["_iterate"] = self._tracing(trainer._iterate)

    def watch(self, owner: object, method: str, name: str) -> None:
        """Time a method of an object, as the section ``name`` of whatever section it is called in."""
        call = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.section(name):
                return call(*args, **kwargs)

        setattr(owner, method, timed)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time what is inside as a section of the one that it is in."""
        if not self._counts:
            with record_function(name):
                yield
            return
        stack = self._stack()
        section = stack[-1].children.setdefault(name, Section())
        stack.append(section)
        start = time.perf_counter()
        try:
            yield
        finally:
            section.seconds += time.perf_counter() - start
            section.calls += 1
            stack.pop()

    def report(self) -> str:
        """Return a table of all sections, for each thread."""
        lines = [f"{'section':44}{'seconds':>10}{'share':>8}{'calls':>10}{'ms a call':>11}"]
        for thread, root in self.threads.items():
            total = sum(child.seconds for child in root.children.values())
            if len(self.threads) > 1:
                lines.append(f"thread {thread}")
            lines += [line for name, child in root.children.items() for line in _lines(name, child, total, 0)]
        return "\n".join(lines)

    def save(self) -> None:
        """Write the report into the run's folder; where it cannot be written, say so."""
        data = {name: root.as_data()["children"] for name, root in self.threads.items()}
        text = self.report() + "\n"
        try:
            write_json(self._folder / "profile.json", data, indent=2)
            write_atomically(self._folder / "profile.txt", lambda file: file.write(text.encode()))
        except OSError as error:
            logger.log_warning(f"the profile could not be written: {error}")

    def _stack(self) -> list[Section]:
        if not hasattr(self._local, "stack"):
            root = self.threads.setdefault(threading.current_thread().name, Section())
            self._local.stack = [root]
        stack: list[Section] = self._local.stack
        return stack

    def _tracing(self, iterate: Callable[[], Any]) -> Callable[[], Any]:
        """Return the trainer's iteration, of which one call is traced, and not counted: the trace takes time itself."""
        calls = 0

        def traced() -> Any:
            nonlocal calls
            calls += 1
            if calls != TRACED_ITERATION:
                return iterate()
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._counts = False
            with torch.profiler.profile(activities=activities) as trace:
                result = iterate()
            self._counts = True
            try:
                trace.export_chrome_trace(str(self._folder / "profile_trace.json"))
            except (OSError, RuntimeError) as error:  # torch's own exporter
                logger.log_warning(f"the trace could not be written: {error}")
            return result

        return traced


def _lines(name: str, section: Section, total: float, depth: int) -> Iterator[str]:
    yield _line(name, section.seconds, total, depth, section.calls)
    for child_name, child in sorted(section.children.items(), key=lambda item: -item[1].seconds):
        yield from _lines(child_name, child, total, depth + 1)
    if section.children:
        yield _line("(itself)", section.own_seconds, total, depth + 1, section.calls)


def _line(name: str, seconds: float, total: float, depth: int, calls: int) -> str:
    share, each = seconds / total if total else 0.0, 1e3 * seconds / max(calls, 1)
    return f"{'  ' * depth + name:44}{seconds:10.3f}{share:8.1%}{calls:10,}{each:11.3f}"
