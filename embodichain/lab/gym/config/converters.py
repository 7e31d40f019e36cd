"""Converters of other layouts of a config to ours, behind the door ``embodichain.config_converters``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from embodichain.utils.doors import CONFIG_CONVERTERS, load_all


class Converted(Protocol):
    """A config in the present layout."""

    data: dict[str, Any]

    def in_users_words(self, lines: Sequence[str]) -> list[str]:
        """Return lines about ``data`` with the paths of the user's file."""


class InlineEnv(Converted, Protocol):
    """An environment's config from inside a training config, with the folder of its model files."""

    problems: list[str]
    folder: Path


class Converter(Protocol):
    """The module that the door names; each function adds lines about values that cannot be read to ``problems``."""

    def refuse_other_products(self, data: Mapping[str, Any]) -> None:
        """Raise a ConfigError, one line, for a file that is no config of a training or an environment."""

    def convert_training(self, data: dict[str, Any], problems: list[str], overrides: Sequence[str]) -> Converted:
        """Convert a training config, and apply its overrides."""

    def convert_environment(self, data: Mapping[str, Any], problems: list[str]) -> Converted:
        """Convert an environment config.

        Raises:
            ConfigError: it is of a kind that cannot be converted.
        """

    def read_inline_env(self, block: Any) -> InlineEnv:
        """Read the environment's config in an older training config's ``env``."""


@dataclass
class Unchanged:
    """A config that no converter has changed."""

    data: dict[str, Any]

    def in_users_words(self, lines: Sequence[str]) -> list[str]:
        """Return the lines."""
        return list(lines)


def converter() -> Converter | None:
    """Return the first installed converter, if there is one."""
    return next(iter(load_all(CONFIG_CONVERTERS).values()), None)


def convert_environment(data: Mapping[str, Any], problems: list[str]) -> Converted:
    """Convert an environment config with the installed converter; see ``Converter``."""
    found = converter()
    return Unchanged(copy.deepcopy(dict(data))) if found is None else found.convert_environment(data, problems)
