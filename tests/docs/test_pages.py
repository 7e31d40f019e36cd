"""Pages name what there is: their links, paths, names and commands."""

import importlib
import re
import shlex
import unicodedata
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from embodichain.agents.rl.config.named import find_config
from embodichain.cli import make_parser
from embodichain.utils import doors

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]


def text_of(page: Path) -> str:
    """A page without its code, where `#` begins no heading and brackets are no link."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors that both mkdocs and GitHub give a heading; the two differ where punctuation stands alone."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip()
        ascii_words = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode()
        site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_words).strip().lower())
        if site == re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-"):
            found.add(site)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", text_of(page))
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    wrong = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"https?:", link):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            wrong.append(link)
    assert wrong == []


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


# In a block of code: indented, or between fences, at the beginning of a line.
LINES = [
    (path.name, line.strip())
    for path in PAGES
    for line in path.read_text(encoding="utf-8").splitlines()
    if re.match(r"( {4}|)(PYTHONPATH=\. |\.venv/bin/)?embodichain [a-z]", line)
]


@pytest.mark.parametrize(("page", "line"), LINES, ids=lambda value: value[:60])
def test_command_in_a_page_parses(page: str, line: str) -> None:
    command = re.sub(r"\s+#.*$| > .*$|^.*?(?=embodichain )", "", line)
    assert not command.endswith("\\"), "write it on one line"
    arguments = shlex.split(command)[1:]
    if arguments[0] in ("train", "resume", "validate"):
        _, rest = make_parser().parse_known_args(arguments)
        assert all("=" in text for text in rest)
        if re.fullmatch(r"[\w/]+", arguments[1]) and arguments[0] == "train":
            assert find_config(arguments[1]).is_file()  # a shipped one, by name
    else:
        make_parser().parse_args(arguments)


def test_pages_have_commands() -> None:
    assert len(LINES) > 30


def test_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
