"""SIGKILL at every file operation of a training, and a check that the resumed training has the same result.

An operation changes a run's folder: opening for writing, writing half of an atomic file and the other half, flushing to
the disk, renaming, deleting, making a folder. The interpreter's audit hooks report them, whatever code makes them. A
kill before the n-th operation, for every n, leaves each state that a folder can be found in.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.fault_runs import (
    CONFIG,
    BrokenPromiseError,
    Training,
    check_equals,
    check_logs,
    check_saves,
    check_segments,
    expect,
    run_of,
    start,
    write_config,
)
from embodichain.agents.rl.checkpoint import file as checkpoint
from embodichain.utils import files
from embodichain.utils.utility import load_json

__all__ = ["KillAt", "Kind", "every_operation", "rl_kind"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_LIST = "operations.txt"


class KillAt:
    """Kills its own process at the n-th operation on files below a folder, and lists the operations until then."""

    def __init__(self, count: int, folder: str) -> None:
        """Set up.

        Args:
            count: n; 0: never.
            folder: relative to the working directory of the process.
        """
        self._left = count
        self._folder = folder

    def arm(self) -> None:
        """Count from now on, in this process."""
        self._list = os.open(_LIST, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        sys.addaudithook(self._hear)
        fsync, opened = os.fsync, open

        def counted_fsync(descriptor: int) -> None:
            self._tick("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)

        def open_halves(path: Path, *args: Any, **kwargs: Any) -> Any:
            return _Halves(opened(path, *args, **kwargs), lambda: self._tick("write", str(path)))

        os.fsync = counted_fsync
        files.open = open_halves  # type: ignore[attr-defined]  # what write_atomically finds before the built-in

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        is_change = event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING)
        if is_change and isinstance(args[0], str | os.PathLike):
            path = os.fspath(args[0])
            if isinstance(path, str) and path.startswith(self._folder):
                self._tick(event.removeprefix("os."), path)

    def _tick(self, what: str, path: str) -> None:
        os.write(self._list, f"{what} {path}\n".encode())
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _Halves:
    """A file whose writes are made in two halves, with a tick after each."""

    def __init__(self, file: IO[bytes], tick: Callable[[], None]) -> None:
        self._file, self._tick = file, tick

    def __enter__(self) -> _Halves:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> None:
        view = memoryview(data)
        for part in (view[: len(view) // 2], view[len(view) // 2 :]):
            self._file.write(part)
            self._file.flush()
            self._tick()


@dataclass(frozen=True)
class Kind:
    """A kind of training.

    Attributes:
        outputs: the folder that it writes into, in its working directory.
        begin: starts one in a folder; ``prepare`` is called in its process first.
        go_on: continues after a kill, or starts again if there is nothing to continue from.
        check: raises BrokenPromiseError unless the finished training in the first folder equals that in the second.
    """

    outputs: str
    begin: Callable[[Path, Callable[[], object]], Training]
    go_on: Callable[[Path, Callable[[], object]], Training]
    check: Callable[[Path, Path], None]


def every_operation(folder: Path, kind: Kind, most: int | None = None) -> str:
    """Kill a training at each of its file operations, continue and compare; then the same for the continued one.

    Args:
        folder: an empty one.
        kind: of training.
        most: maximum number of kills of each of the two, spread evenly; None: all.

    Raises:
        BrokenPromiseError: something was lost.
    """
    whole = folder / "whole"
    whole.mkdir()
    expect(kind.begin(whole, KillAt(0, kind.outputs).arm).wait().code == 0, "the run without faults failed")
    in_training = _count(whole)
    for n in _spread(in_training, most):
        case = folder / f"training_{n}"
        case.mkdir()
        _kill(kind.begin(case, KillAt(n, kind.outputs).arm), n)
        _finish(kind, case, whole, f"killed at operation {n}, {_last(case)}")
    # In the middle of the training, where it is resumed from a checkpoint that is not the best one.
    killed = folder / "killed"
    killed.mkdir()
    _kill(kind.begin(killed, KillAt(in_training * 2 // 3, kind.outputs).arm), 0)
    resumed = shutil.copytree(killed, folder / "resumed")
    expect(kind.go_on(resumed, KillAt(0, kind.outputs).arm).wait().code == 0, "the resume without faults failed")
    in_resume = _count(resumed)
    for n in _spread(in_resume, most):
        case = shutil.copytree(killed, folder / f"resume_{n}")
        _kill(kind.go_on(case, KillAt(n, kind.outputs).arm), n)
        _finish(kind, case, whole, f"its resume killed at operation {n}, {_last(case)}")
    kills = len(_spread(in_training, most)) + len(_spread(in_resume, most))
    return f"{kills} kills at the {in_training} operations of a training and {in_resume} of a resume; nothing was lost"


def _spread(count: int, most: int | None) -> Sequence[int]:
    numbers = range(1, count + 1)
    return numbers if most is None or most >= count else [numbers[i * count // most] for i in range(most)]


def _kill(training: Training, n: int) -> None:
    training.wait()
    expect(training.code == -signal.SIGKILL, f"operation {n}: ended with {training.code}: {training.printed[-300:]}")


def _finish(kind: Kind, case: Path, whole: Path, what: str) -> None:
    try:
        training = kind.go_on(case, lambda: None).wait()
        expect(training.code == 0, f"the continued training ended with {training.code}: {training.printed[-300:]}")
        kind.check(case, whole)
    except BrokenPromiseError as broken:
        raise BrokenPromiseError(f"{what}: {broken}") from broken
    shutil.rmtree(case)


def _count(folder: Path) -> int:
    return len((folder / _LIST).read_text(encoding="utf-8").splitlines())


def _last(folder: Path) -> str:
    return (folder / _LIST).read_text(encoding="utf-8").splitlines()[-1]


# --- reinforcement learning ---


def rl_kind(folder: Path, base: dict[str, Any], iterations: int) -> Kind:
    """Return small trainings that evaluate after each iteration and have one checkpoint beside the best one.

    Args:
        folder: where their config is written.
        base: of the config.
        iterations: of each.
    """
    env = load_json(CONFIG) | {"max_episode_steps": 3}
    config = folder / write_config(
        folder,
        base,
        gym_config=env,
        iterations=iterations,
        keep_last=1,
        enable_eval=True,
        eval_freq="1 it",
        num_eval_envs=2,
        num_eval_episodes=2,
    )

    def begin(case: Path, prepare: Callable[[], object]) -> Training:
        return start(case, "--config", str(config), prepare=prepare)

    def go_on(case: Path, prepare: Callable[[], object]) -> Training:
        if list(case.glob("outputs/*/checkpoints/*.pt")):
            return start(case, "--resume", "latest", prepare=prepare)
        shutil.rmtree(case / "outputs", ignore_errors=True)
        (case / "journal.txt").unlink(missing_ok=True)
        return begin(case, prepare)

    return Kind("outputs", begin, go_on, check_run)


def check_run(case: Path, whole: Path) -> None:
    """Compare a finished training with one without faults: policy, logs, the best checkpoint and all files."""
    check_logs(case, check_saves(case))
    check_equals(case, whole)
    check_segments(case)
    ours, theirs = run_of(case), run_of(whole)
    names = [sorted(path.name for path in [*run.iterdir(), *run.glob("checkpoints/*")]) for run in (ours, theirs)]
    expect(names[0] == names[1], f"the files are {names[0]}, without faults {names[1]}")
    best = [json.loads((run / "checkpoints/best.json").read_text(encoding="utf-8")) for run in (ours, theirs)]
    expect(best[0] == best[1], f"the best checkpoint is {best[0]}, without faults {best[1]}")
    content = checkpoint.load_checkpoint(ours / "checkpoints" / best[0]["file"])
    expect(content["best_success"] == best[0]["success_rate"], "the best checkpoint is another")
