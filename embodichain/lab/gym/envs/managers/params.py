"""The parameters of functors, read from their signatures, and checks of a config's ``params``."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, cast

from pydantic.dataclasses import rebuild_dataclass
from pydantic.warnings import ArbitraryTypeWarning

from embodichain.lab.gym.envs.managers import types
from embodichain.utils import configclass
from embodichain.utils.validation import from_dict


@dataclass(frozen=True)
class Signature:
    """The arguments of a function that a config gives.

    Attributes:
        cls: a config class with a field for each, typed and with its default as in the signature.
        untyped: parameters without an annotation, or with one that only a type checker can resolve.
        takes_more: whether the function has ``**kwargs`` too.
    """

    cls: type
    untyped: frozenset[str]
    takes_more: bool


@functools.cache
def read_signature(func: Callable[..., Any], skip: int) -> Signature:
    """Read a function's arguments, without the first ``skip``, which the manager passes."""
    arguments = list(inspect.signature(func).parameters.values())
    positional = [a for a in arguments if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD)]
    own = positional[skip:] + [a for a in arguments if a.kind is a.KEYWORD_ONLY]
    hints = {a.name: _hint(func, a) for a in own}
    defaults = {a.name: a.default for a in own if a.default is not a.empty}
    name = f"{func.__qualname__} params" if hasattr(func, "__qualname__") else "params"
    with warnings.catch_warnings():
        # Non-types, such as `callable`, allow anything.
        warnings.simplefilter("ignore", ArbitraryTypeWarning)
        try:
            cls = _make_class(name, hints, defaults)
        except NameError:  # a name inside a type: list["TermEnv"]
            hints = dict.fromkeys(hints, Any)
            cls = _make_class(name, hints, defaults)
    untyped = frozenset(name for name, hint in hints.items() if hint is Any)
    return Signature(cls, untyped, any(a.kind is a.VAR_KEYWORD for a in arguments))


def _make_class(name: str, hints: dict[str, Any], defaults: dict[str, Any]) -> type:
    cls: type = configclass(type(name, (), {"__annotations__": hints, **defaults}))
    rebuild_dataclass(cast(Any, cls))
    return cls


def parse_params(func: Callable[..., Any], skip: int, params: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check a config's ``params`` against a signature.

    Args:
        skip: number of leading arguments that the manager passes.
        place: params' place in the config, for messages.

    Returns:
        All arguments, defaults included, converted to their types; ``{"uid": ...}`` is a :class:`SceneEntityCfg`.

    Raises:
        ConfigError: all errors, a line each: names that are unknown or missing, and wrong types.
    """
    signature = read_signature(func, skip)
    known = {key: value for key, value in params.items() if not signature.takes_more or _has(signature.cls, key)}
    values = vars(from_dict(signature.cls, known, place, noun="parameter"))
    parsed = {name: values[name] for name in inspect.get_annotations(signature.cls)}
    for key, value in params.items():
        if key in signature.untyped or key not in known:
            parsed[key] = _entity(value, f"{place}.{key}")
    return parsed


def _has(cls: type, name: str) -> bool:
    return name in inspect.get_annotations(cls)


def _hint(func: Any, argument: inspect.Parameter) -> Any:
    """Return the type of an annotation, or Any if it cannot be resolved at runtime."""
    hint = Any if argument.annotation is argument.empty else argument.annotation
    if isinstance(hint, str):
        try:
            # The module's own source, as typing.get_type_hints reads it; that gives up where one name is not there, and
            # terms import the environment's class for type checkers only.
            hint = eval(hint, getattr(inspect.unwrap(func), "__globals__", {}))
        except (AttributeError, NameError, SyntaxError, TypeError):
            return Any
    # Many write `sigma: float = None`.
    return Optional[hint] if argument.default is None and hint is not Any else hint  # noqa: UP045 (hint is a value)


def _entity(value: Any, place: str) -> Any:
    return from_dict(types.SceneEntityCfg, value, place) if isinstance(value, dict) and "uid" in value else value
