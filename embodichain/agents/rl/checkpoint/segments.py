"""Replay buffers on the disk: each slot is written once, in segments that several checkpoints share.

Legend: N envs.

A segment is a file in a checkpoint's form, in the folder ``replay`` next to the checkpoints. It has a range of
slots of each environment's stream, of which the last one is the head at that time: only its observation is real, and
the next segment has it again. A checkpoint names the segments that its buffers need, in their order, with the digests
of their files.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from embodichain.agents.rl.checkpoint.file import DamagedCheckpointError, load_checkpoint, save_checkpoint
from embodichain.utils import ConfigError, logger

SEGMENTS = "replay"
"""Name of the folder."""
SEGMENT_BYTES = 2**25
"""Size of a segment's slots at most: a save needs little memory beyond the buffer's own."""


class Store(Protocol):
    """A buffer of N streams of slots. A stream's slots are numbered from 0 on, and its latest ones are held."""

    @property
    def slot_bytes(self) -> int:
        """Size of a slot."""

    def state_dict(self) -> dict[str, Any]:
        """Return all but the slots, which is small, as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of ``state_dict``, after the slots of that time."""

    def span(self, state: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the first and the last slot that were held at the time of a ``state_dict``, [N] int64 each.

        The last one is the head. All of them are still held after one more rollout was added.
        """

    def read(self, first: Tensor, last: Tensor) -> dict[str, Tensor]:
        """Return a copy of the slots ``first`` to ``last`` [N], by field, environment by environment, on the CPU."""

    def write(self, first: Tensor, last: Tensor, slots: dict[str, Tensor]) -> None:
        """Write the result of ``read``."""


@dataclass(frozen=True)
class _Segment:
    """A file: slots ``first`` to ``last`` of each environment, [N] on the CPU."""

    file: str
    sha256: str
    first: Tensor
    last: Tensor

    def entry(self) -> dict[str, Any]:
        return {"file": self.file, "sha256": self.sha256, "slots": _count(self.first, self.last)}


class SegmentFolder:
    """The folder ``replay`` of a run, with the segments of one process and, in rank 0, the deletion of all.

    Args:
        path: the folder ``checkpoints``, which exists.
        rank: process's rank, in the files' names.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._checkpoints = path
        self._rank = rank
        self._written: dict[str, list[_Segment]] = {}  # by store, in their order
        self._named: dict[Path, set[str]] = {}  # files that checkpoints need

    @property
    def path(self) -> Path:
        """The folder itself."""
        return self._checkpoints / SEGMENTS

    def save(self, stores: Mapping[str, Store], states: Mapping[str, Any]) -> dict[str, Any]:
        """Write the slots that no segment has yet, and return the checkpoint's entry.

        If it fails, the next save continues with the missing part.

        Args:
            stores: stores by name.
            states: their ``state_dict`` at the time to save: now, or before the latest rollout was added.

        Raises:
            OSError: the disk is full, or the like.
        """
        self.path.mkdir(exist_ok=True)
        return {name: self._save(name, store, states[name]) for name, store in stores.items()}

    def load(self, stores: Mapping[str, Store], saved: Mapping[str, Any], checkpoints: Path) -> None:
        """Load the result of ``save``.

        Args:
            checkpoints: the folder of the checkpoint; if it is not this one, the next save writes all slots.

        Raises:
            ConfigError: a segment is missing, damaged, or another than the checkpoint names; the message names it.
        """
        for name, store in stores.items():
            segments = [self._load(store, entry, checkpoints / SEGMENTS) for entry in saved[name]["segments"]]
            store.load_state_dict(saved[name]["state"])
            is_own = checkpoints.resolve() == self._checkpoints.resolve()
            self._written[name] = segments if is_own else []

    def clean(self, checkpoints: Sequence[Path], newest: Path, content: Mapping[str, Any]) -> None:
        """Delete the segments that no checkpoint needs.

        Args:
            checkpoints: all existing ones.
            newest: newly written one, with ``content``.
        """
        self._named[newest] = _files(content)
        self._named = {path: self._files_of(path) for path in checkpoints}
        needed = set().union(*self._named.values())
        for file in self.path.glob("*.pt"):
            if file.name not in needed:
                file.unlink(missing_ok=True)

    def _save(self, name: str, store: Store, state: Mapping[str, Any]) -> dict[str, Any]:
        first, head = (slots.cpu() for slots in store.span(state))
        segments = [segment for segment in self._written.get(name, []) if bool((segment.last > first).any())]
        lost = [segment.file for segment in segments if not (self.path / segment.file).exists()]
        if lost:
            logger.log_warning(f"{self.path / lost[0]}: was removed; the replay buffer is written again")
            segments = []
        self._written[name] = segments  # complete also if a write fails
        length = max(1, SEGMENT_BYTES // (len(head) * store.slot_bytes))
        begin = torch.maximum(first, segments[-1].last) if segments else first
        while bool((begin < head).any()):
            end = torch.minimum(begin + length, head)
            segments.append(self._write(name, store, begin, end))
            begin = end
        return {"state": dict(state), "segments": [segment.entry() for segment in segments]}

    def _write(self, name: str, store: Store, first: Tensor, last: Tensor) -> _Segment:
        # A name of its own: a run that was resumed from an earlier checkpoint overwrites no segment of a later one.
        file = f"{name}_rank_{self._rank}_to_{int(last.sum())}_{uuid.uuid4().hex[:16]}.pt"
        digest = save_checkpoint(self.path / file, {"first": first, "last": last, "slots": store.read(first, last)})
        return _Segment(file, digest, first, last)

    def _load(self, store: Store, entry: Mapping[str, Any], folder: Path) -> _Segment:
        path = folder / Path(entry["file"]).name
        why = "the replay buffer of the checkpoint cannot be restored"
        try:
            content = load_checkpoint(path, sha256=entry["sha256"])
        except DamagedCheckpointError as error:
            raise ConfigError(f"{error}: {why}") from error
        first, last = content["first"], content["last"]
        store.write(first, last, content["slots"])
        return _Segment(path.name, entry["sha256"], first, last)

    def _files_of(self, path: Path) -> set[str]:
        if path not in self._named:  # of an earlier process
            try:
                self._named[path] = _files(load_checkpoint(path))
            except ConfigError:  # nothing can continue from it
                self._named[path] = set()
        return self._named[path]


def _count(first: Tensor, last: Tensor) -> int:
    return int((last - first + 1).sum())


def _files(content: Mapping[str, Any]) -> set[str]:
    """Return the names of all ranks' segments that a checkpoint's content names."""
    parts: Iterable[Mapping[str, Any]] = [content, *content.get("other_ranks", [])]
    stores = [store for part in parts for store in part.get("stores", {}).values()]
    return {entry["file"] for store in stores for entry in store["segments"]}
