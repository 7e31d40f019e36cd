"""Configuration classes, errors, files, extras and logging: the names that every other part uses."""

from embodichain.utils import doors, logger
from embodichain.utils.configclass import MISSING, MayChange, configclass, field, replace, to_dict
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
    "UnavailableError",
    "collected",
    "configclass",
    "doors",
    "face",
    "field",
    "install_extra",
    "is_run_folder",
    "logger",
    "nearest",
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
