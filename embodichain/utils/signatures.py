"""Arguments that a config gives, checked against a function's signature."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, cast

from pydantic.dataclasses import rebuild_dataclass
from pydantic.warnings import ArbitraryTypeWarning

from embodichain.utils.configclass import configclass, from_dict


@dataclass(frozen=True)
class Signature:
    """The arguments of a function that a config gives."""

    cls: type
    """A config class with a field for each, typed and with its default as in the signature."""
    untyped: frozenset[str]
    """Parameters without an annotation, or with one that only a type checker can resolve."""
    takes_more: bool
    """Whether the function has ``**kwargs`` too."""

    def parse(self, given: Mapping[str, Any], place: str, noun: str) -> dict[str, Any]:
        """Return all arguments that the signature names, defaults included, converted to their types.

        Raises:
            ConfigError: one is wrong, unknown or missing; ``place`` and ``noun`` as for ``from_dict``.
        """
        own = inspect.get_annotations(self.cls)
        known = {key: value for key, value in given.items() if not self.takes_more or key in own}
        values = vars(from_dict(self.cls, known, place, noun=noun))
        return {name: values[name] for name in own}


@functools.cache
def read_signature(func: Callable[..., Any], skip: int) -> Signature:
    """Read a function's arguments, without the first ``skip``, which its caller passes."""
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
