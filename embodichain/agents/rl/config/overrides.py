"""Overrides of config values on the command line: ``trainer.num_envs=256``."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from embodichain.utils import ConfigError, collected, placed, raise_problems
from embodichain.utils.utility import check_plain

_ELEMENT = re.compile(r"\[\d+\]$")
_INLINE = re.compile(r"(trainer\.)?gym_config\.")  # in a training config, and in a run's record


def apply_overrides(data: dict[str, Any], overrides: Sequence[str], problems: list[str]) -> None:
    """Set values of a config's plain data by dotted paths; lines about malformed ones go to ``problems``."""
    for override in overrides:
        with collected(problems):
            keys, value = _parse_override(override)
            *parents, last = keys
            node = data
            for key in parents:
                raise_problems(_element_problems(node, key, override, is_entered=True))
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise ConfigError(f"override '{override}': '{key}' is not an object in the config")
            raise_problems(_element_problems(node, last, override, is_entered=False))
            node[last] = value


def _element_problems(node: Mapping[str, Any], key: str, override: str, is_entered: bool) -> list[str]:
    """Return the error of an element of a list: ``sensor.0``, or ``sensor[0]``, as errors name it."""
    name = _ELEMENT.sub("", key)
    if isinstance(node.get(name), list) and (is_entered or name != key):
        return [f"override '{override}': elements of a list cannot be set: give the whole list, {name}=[...]"]
    return []


def split_overrides(overrides: Sequence[str], env_keys: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the overrides of the training config, and the environment's, which begin at its own top.

    Args:
        overrides: ``env.rewards.reach.weight=2``; also ``trainer.gym_config.env.rewards.reach.weight=2`` and
            ``gym_config.env.rewards.reach.weight=2``, its path in a run's ``config.json``.
        env_keys: the keys of an environment's config; the training config has none of them.

    Raises:
        ConfigError: the overrides are no list of texts.
    """
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
        raise ConfigError(f"overrides: must be a list such as ['trainer.num_envs=256'], got {overrides!r}")
    train: list[str] = []
    env: list[str] = []
    for override in overrides:
        place = _INLINE.match(override)
        inner = override[place.end() :] if place else override
        first = re.split(r"[.=\[]", inner, maxsplit=1)[0]
        is_env = place is not None or first in env_keys
        (env if is_env else train).append(inner)
    return train, env


def _parse_override(override: str) -> tuple[list[str], Any]:
    """Return the keys of an override's path, and its value."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override '{override}': must be of the form trainer.num_envs=256")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    with placed(f"override '{path}': "):
        check_plain(value)
    return keys, value
