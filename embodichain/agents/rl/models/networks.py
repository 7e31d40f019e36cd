"""Networks by name, for ``actor.type`` and ``critic.type``: users' own, next to ``mlp`` and ``cnn``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationInfo, field_validator
from torch import nn

from embodichain.utils import ConfigError, configclass
from embodichain.utils.doors import NETWORKS, entries, load
from embodichain.utils.errors import unknown_name
from embodichain.utils.module_utils import check_free

N = TypeVar("N", bound=type[nn.Module])

_NETWORKS: dict[str, type[nn.Module]] = {}
BUILT_IN = ("mlp", "cnn")


@configclass
class NetworkTypeCfg:
    """The block of a registered network: ``{"type": "residual", "network_cfg": {...}}``."""

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": [*BUILT_IN]}})]
    """A registered name."""
    network_cfg: dict[str, Any] = {}
    """Arguments of the network's class, without ``in_dim`` and ``out_dim``."""

    @field_validator("type")
    @classmethod
    def _is_known(cls, value: str) -> str:
        get_network_class(value)
        return value

    @field_validator("network_cfg")
    @classmethod
    def _are_arguments(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "type" in info.data:
            try:
                inspect.signature(get_network_class(info.data["type"])).bind(0, 0, **value)
            except TypeError as error:
                raise ValueError(str(error)) from error
        return value


def register_network(name: str, override: bool = False) -> Callable[[N], N]:
    """Register the decorated module for ``actor.type`` and ``critic.type``.

    The class is built as ``cls(in_dim, out_dim, **network_cfg)`` and maps [..., in_dim] to [..., out_dim].

    Args:
        override: replace another class of this name.

    Raises:
        ConfigError: (a ValueError) on decorating a class that is no ``nn.Module``; or the name is another class's and
            ``override`` is false.
    """

    def register(cls: N) -> N:
        if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
            raise ConfigError(f"network '{name}': {cls!r} is no subclass of torch.nn.Module")
        if name in BUILT_IN:
            raise ConfigError(f"network '{name}': is the name of a built-in network")
        if not override:
            check_free(_NETWORKS, name, cls, "network")
        _NETWORKS[name] = cls
        return cls

    return register


def get_registered_network_names() -> list[str]:
    """Return the names that ``actor.type`` may have, sorted."""
    return sorted({*BUILT_IN, *_NETWORKS, *entries(NETWORKS)})


def get_network_class(name: str) -> type[nn.Module]:
    """Return the class of a registered name.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in _NETWORKS:
        found = load(NETWORKS, name)
        if found is None:
            raise ConfigError(unknown_name("network type", name, get_registered_network_names()))
        register_network(name)(found)
    return _NETWORKS[name]
