"""Every file, folder, module and name of the package that a page names exists."""

import importlib
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from embodichain.utils import doors

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
# Where the paths on a page may begin: pages about the learner leave the package's folders out.
STARTS = [ROOT, ROOT / "embodichain"]
FOLDERS = "embodichain|agents|lab|utils|tools|commands|tests|configs|scripts|examples|docs"


def names_nothing(dotted: str) -> bool:
    """Whether a dotted name is neither a module of the package nor an attribute of one."""
    parts = dotted.split(".")
    lengths = range(len(parts), 0, -1)
    paths = {n: ROOT.joinpath(*parts[:n]) for n in lengths}
    n = next(n for n in lengths if paths[n].is_dir() or paths[n].with_suffix(".py").is_file())
    return n < len(parts) and not _has(importlib.import_module(".".join(parts[:n])), parts[n:])


def _has(owner: object, names: list[str]) -> bool:
    for name in names:
        if isinstance(owner, ModuleType):
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{owner.__name__}.{name}")  # a module without a file of its own
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_names_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(rf"(?<![\w/.<-])(?:{FOLDERS})/[\w./-]*\w", text))
    assert [path for path in sorted(paths) if not any((start / path).exists() for start in STARTS)] == []
    groups = {value for value in vars(doors).values() if isinstance(value, str)}
    names = set(re.findall(r"\bembodichain(?:\.\w+)+", text)) - groups
    assert [name for name in sorted(names) if names_nothing(name)] == []
