"""Gymnasium's registered environments by our ids: ``gymnasium:Name-v0``, ``gymnasium:package:Name-v0``."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError
from embodichain.utils.doors import install_command
from embodichain.utils.module_utils import folders_on_path, import_allowed_modules, import_folders

PREFIX = "gymnasium:"
_NEAR = 3  # names that a message has


def is_unprefixed(env_id: str) -> bool:
    """Return whether an id is the name of a Gymnasium environment, which is not one of ours."""
    return env_id in gym.registry and find_env_spec(env_id) is None


def check_gymnasium_id(env_id: str, allowed_imports: Sequence[str]) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a config, after importing the package that it names.

    Args:
        allowed_imports: prefixes of the packages that it may name.

    Raises:
        ConfigError: one line: the package is not allowed or not installed, or there is no such environment.
    """
    module, _ = _parts(env_id)
    if module:
        _import(module, allowed_imports)
    return find_spec(env_id)


def find_spec(env_id: str) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a checked config; raises as :func:`check_gymnasium_id`."""
    module, name = _parts(env_id)
    if module:
        with folders_on_path([os.getcwd()]):
            importlib.import_module(module)
    if find_env_spec(name) is not None:
        raise ConfigError(
            f"id: '{name}' is EmbodiChain's own environment: write \"id\": \"{name}\", without '{PREFIX}'"
        )
    spec = gym.registry.get(name)
    if spec is None:
        raise ConfigError(_unknown(name, module))
    return spec


def entry_folders(env_id: str, spec: EnvSpec) -> list[str]:
    """Return the folders of the imported modules that an id names and that have its class.

    The user allowed them. The working directory is not among them for others, whose missing packages a file there would
    replace.
    """
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    return import_folders([_parts(env_id)[0], module])


def with_python(message: str) -> str:
    """Return a message in which ``pip install`` installs for this Python."""
    return re.sub(r"(?<!-m )\bpip install", lambda _: install_command(), message)


def _import(module: str, allowed_imports: Sequence[str]) -> None:
    try:
        import_allowed_modules([module], allowed_imports, "id")
    except ConfigError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        package = str(error.__cause__.name).partition(".")[0].replace("_", "-")
        raise ConfigError(f"{error}; to install it: {with_python('pip install')} {package}") from error


def _parts(env_id: str) -> tuple[str, str]:
    """Return the package that an id names, or "", and the name of the environment."""
    module, _, name = env_id.removeprefix(PREFIX).rpartition(":")
    return module, name


def _unknown(name: str, module: str) -> str:
    names = [known for known in gym.registry if find_env_spec(known) is None]
    near = difflib.get_close_matches(name, names, n=_NEAR, cutoff=0.6)
    hint = f" Near: {', '.join(near)}." if near else ""
    package = (
        f"'{module}' registers none of that name"
        if module
        else f"if a package registers it, write '{PREFIX}<package>:{name}' and install it for {sys.executable}"
    )
    return f"id: Gymnasium has no environment '{name}'.{hint} {package[0].upper()}{package[1:]}"
