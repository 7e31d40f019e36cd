"""Output folder of a cloning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from embodichain.agents.rl.checkpoint.run_access import LOCK
from embodichain.agents.rl.run_config import RunConfig
from embodichain.ext.vla.policy import VLAPolicyCfg
from embodichain.tools.cloning.config import BCCfg
from embodichain.utils import ConfigError
from embodichain.utils.output import OutputFolder

_ROOT = Path("outputs")  # where outputs go, for any config


def out_folder(cfg: BCCfg, run: RunConfig, allowed: Sequence[str | Path]) -> Path:
    """Return the folder of the new model.

    Raises:
        ConfigError: none is named, it has a model already, or it is not where the training looks for it.
    """
    if isinstance(run.policy, VLAPolicyCfg):
        key, there = "vla_config.model_path", run.policy.vla_config.model_path
    else:
        key, there = "init_from", getattr(run.policy, "init_from", None) or f"{_ROOT}/{run.trainer.exp_name}_bc"
    name = cfg.out or there
    if name is None:
        raise ConfigError(f"out: required, since the training config has no policy.{key}")
    path = place(name, allowed)
    if cfg.out is None and path.resolve() != Path(name).resolve():
        raise ConfigError(
            f"out: the training config's policy.{key} '{name}' is not below {_ROOT}: allow that folder on the command "
            f"line (--allow-write {Path(name).resolve()}), or name another one as out"
        )
    if (path / "config.json").exists() or any((path / "checkpoints").glob("*.pt")):
        raise ConfigError(
            f"out: {path}: has a finished or unfinished model: 'embodichain bc --resume {path}' continues it. Or name "
            "another folder, or remove it; to begin from its weights, name it as start_from"
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
