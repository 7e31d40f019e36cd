"""Reading of configuration files, and their plain data."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from embodichain.utils.doors import shipped_path
from embodichain.utils.errors import ConfigError, placed, reason_of
from embodichain.utils.files import read_text

__all__ = ["CONFIG_SUFFIXES", "load_config_file", "load_json"]

_YAML = (".yaml", ".yml")
CONFIG_SUFFIXES = (".json", *_YAML)
"""Suffixes of config files."""
_MOST_VALUES = 1_000_000  # of a file


def load_json(path: str | Path) -> Any:
    """Read a JSON file: the path's or, if a path from ``configs`` is not there, the shipped one."""
    text = _read(Path(path))
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: invalid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key '{key}' is given twice")
        found[key] = value
    return found


def load_config_file(path: str | Path) -> dict[str, Any]:
    """Read a JSON or (by its suffix ``.yaml``/``.yml``) YAML file with a mapping at the top level.

    YAML is read by version 1.2's rules for numbers and bools, so that both formats say the same:
    ``3e-4`` is a number, ``no`` is text, and keys are text.
    """
    path = Path(path)
    if path.suffix in _YAML:
        text = _read(path)
        try:
            data = yaml.load(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise ConfigError(f"{path}: invalid YAML{place}: {error.problem}") from error
        except (KeyError, RecursionError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from error
    else:
        data = load_json(path)
    if not isinstance(data, dict):
        got = "nothing" if data is None else type(data).__name__
        raise ConfigError(f"{path}: the top level must be an object, got {got}")
    with placed(f"{path}: "):
        check_plain(data)
    return data


def _read(path: Path) -> str:
    try:
        text = read_text(shipped_path(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file (working directory {Path.cwd()})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason_of(error)}") from error
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty")
    return text


class _Loader(yaml.SafeLoader):
    """YAML by the core schema of version 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}

    def compose_sequence_node(self, anchor: Any) -> yaml.SequenceNode:
        node: yaml.SequenceNode = super().compose_sequence_node(anchor)
        self._measure(node, node.value)
        return node

    def _measure(self, node: yaml.Node, inner: Iterable[yaml.Node]) -> None:
        """Refuse a few lines of aliases of aliases, which would fill the memory."""
        self._sizes[id(node)] = size = 1 + sum(self._sizes.get(id(each), 1) for each in inner)
        if size > _MOST_VALUES:
            raise yaml.MarkedYAMLError(problem="too many values", problem_mark=node.start_mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in (f"{_TAG}:str", f"{_TAG}:merge"):
                problem = f"a key must be text, in quotes if need be, got {key.value}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key '{key.value}' is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        self._measure(node, (value for _, value in node.value))
        return node


_TAG = "tag:yaml.org,2002"
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", list("-+0123456789.")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"{_TAG}:{_name}", re.compile(f"^(?:{_pattern})$"), _first)


def check_plain(data: Any) -> None:
    """Raise a ConfigError for data that JSON does not have: numbers that are not finite, other types, endless depth."""
    try:
        json.dumps(data, allow_nan=False)
    except (RecursionError, TypeError, ValueError) as error:
        raise ConfigError(f"is not JSON's: {error}") from error


def as_json(data: dict[str, Any], place: str) -> dict[str, Any]:
    """Return data as read from a JSON file: lists for tuples, string keys, and Python's numbers for NumPy's."""

    def as_number(value: Any) -> Any:
        if isinstance(value, np.generic) and not isinstance(number := value.item(), np.generic):
            return number
        raise TypeError(f"{value!r:.100} of type {type(value).__name__}")

    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=as_number))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place} holds more than a file can say: {error}") from error
    return plain


def leaves_by_path(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their dotted paths below ``prefix``, such as ``trainer.seed``."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        leaves |= leaves_by_path(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return leaves
