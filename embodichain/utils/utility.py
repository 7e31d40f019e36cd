"""Reading of configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from embodichain.utils.errors import ConfigError

__all__ = ["load_config_file", "load_json"]


def load_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        ConfigError: the file is not there or not readable, or is not JSON (with line and column).
    """
    text = _read(Path(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error


def load_config_file(path: str | Path) -> dict[str, Any]:
    """Read a JSON or (by its suffix ``.yaml``/``.yml``) YAML file whose top level is a mapping.

    Raises:
        ConfigError: as :func:`load_json`, or the top level is not a mapping.
    """
    path = Path(path)
    data = _load_yaml(path) if path.suffix in (".yaml", ".yml") else load_json(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: the top level must be an object, got {type(data).__name__}")
    return data


def _load_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(_read(path))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: invalid YAML{place}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file (working directory {Path.cwd()})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
