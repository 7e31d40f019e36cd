"""Output folder of a cloning, and checks of untrusted checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from embodichain.agents.rl.checkpoint.content import check_fields
from embodichain.agents.rl.checkpoint.run_access import LOCK
from embodichain.agents.rl.models.vla.policy import VLAPolicyCfg
from embodichain.agents.rl.run_config import RunConfig
from embodichain.tools.cloning.config import BCCfg
from embodichain.utils import ConfigError
from embodichain.utils.output import OutputFolder

_ROOT = Path("outputs")  # where outputs go, for any config


def out_folder(cfg: BCCfg, run: RunConfig, allowed: Sequence[str | Path]) -> Path:
    """Return the folder of the new model.

    Raises:
        ConfigError: none is named, it has a model already, or it is not where the training looks for it.
    """
    assert isinstance(run.policy, VLAPolicyCfg)
    model_path = run.policy.vla_config.model_path
    name = cfg.out or model_path
    if name is None:
        raise ConfigError("out: required, since the training config's policy.vla_config has no model_path")
    path = place(name, allowed)
    if cfg.out is None and path.resolve() != Path(name).resolve():
        raise ConfigError(
            f"out: the training config's model_path '{name}' is not below {_ROOT}: allow that folder on the command "
            f"line (--allow-write {Path(name).resolve()}), or name another one as out"
        )
    if (path / "config.json").exists() or any((path / "checkpoints").glob("*.pt")):
        raise ConfigError(
            f"out: {path}: has a finished or unfinished model: 'embodichain bc --resume {path}' continues it. Or name "
            "another folder, or remove it"
        )
    return path


def place(name: str, allowed: Sequence[str | Path]) -> Path:
    """Return the folder that a config names: inside an allowed one, or else by the rule for ``save_path``."""
    if any(Path(name).resolve().is_relative_to(Path(folder).resolve()) for folder in allowed):
        return Path(name)
    return OutputFolder(_ROOT, allowed).place(name)


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Create a folder; if it stays empty, remove it and its parent again."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            path.rmdir()
            (path.parent / LOCK).unlink(missing_ok=True)
            path.parent.rmdir()


@with_config(ConfigDict(strict=True))
class _Demonstrations(TypedDict):
    episodes: int
    frames: int


@with_config(ConfigDict(strict=True))
class _State(TypedDict):
    step: int
    skipped: int
    loss: float
    policy: dict[str, Any]


@with_config(ConfigDict(strict=True))
class _Content(TypedDict):
    cloning: dict[str, Any]
    train_config: dict[str, Any]
    demonstrations: _Demonstrations
    seconds: float
    cloning_state: _State


_CONTENT = TypeAdapter(_Content)


def check_content(content: Mapping[str, Any], path: Path) -> None:
    """Check the types of an untrusted checkpoint's content.

    Raises:
        ConfigError: a field is missing or of a wrong type.
    """
    check_fields(content, _CONTENT, path, "cloning")
