"""Reading of configuration files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
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


def load_json(path: str | Path) -> Any:
    """Read a JSON file: the path's or, if a path from ``configs`` is not there, the shipped one.

    Raises:
        ConfigError: the file is not there or not readable, or is not JSON (with line and column), or gives a key twice.
    """
    text = _read(Path(path))
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except _TwiceError as error:
        raise ConfigError(f"{path}: invalid JSON{_place_of_second(text, str(error))}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: invalid JSON: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(f"{path}: invalid JSON: {error}") from None


def load_config_file(path: str | Path) -> dict[str, Any]:
    """Read a JSON or (by its suffix ``.yaml``/``.yml``) YAML file with a mapping at the top level.

    YAML is read by version 1.2's rules for numbers and bools, so that both formats say the same:
    ``3e-4`` is a number, ``no`` is text, and keys are text.

    Raises:
        ConfigError: as :func:`load_json`, or the top level is not a mapping, or as :func:`check_plain`.
    """
    path = Path(path)
    data = _load_yaml(path) if path.suffix in _YAML else load_json(path)
    if not isinstance(data, dict):
        got = "nothing" if data is None else type(data).__name__
        raise ConfigError(f"{path}: the top level must be an object, got {got}")
    with placed(f"{path}: "):
        check_plain(data)
    return data


class _TwiceError(ValueError):
    """A key is given twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(f"key '{key}' is given twice")
        found[key] = value
    return found


def _place_of_second(text: str, problem: str) -> str:
    """Return ``" at line 3, column 5"`` of a repeated key; YAML's parser, which reads JSON too, has positions."""
    try:
        yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        if isinstance(error, yaml.MarkedYAMLError) and error.problem == problem and error.problem_mark:
            return f" at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    return ""


class _Loader(yaml.SafeLoader):
    """YAML by the core schema of version 1.2, limited to JSON's types; other tags are refused."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in (f"{_TAG}:str", f"{_TAG}:merge"):
                self._refuse(f"a key must be text, in quotes if need be, got {key.value}", key)
            if key.value in seen:
                self._refuse(f"key '{key.value}' is given twice", key)
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag not in _TAGS:
            shown = node.tag.replace(f"{_TAG}:", "!!")
            self._refuse(f"the tag '{shown:.50}' is not allowed: a config has what JSON has", node)
        return super().construct_object(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MERGED:
            self._refuse("too many keys are merged", node)

    def _refuse(self, problem: str, node: yaml.Node) -> None:
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


_TAG = "tag:yaml.org,2002"
_TAGS = {f"{_TAG}:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
_MERGED = 1000
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", list("-+0123456789.")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"{_TAG}:{_name}", re.compile(f"^(?:{_pattern})$"), _first)


def _load_yaml(path: Path) -> Any:
    text = _read(path)
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: invalid YAML{place}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ConfigError(f"{path}: invalid YAML: nested too deeply") from None
    except (KeyError, ValueError) as error:  # a bool that is none, by its tag; a number of thousands of digits
        raise ConfigError(f"{path}: invalid YAML: {error}") from None


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


_DEPTH = 40
_COUNT = 500_000
_KEY = 200
_INTEGER = 2**63

_Path = tuple[str | int, ...]


def check_plain(data: Any) -> None:
    """Check plain data: how deep, how much, and that numbers are finite and texts can be shown.

    Values in several places, such as YAML's aliases, count in each.

    Raises:
        ConfigError: too much or too deep; a key of more than 200 characters; a number that is not finite or needs more
            than 64 bits; a text with half a character or a zero byte.
    """
    stack: list[tuple[Any, _Path]] = [(data, ())]
    count = 0
    while stack:
        value, path = stack.pop()
        count += 1
        if count > _COUNT:
            raise ConfigError(f"{_at(path)}too much: a config has at most {_COUNT:,} values")
        if isinstance(value, dict | list):
            if len(path) == _DEPTH:
                raise ConfigError(f"{_at(path)}nested too deeply: at most {_DEPTH} levels")
            if isinstance(value, dict):
                for key in value:
                    _check_key(key, path)
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            stack += ((inner, (*path, key)) for key, inner in inside)
        elif isinstance(value, str):
            _check_text(value, path)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{_at(path)}must be a finite number, got {value}")
        elif isinstance(value, int) and not -_INTEGER <= value < _INTEGER:
            raise ConfigError(f"{_at(path)}must be a number of at most 64 bits")


def _check_key(key: str, path: _Path) -> None:
    _check_text(key, path)
    if len(key) > _KEY:
        raise ConfigError(f"{_at(path)}a key has at most {_KEY} characters, got '{key[:50]}...'")


def _check_text(text: str, path: _Path) -> None:
    """Check that a text or key can be printed and be part of a path."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("ascii", errors="backslashreplace").decode()[:50]
        raise ConfigError(f"{_at(path)}must be text without zero bytes and half characters, got '{shown}'")


def _at(path: _Path) -> str:
    """Return a path as the beginning of a message; nothing for the data as a whole."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    return f"{shown}: " if path else ""


def as_json(data: dict[str, Any], place: str) -> dict[str, Any]:
    """Return data as read from a JSON file: lists for tuples, string keys, and Python's numbers for NumPy's.

    Raises:
        ConfigError: the data have values that JSON lacks.
    """
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=_as_number))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place} holds more than a file can say: {error}") from error
    return plain


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic) and not isinstance(number := value.item(), np.generic):
        return number
    raise TypeError(f"{value!r:.100} of type {type(value).__name__}")


def leaves_by_path(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their dotted paths below ``prefix``, such as ``trainer.seed``."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        leaves |= leaves_by_path(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return leaves
