"""Configuration classes, errors, files, extras and logging: the names that every other part uses."""

from dataclasses import MISSING, field

from embodichain.utils import doors, logger
from embodichain.utils.configclass import MayChange, RayTracing, configclass, from_dict, parse, replace, to_dict
from embodichain.utils.doors import face, install_extra
from embodichain.utils.errors import (
    CommandFailedError,
    ConfigError,
    UnavailableError,
    collected,
    nearest,
    placed,
    raise_problems,
    reason_of,
    unknown_key,
    unknown_name,
)
from embodichain.utils.files import is_run_folder, read_bytes, read_text, write_atomically, write_json

__all__ = [
    "MISSING",
    "CommandFailedError",
    "ConfigError",
    "MayChange",
    "RayTracing",
    "UnavailableError",
    "collected",
    "configclass",
    "doors",
    "face",
    "field",
    "from_dict",
    "install_extra",
    "is_run_folder",
    "logger",
    "nearest",
    "parse",
    "placed",
    "raise_problems",
    "read_bytes",
    "read_text",
    "reason_of",
    "replace",
    "to_dict",
    "unknown_key",
    "unknown_name",
    "write_atomically",
    "write_json",
]
