"""A config's ``extensions``, checked against the attributes of the environment's class."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from embodichain.utils import logger
from embodichain.utils.errors import MISSPELT, closest
from embodichain.utils.validation import parse

_PLAIN = (bool, int, float, str, type(None))
_HOLDERS = (list, tuple, dict, Sequence, Mapping, Union, types.UnionType)


def extension_problems(extensions: Mapping[str, Any], env_class: type | None) -> list[str]:
    """Return the problems of names that would hide an attribute of the environment, and of values.

    A value must be of the type that the class annotates its attribute with, where that is one of JSON's, as in
    ``reach: float = 0.1``. A warning names what is nearly an attribute: a task may read others from its config.
    """
    problems = []
    bases = () if env_class is None else env_class.__mro__
    own = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ())) if name[0] != "_"}
    for name, value in extensions.items():
        place, there = f"env.extensions.{name}", getattr(env_class, name, None)
        if not name.isidentifier() or name.startswith("_"):
            problems.append(f"{place}: must be letters, digits and '_', and not begin with '_' or a digit")
        elif callable(there) or isinstance(there, property | functools.cached_property):
            problems.append(f"{place}: is taken: the environment has a method or property of that name")
        elif name not in own:
            if meant := closest(name, own, MISSPELT):
                logger.log_warning(f"{place}: the task has '{meant}': is that what is meant?")
        elif (kind := _kind_of(name, bases)) is not None:
            problems += [f"{path}: {problem}" for path, problem in parse(kind, value, place)[1].items()]
    return problems


def _kind_of(name: str, bases: Sequence[type]) -> Any:
    """Return the type of an attribute of a class with these bases; None: it has none, or not one of JSON's."""
    base = next((base for base in bases if name in vars(base).get("__annotations__", ())), None)
    if base is None:
        return None
    kind = vars(base)["__annotations__"][name]
    if isinstance(kind, str):
        try:
            kind = eval(kind, vars(sys.modules[base.__module__]))  # as typing.get_type_hints does, for this one alone
        except (AttributeError, KeyError, NameError, SyntaxError, TypeError):  # for type checkers alone
            return None
    return kind if _is_of_json(kind) else None


def _is_of_json(kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _is_of_json(arguments[0])
    if origin is Literal:
        return True
    if origin in _HOLDERS:
        return all(argument is Ellipsis or _is_of_json(argument) for argument in arguments)
    return kind is None or kind in _PLAIN
