"""Runs on the disk: found by the names that users give on the command line, checked for links, and locked."""

import errno
import glob
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from embodichain.agents.rl.checkpoint.files import CheckpointFolder, load_checkpoint
from embodichain.agents.rl.config.named import names_config
from embodichain.utils import ConfigError, doors, is_run_folder, logger
from embodichain.utils.system import lock_file, open_without_links

PROBLEM_KEY = "problem"  # in the config of a checkpoint with parts that cannot be described: the reason
LOCK = "run.lock"

_WRITTEN = ("export", "rewards", "videos")  # commands write these next to a checkpoint outside a run's folder
_OF_SWEEP = re.compile(r"_trial\d+_[0-9a-f]{6}_\d{8}_\d{6}/")  # a sweep's trial is not the run that one has just made
_OF_LAST_RUN = (Path("latest"), Path("best"), Path("latest/best"))
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a file system without locks
_POLL = 0.2  # s


@dataclass(frozen=True)
class SavedRun:
    """A run's folder, the path of one of its checkpoints, and that one's content."""

    folder: Path
    checkpoint: Path
    content: dict[str, Any]

    @property
    def exp_name(self) -> str:
        """Name of the experiment."""
        name: str = self.content["config"]["trainer"]["exp_name"]
        return name


def find_run(
    target: str, exp_name: str | None = None, before_read: Callable[[Path], object] = lambda folder: None
) -> SavedRun:
    """Find a run and a checkpoint of it.

    Args:
        target: a run's folder, for its latest checkpoint; ``<folder>/best``, for the best one; a checkpoint's file;
            ``hf:user/name``, of the Hugging Face Hub; a folder's name without date and time, for the run of that name
            that saved last; or ``latest`` or ``best`` (also ``latest/best``), of the run in ``outputs`` that saved
            last.
        exp_name: experiment name of the runs that ``latest`` and ``best`` consider; None: all.
        before_read: function called with the run's folder before the checkpoint is read.
    """
    folder, file, is_best = _read_target(target, exp_name)
    if file is None and not is_run_folder(folder):
        raise _no_such_run(target)
    is_alone = file is not None and file.parent.name != "checkpoints"
    check_links(folder, _WRITTEN if is_alone else (".",))
    before_read(folder)
    if file is None:
        checkpoints = CheckpointFolder(folder / "checkpoints", "")
        checkpoint, content = checkpoints.load_best() if is_best else checkpoints.load_latest()
    else:
        checkpoint, content = file, load_checkpoint(file)
    config = content.get("config")
    if not isinstance(config, dict):
        raise ConfigError(f"{checkpoint}: is not the checkpoint of a training")
    if config.get(PROBLEM_KEY) is not None:
        raise ConfigError(
            f"{checkpoint}: was written by a script's own Trainer and does not say from what its parts can be built "
            f"again: {config[PROBLEM_KEY]}. The script itself can continue from it: "
            "trainer.load_state_dict(load_checkpoint(path))"
        )
    return SavedRun(folder, checkpoint, content)


def find_run_folder(target: str) -> Path:
    """Return the folder of the run that a user names as for :func:`find_run`, to read it; it may have no checkpoint."""
    folder, _, _ = _read_target(target)
    check_links(folder)
    return folder


def settled(target: str) -> str:
    """Return a name of the same run and checkpoint that stays, where another run may have this name later."""
    folder, is_best = _meant(Path(target))
    path = folder / "best" if is_best else folder
    return target if path == Path(target) else str(path)


def names_run(target: str) -> bool:
    """Return whether a user's words name a run or a checkpoint, as :func:`find_run` takes them, and not a config."""
    path = Path(target)
    if path.exists():
        return path.suffix == ".pt" or is_run_folder(path)
    if target.partition(":")[0] in doors.entries(doors.RUN_SOURCES):
        return True
    return path in _OF_LAST_RUN or is_run_folder(_meant(path)[0])


def last_run(exp_name: str | None = None) -> Path:
    """Return the folder of the run in ``outputs``, of any or one ``exp_name``, that saved last."""
    run = _last_saved(Path("outputs"), exp_name)
    if run is None:
        which = "" if exp_name is None else f" of '{exp_name}'"
        raise ConfigError(f"no run{which} in {Path('outputs').absolute()} has a checkpoint")
    return run


def _read_target(target: str, exp_name: str | None = None) -> tuple[Path, Path | None, bool]:
    """Return a run's folder, the checkpoint if the target is one's file, and whether the best one is meant."""
    path = Path(target)
    prefix, _, name = target.partition(":")
    if name and (fetch := doors.load(doors.RUN_SOURCES, prefix)) is not None:
        return fetch(name), None, False
    if path.is_file() and path.suffix == ".pt":
        return (path.parents[1] if path.parent.name == "checkpoints" else path.parent), path, False
    path, is_best = _meant(path, exp_name)
    if not path.is_dir():
        raise _no_such_run(target)
    return path, None, is_best


def _meant(path: Path, exp_name: str | None = None) -> tuple[Path, bool]:
    """Return the folder of the run that a user means by a path, and whether the best checkpoint is meant."""
    is_best = path.name == "best" and not path.exists()
    if path in _OF_LAST_RUN and not Path(path.parts[0]).exists():
        return last_run(exp_name), is_best
    path = path.parent if is_best else path
    return path if path.exists() else _last_saved(path.parent, path.name) or path, is_best


def _no_such_run(target: str) -> ConfigError:
    if names_config(target):
        return ConfigError(
            f"{target}: is a config, and no run: train it first (embodichain train {target}), or play it without a "
            f"policy (embodichain play {target} --agent random)"
        )
    return ConfigError(
        f"{target}: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' "
        "or 'best' of the run in ./outputs that saved last"
    )


def _last_saved(outputs: Path, exp_name: str | None) -> Path | None:
    """Return the run in a folder, of any or one ``exp_name``, that saved last, if any."""
    pattern = "*" if exp_name is None else f"{glob.escape(exp_name)}_" + "[0-9]" * 8 + "_" + "[0-9]" * 6
    checkpoints = [path for path in outputs.glob(f"{pattern}/checkpoints/*.pt") if not _OF_SWEEP.search(str(path))]
    last = max(checkpoints, key=lambda path: path.stat().st_mtime, default=None)
    return None if last is None else last.parent.parent


class RunLock:
    """Locks a run's folder against a second training, until it is released or this process ends.

    The lock is the kernel's (``flock``) on the file ``run.lock``, which names its holder. It
    ends with the process, so a file that was left behind does no harm. Over NFS it covers other machines if the server
    has locks (version 4, or lockd) and the mount does not have ``local_lock``.
    """

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def take(self, folder: Path, patience: float = 0.0) -> None:
        """Take the lock of a run's folder; wait ``patience`` seconds for another process to end."""
        path, deadline = folder / LOCK, time.monotonic() + patience
        # Not truncated: it may have the name of another holder.
        self._file = file = open(path, "a+", encoding="utf-8", opener=open_without_links)  # noqa: SIM115 (held)
        while True:
            try:
                lock_file(file.fileno())
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    holder = file.read(100).strip() or "another process"
                    file.close()
                    self._file = None
                    raise ConfigError(
                        f"{folder}: {holder} trains in this folder; wait for its end, or stop it"
                    ) from None
                time.sleep(_POLL)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                logger.log_warning(
                    f"{path}: this file system has no locks ({error.strerror}): nothing keeps a second training out of "
                    "this folder, so see to it that there is none"
                )
                break
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)  # without the name of a former holder
            self._file.close()
            self._file = None


def check_links(folder: Path, names: Sequence[str] = (".",)) -> None:
    """Check that entries of a run's folder (default: all) have no links out of it; a ConfigError names one."""
    root = os.path.realpath(folder)
    for path in (path for name in names for path in (folder / name, *(folder / name).rglob("*"))):
        parts = path.relative_to(folder).parts
        is_wandbs = parts[:1] == ("wandb",) and len(parts) > 1  # it keeps links to its own logs, and replaces them
        if path.is_symlink() and not is_wandbs and not Path(os.path.realpath(path)).is_relative_to(root):
            raise ConfigError(
                f"{path}: a link that leads out of the run's folder, which would be read or written through it. If "
                "it is yours, put what it leads to in its place"
            )
