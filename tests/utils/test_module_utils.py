"""from __future__ import annotations"""

import collections
import re
import sys
from pathlib import Path

import pytest

from embodichain.utils import ConfigError
from embodichain.utils.module_utils import find_admitted, find_function_from_modules, import_allowed_modules


def test_plain_name_is_taken_from_the_first_module_that_has_it() -> None:
    assert find_function_from_modules("OrderedDict", ["json", "collections"]) is collections.OrderedDict
    assert find_function_from_modules("join", ["posixpath", "ntpath"]).__module__ == "posixpath"
    assert find_function_from_modules("join", ["ntpath", "posixpath"]).__module__ == "ntpath"


@pytest.mark.parametrize("name", ["no_such", "collections.NoSuch", "no_such_package.f", ".f", "a..f", "f."])
def test_name_that_is_not_there_gives_none_or_an_error_by_choice(name: str) -> None:
    assert find_function_from_modules(name, ["json"], raise_if_not_found=False) is None
    with pytest.raises(ConfigError, match="unknown function"):
        find_function_from_modules(name, ["json"])


def test_error_has_the_nearest_public_name_and_all_of_them() -> None:
    with pytest.raises(ConfigError, match=r"'lods'\. Did you mean 'loads'\? Known: .*dump, dumps, load, loads"):
        find_function_from_modules("lods", ["json"])


def test_missing_dependency_of_a_users_module_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users_module_with_fault.py").write_text("import a_dependency_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_dependency_that_is_not_there"):
        find_function_from_modules("users_module_with_fault.f", [])
    assert "users_module_with_fault" not in sys.modules


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (["my_lab.terms", "json", "my_lab.a2c"], "'my_lab.terms', 'my_lab.a2c' are not allowed to be imported"),
        (["a.b", "c"], "--allow-import a.b --allow-import c, or set EMBODICHAIN_ALLOW_IMPORT=a.b,c"),
        (["x; rm -r ~"], "--allow-import 'x; rm -r ~', or set EMBODICHAIN_ALLOW_IMPORT='x; rm -r ~'"),
    ],
)
def test_modules_that_are_not_allowed_are_refused_all_at_once(modules: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^--import: .*{re.escape(message)}"):
        import_allowed_modules(modules, ["json"], "--import")


TERMS = """
from functools import partial
from os import system
from typing import Any

class Term: ...
class Instance:
    def __call__(self): ...
def term(): ...
class Odd:
    __init__ = None
made, half = Instance(), partial(term)
"""


@pytest.fixture
def terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "users_terms.py").write_text(TERMS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "users_terms"


@pytest.mark.parametrize("name", ["Any", "partial", "system"])
def test_what_a_module_only_imports_is_not_named(terms: str, name: str) -> None:
    for written in (name, f"{terms}.{name}"):
        with pytest.raises(ConfigError, match=f"here: unknown function '{written}'"):
            find_admitted(written, [terms], [], "here")


@pytest.mark.parametrize("name", ["term", "Term", "made", "half"])
def test_what_a_module_makes_itself_may_be_named(terms: str, name: str) -> None:
    assert find_admitted(name, [terms], [], "here") is getattr(sys.modules[terms], name)
