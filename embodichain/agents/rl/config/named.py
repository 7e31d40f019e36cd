"""Config files by path, by folder, or by name: ``push_cube``, ``push_cube/grpo``, ``PushCubeRL``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from embodichain.utils import ConfigError, doors, logger, nearest
from embodichain.utils.utility import CONFIG_SUFFIXES, load_config_file

_MAIN = "train_config"
_FIRST = ("quickstart", _MAIN)  # the variants that a task's name alone means, if there


@dataclass(frozen=True)
class ShippedConfig:
    """A shipped training config."""

    path: Path  # path of the file
    variant: str  # from its file's name: "quickstart", "grpo"; the whole stem of train_config.json
    env_id: str  # registered name of its task
    algorithm: str  # its algorithm's name
    is_first: bool  # whether the task's name alone means it
    starts_from_clone: bool  # whether its policy starts from the run of ``embodichain bc``

    @property
    def task(self) -> str:
        """The name of its folder."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """The name by which commands take it."""
        return self.task if self.is_first else f"{self.task}/{self.variant}"


def find_config(target: str | Path) -> Path:
    """Return the config file that a user names; a ConfigError if there is none, or several.

    Args:
        target: its path, from the working directory or else from the shipped ones' root; a folder with one such
            file; or a shipped one's name: its folder's, alone or with variant or algorithm (``push_cube/grpo``),
            or with the id of an environment in place of the folder.
    """
    path = Path(target)
    if (shipped := doors.shipped_path(path)) != path:
        return _announced(shipped) if shipped.is_file() else find_config(shipped)
    if path.is_dir():
        files = sorted(file for file in path.glob("train*") if file.suffix in CONFIG_SUFFIXES)
        if len(files) > 1:
            raise ConfigError(f"{path}: has several configs, name one: {', '.join(map(str, files))}")
        if files:
            return _announced(files[0])
    if path.suffix in CONFIG_SUFFIXES or (path.exists() and not path.is_dir()):
        return path  # its reader reports the error
    names = _names()
    if str(target) in names:
        return _announced(names[str(target)])
    if path.is_dir():
        raise ConfigError(f"{path}: a folder without a file train*.json or .yaml")
    tasks = ", ".join(sorted({found.parent.name for found in names.values()}))
    raise ConfigError(
        f"'{target}': no such file or folder, and no shipped config of this name.{nearest(str(target), names)} "
        f"Shipped: {tasks}; 'embodichain list envs' says how to train each task"
    )


def names_config(target: str) -> bool:
    """Return whether a user's words name a config's file, or a shipped training config."""
    path = Path(target)
    return (path.suffix.lower() in CONFIG_SUFFIXES and path.is_file()) or target in _names()


def find_named_file(name: str, folder: Path, place: str) -> Path:
    """Return the path of a file that a config names.

    Args:
        name: path from the working directory, or else from the config's folder, one above it, or the shipped configs'
            root.
        folder: config's folder.
        place: name's place in the config, for messages.
    """
    places = [base / name for base in (Path(), folder, *folder.absolute().parents, doors.ROOT)]
    path = next((path for path in places if path.is_file()), None)
    if path is not None and places[1].is_file() and not path.samefile(places[1]):
        logger.warn_once(f"{place}: the working directory's {path} is used, not {places[1]}")
    if path is None and any(path.is_dir() for path in places):
        raise ConfigError(f"{place}: must be a file, got the folder '{name}'")
    if path is None:
        tried = dict.fromkeys(str(path.absolute()) for path in places[:2])
        raise ConfigError(f"{place}: no such file: {' or '.join(tried)}, nor in a folder above it")
    return path


@cache
def shipped_configs() -> Sequence[ShippedConfig]:
    """Return the shipped training configs, each task's first one first."""
    folders = sorted(
        {path.parent for path in doors.TASK_CONFIGS.rglob("train_config*.json")}, key=lambda path: path.name
    )
    return [config for folder in folders for config in _shipped_in(folder)]


@cache
def _names() -> dict[str, Path]:
    """Return the paths of the shipped training configs, by all their names."""
    names: dict[str, Path] = {}
    for config in shipped_configs():
        for task in (config.task, config.path.parent.relative_to(doors.TASK_CONFIGS).as_posix(), config.env_id):
            for name in (task, f"{task}/{config.variant}", f"{task}/{config.algorithm}"):
                names.setdefault(name, config.path)
    return names


def _shipped_in(folder: Path) -> list[ShippedConfig]:
    paths = {path.stem.removeprefix(f"{_MAIN}_"): path for path in sorted(folder.glob("train_config*.json"))}
    ordered = [name for name in _FIRST if name in paths] + [name for name in paths if name not in _FIRST]
    return [_read(paths[variant], variant, is_first=variant == ordered[0]) for variant in ordered]


def _read(path: Path, variant: str, is_first: bool) -> ShippedConfig:
    data = load_config_file(path)
    env: dict[str, Any] | str = data["trainer"]["gym_config"]
    env_id = (load_config_file(doors.ROOT / env) if isinstance(env, str) else env)["id"]
    starts_from_clone = data["policy"].get("init_from") is not None
    return ShippedConfig(path, variant, env_id, data["algorithm"]["name"], is_first, starts_from_clone)


def _announced(path: Path) -> Path:
    """Log the path of a file that the user has not named by it; return it from the working directory, if below."""
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    logger.log_info(f"config: {shown}")
    return shown
