"""Checkpoint files, the folder of a run's checkpoints, and replay buffers on the disk.

A checkpoint is a zip archive of ``torch.save``; its comment is the SHA-256 of all bytes before it. It is written whole
or not at all, and loaded without running any code of its.

Each slot of a replay buffer is written once, in segments that several checkpoints share. A segment is a file in a
checkpoint's form, in the folder ``replay`` next to the checkpoints. It has a range of slots of each environment's
stream, of which the last one is the head at that time: only its observation is real, and the next segment has it again.
A checkpoint names the segments that its buffers need, in their order, with the digests of their files.

Legend: N envs.
"""

import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from embodichain.agents.rl.buffer.replay import ReplayBuffer
from embodichain.utils import ConfigError, logger, read_bytes, read_text, write_atomically, write_json

FORMAT_VERSION = 2

_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 64
_LATEST, _BEST = "latest.json", "best.json"
SEGMENTS = "replay"
"""Name of the folder."""
SEGMENT_BYTES = 2**25
"""Size of a segment's slots at most: a save needs little memory beyond the buffer's own."""


class DamagedCheckpointError(ConfigError):
    """A checkpoint cannot be read; another one may be whole."""


def save_checkpoint(path: Path, content: dict[str, Any]) -> str:
    """Write a checkpoint, see :func:`write_atomically`, and return the SHA-256 of its archive.

    The archive is never whole in the memory.
    """
    digest = ""

    def write(file: IO[bytes]) -> None:
        nonlocal digest
        try:
            torch.save({"format_version": FORMAT_VERSION, **content}, file)
        except RuntimeError as error:  # torch's, as it closes the archive after a failed write
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
        file.seek(-2, os.SEEK_END)
        file.truncate()  # the length of the comment, which is none yet
        file.flush()
        with open(file.name, "rb") as archive:
            digest = hashlib.file_digest(archive, "sha256").hexdigest()
        comment = _MARK + digest.encode()
        file.write(len(comment).to_bytes(2, "little") + comment)

    write_atomically(path, write)
    return digest


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu", sha256: str | None = None) -> dict[str, Any]:
    """Read a checkpoint; a DamagedCheckpointError if there is none, it is damaged, or its archive is another.

    Args:
        sha256: hash of its archive; None: any.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read as a checkpoint: {error.strerror}") from error
    digest = hashlib.sha256(memoryview(data)[: -_COMMENT_SIZE - 2]).hexdigest()
    if data[-_COMMENT_SIZE:] != _MARK + digest.encode() or sha256 not in (None, digest):
        raise DamagedCheckpointError(f"{path}: damaged, or not the expected checkpoint: it does not fit its checksum")
    try:
        content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
        version = content["format_version"]
    except Exception as error:  # an untrusted file may raise anything; torch's message recommends to load it unsafely
        raise DamagedCheckpointError(f"{path}: damaged, or holds more than tensors and plain data") from error
    if version != FORMAT_VERSION:
        raise ConfigError(f"{path}: format version {version}; this version of the program reads {FORMAT_VERSION} alone")
    return dict(content)


class CheckpointFolder:
    """The folder ``checkpoints`` of a run.

    ``latest.json`` and ``best.json`` name a file of the folder (``file``, and its ``step``); unlike links they survive
    copying. Each checkpoint names the best one of its time, too, so that a process that is killed between the two loses
    neither. A checkpoint's name is ``<exp_name>_step_<step>.pt``.

    Args:
        keep_last: number of checkpoints to keep in addition to the best one; None: all.
    """

    def __init__(self, path: Path, exp_name: str, keep_last: int | None = None) -> None:
        self.path = path
        self._exp_name = exp_name
        self._keep_last = keep_last

    def save(self, content: dict[str, Any], step: int) -> Path:
        """Write a checkpoint as the latest, delete old ones, and return its path; a failed write changes nothing.

        Args:
            content: as for ``save_checkpoint``. Its ``best_checkpoint`` names the best one's file so far, which
                may be this one; ``best_success`` is that one's success rate.
        """
        path = self.path_of(step)
        save_checkpoint(path, content)
        self.take_up(path, content)
        return path

    def path_of(self, step: int) -> Path:
        """Return the path of the checkpoint of an environment step."""
        return self.path / f"{self._exp_name}_step_{step}.pt"

    def take_up(self, path: Path, content: dict[str, Any]) -> None:
        """Point to a checkpoint as the latest, and to the best one that it names, if that exists; delete others.

        A resume repeats it, so a process may be killed at any point of it.
        """
        self._point(_LATEST, path)
        name = content.get("best_checkpoint")
        best = None if name is None else self.path / Path(name).name
        if best is not None and best != self._pointed(_BEST) and best.exists():
            self._point(_BEST, best, success_rate=content["best_success"])
        files = self.files()
        # Later steps are from before the run was resumed from this one.
        ours = files[: files.index(path) + 1] if path in files else files
        if self._pointed(_BEST) in files[len(ours) :]:
            (self.path / _BEST).unlink()  # the training will write over it
        if self._keep_last is not None:
            kept = {self._pointed(_BEST), best}
            for old in ours[: -self._keep_last]:
                if old not in kept:
                    old.unlink(missing_ok=True)

    def load_latest(self) -> tuple[Path, dict[str, Any]]:
        """Return the latest readable checkpoint and its content; skip damaged ones with a warning."""
        latest = self._pointed(_LATEST)
        files = self.files()
        if latest is not None and latest in files:
            files = files[: files.index(latest) + 1]
        for path in reversed(files):
            try:
                return path, load_checkpoint(path)
            except DamagedCheckpointError as error:
                then = "" if path == files[0] else "; going back to the checkpoint before it"
                logger.log_warning(f"{error}{then}")
        raise ConfigError(f"{self.path}: there is no checkpoint" + (" that can be read" if files else ""))

    def load_best(self) -> tuple[Path, dict[str, Any]]:
        """Return the checkpoint with the highest success rate, then return, of its evaluation, and its content."""
        path = self._pointed(_BEST)
        if path is None:
            raise ConfigError(
                f"{self.path}: there is no best checkpoint: none was evaluated, or the best one is deleted"
            )
        return path, load_checkpoint(path)

    def files(self) -> list[Path]:
        """Return the checkpoints, in the order of their steps."""
        steps = {path: re.search(r"_step_(\d+)\.pt$", path.name) for path in self.path.glob("*.pt")}
        return sorted((path for path, step in steps.items() if step), key=lambda path: int(steps[path][1]))  # type: ignore[index]

    def _point(self, name: str, path: Path, **others: float) -> None:
        step = int(path.stem.rpartition("_")[2])
        write_json(self.path / name, {"file": path.name, "step": step, **others})

    def _pointed(self, name: str) -> Path | None:
        """Return the file in the folder that a pointer names, if there is one."""
        try:
            pointer = json.loads(read_text(self.path / name))
            return self.path / Path(pointer["file"]).name
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class _Segment:
    """A file: slots ``first`` to ``last`` of each environment, [N] on the CPU."""

    file: str
    sha256: str
    first: Tensor
    last: Tensor

    def entry(self) -> dict[str, Any]:
        return {"file": self.file, "sha256": self.sha256, "slots": int((self.last - self.first + 1).sum())}


class SegmentFolder:
    """The folder ``replay`` of a run, with the segments of one process and, in rank 0, the deletion of all.

    Args:
        path: the folder ``checkpoints``, which exists.
        rank: process's rank, in the files' names.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path / SEGMENTS
        self._checkpoints = path
        self._rank = rank
        self._written: dict[str, list[_Segment]] = {}  # by store, in their order
        self._named: dict[Path, set[str]] = {}  # files that checkpoints need

    def save(self, stores: Mapping[str, ReplayBuffer], states: Mapping[str, Any]) -> dict[str, Any]:
        """Write the slots that no segment has yet, and return the checkpoint's entry.

        If it fails, the next save continues with the missing part.

        Args:
            stores: stores by name.
            states: their ``state_dict`` at the time to save: now, or before the latest rollout was added.
        """
        self.path.mkdir(exist_ok=True)
        return {name: self._save(name, store, states[name]) for name, store in stores.items()}

    def load(self, stores: Mapping[str, ReplayBuffer], saved: Mapping[str, Any], checkpoints: Path) -> None:
        """Load the result of ``save``.

        Args:
            checkpoints: the folder of the checkpoint; if it is not this one, the next save writes all slots.
        """
        for name, store in stores.items():
            segments = [self._load(store, entry, checkpoints / SEGMENTS) for entry in saved[name]["segments"]]
            store.load_state_dict(saved[name]["state"])
            is_own = checkpoints.resolve() == self._checkpoints.resolve()
            # A larger buffer has dropped steps that the segments still have.
            is_same = store.state_dict()["window"] == saved[name]["state"]["window"]
            self._written[name] = segments if is_own and is_same else []

    def clean(self, checkpoints: Sequence[Path], newest: Path, content: Mapping[str, Any]) -> None:
        """Delete the segments that no checkpoint needs.

        Args:
            checkpoints: all existing ones.
            newest: newly written one, with ``content``.
        """
        self._named[newest] = _files(content)
        try:
            self._named = {path: self._files_of(path) for path in checkpoints}
        except OSError:  # until all can be read again
            return
        needed = set().union(*self._named.values())
        for file in self.path.glob("*.pt"):
            if file.name not in needed:
                file.unlink(missing_ok=True)

    def _save(self, name: str, store: ReplayBuffer, state: Mapping[str, Any]) -> dict[str, Any]:
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

    def _write(self, name: str, store: ReplayBuffer, first: Tensor, last: Tensor) -> _Segment:
        # A name of its own: a run that was resumed from an earlier checkpoint overwrites no segment of a later one.
        file = f"{name}_rank_{self._rank}_to_{int(last.sum())}_{uuid.uuid4().hex[:16]}.pt"
        digest = save_checkpoint(self.path / file, {"first": first, "last": last, "slots": store.read(first, last)})
        return _Segment(file, digest, first, last)

    def _load(self, store: ReplayBuffer, entry: Mapping[str, Any], folder: Path) -> _Segment:
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
            except ConfigError as error:
                if isinstance(error.__cause__, OSError) and path.exists():
                    raise error.__cause__ from None
                self._named[path] = set()  # nothing can continue from it
        return self._named[path]


def _files(content: Mapping[str, Any]) -> set[str]:
    """Return the names of all ranks' segments that a checkpoint's content names."""
    parts: Iterable[Mapping[str, Any]] = [content, *content.get("other_ranks", [])]
    stores = [store for part in parts for store in part.get("stores", {}).values()]
    return {entry["file"] for store in stores for entry in store["segments"]}
