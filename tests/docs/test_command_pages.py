"""The commands in the documentation: each parses, and no command is without a word about it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from embodichain.agents.rl.config.named import find_config
from embodichain.cli import COMMANDS, make_parser
from embodichain.tools import statistics
from embodichain.tools.report.page import _LARGEST_VIDEO

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]
# In a block of code: indented, or between fences, at the beginning of a line.
LINES = [
    (path.name, line.strip())
    for path in PAGES
    for line in path.read_text(encoding="utf-8").splitlines()
    if re.match(r"( {4}|)(PYTHONPATH=\. |\.venv/bin/)?embodichain [a-z]", line)
]


def read(name: str) -> str:
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


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


def test_every_command_has_a_row_in_the_table() -> None:
    page = (DOCS / "command_line.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert re.search(rf"^\| \[`{name}[ `]", page, re.MULTILINE), name


def test_numbers_in_the_pages_are_those_of_the_code() -> None:
    parser = make_parser()
    defaults = {name: parser.parse_args([name, "run"]) for name in ("eval", "rewards", "export")}
    assert (defaults["eval"].episodes, "`--episodes` (200) episodes" in read("command_line.md")) == (200, True)
    assert (defaults["rewards"].episodes, "`--episodes` (200) with the policy" in read("reports.md")) == (200, True)
    assert (defaults["export"].observations, "1,000 observations (`--obs" in read("export.md")) == (1000, True)
    assert (statistics.MIN_RUNS, "at least 4 runs of each task" in read("reports.md")) == (4, True)
    assert (statistics.NUM_RESAMPLES, "(5,000 times)" in read("reports.md")) == (5000, True)
    assert (_LARGEST_VIDEO, "up to 8 MB each" in read("reports.md")) == (8_000_000, True)
