"""TensorBoard's event files, written without a thread: whatever goes wrong is raised where it happens."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

__all__ = ["TensorBoardSink", "check_there"]


class TensorBoardSink:
    """One file of scalars. What :meth:`write` was given is in it when that returns: a killed process loses nothing."""

    name = "TensorBoard"

    def __init__(self, folder: Path, resumed_from: int | None = None) -> None:
        """Begin a file, which readers take after those that are in the folder.

        Args:
            folder: its folder; it is made.
            resumed_from: the step that a resumed run continues from; what older files have beyond it counts no more.

        Raises:
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # Files are read in the order of their names, and a run may be resumed in the second in which it was killed.
        older = (re.match(r"events\.out\.tfevents\.(\d+)\.", file.name) for file in folder.iterdir())
        second = max([int(time.time()), *(int(name[1]) + 1 for name in older if name)])
        path = folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._file = path.open("xb")
        self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if resumed_from is not None:
            self._add(step=resumed_from + 1, session_log=SessionLog(status=SessionLog.START))
        self._file.flush()

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write scalars at a step.

        Raises:
            OSError: that cannot be done, or the file was deleted.
        """
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._add(step=step, summary=Summary(value=values))
        self._file.flush()
        check_there(self._file.fileno())

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _add(self, **content: object) -> None:
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())


def check_there(descriptor: int) -> None:
    """Raise an OSError if an open file has no name any more: what is written into it is lost when it is closed."""
    if os.fstat(descriptor).st_nlink == 0:
        raise OSError("the file was deleted")
