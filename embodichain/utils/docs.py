"""Docstrings of config fields and arguments, for the JSON Schema and the docs."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
from itertools import pairwise
from typing import Any


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below a config class's fields, inherited ones included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):  # made at run time
            continue
        for field, below in pairwise(getattr(tree.body[0], "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = _one_line(text)
    return docs


def argument_docs(function: Any) -> dict[str, str]:
    """Return the description of each argument in a docstring's ``Args`` section."""
    text = inspect.cleandoc(function.__doc__ or "")
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.split(r"^(\w+): ", textwrap.dedent(section[1]), flags=re.MULTILINE)
    return {name: _one_line(said) for name, said in zip(entries[1::2], entries[2::2], strict=True)}


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return _one_line(inspect.cleandoc(thing.__doc__ or "").split("\n")[0])


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
