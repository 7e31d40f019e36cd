"""The checkpoint from which a training continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain import __version__
from embodichain.agents.rl.checkpoint.content import check_content
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import placed

__all__ = [
    "ResumePoint",
    "find_resume_point",
    "find_run_folder",
    "last_run",
]


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to go on from.

    Attributes:
        run: the run's folder.
        path: the checkpoint.
        content: what is in it.
    """

    run: Path
    path: Path
    content: dict[str, Any]


def find_run_folder(target: str, exp_name: str | None = None) -> Path:
    """Return the folder of the run to go on with.

    Args:
        target: a run's folder; a checkpoint in it; or ``latest``, for the run in ``outputs`` that saved last.
        exp_name: of the runs that ``latest`` looks at; None: all.

    Raises:
        ConfigError: there is none, or it has links that lead out of it.
    """
    with placed("--resume latest: "):
        run = last_run(exp_name) if target == "latest" else Path(target)
    if not run.is_dir():
        if run.parent.name != "checkpoints":
            raise ConfigError(f"--resume {target}: must be a run's folder, a file in its 'checkpoints', or 'latest'")
        if not run.exists():
            raise ConfigError(f"{run}: no such checkpoint")
        run = run.parent.parent
    check_links(run)
    return run


def find_resume_point(target: str, exp_name: str | None = None) -> ResumePoint:
    """Find a checkpoint.

    Args:
        target: as for :func:`find_run_folder`; a folder stands for its latest checkpoint.
        exp_name: likewise.

    Raises:
        ConfigError: there is none, it cannot be read, or the run's folder has links that lead out of it.
    """
    run, path = find_run_folder(target, exp_name), Path(target)
    if target == "latest" or path.is_dir():
        path, content = CheckpointFolder(run / "checkpoints", "").load_latest()
    else:
        content = load_checkpoint(path)
    check_content(content, path)
    if content["code_version"] != __version__:
        logger.log_warning(
            f"{path}: was written by version {content['code_version']}, this is {__version__}: the training may go on "
            "otherwise than it would have"
        )
    return ResumePoint(run, path, content)


def last_run(exp_name: str | None = None) -> Path:
    """Return the folder of the run in ``outputs`` that saved last.

    Args:
        exp_name: of the runs to look at; None: all.

    Raises:
        ConfigError: none has a checkpoint.
    """
    pattern = "*" if exp_name is None else f"{exp_name}_" + "[0-9]" * 8 + "_" + "[0-9]" * 6
    saved = {path.parent.parent: path.stat().st_mtime for path in Path("outputs").glob(f"{pattern}/checkpoints/*.pt")}
    if not saved:
        which = "" if exp_name is None else f" of '{exp_name}'"
        raise ConfigError(f"no run{which} in {Path('outputs').absolute()} has a checkpoint")
    return max(saved, key=saved.__getitem__)
