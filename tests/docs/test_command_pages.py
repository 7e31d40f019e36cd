"""The commands in the documentation: each parses."""

import re
import shlex
from pathlib import Path

import pytest

from embodichain.agents.rl.config.named import find_config
from embodichain.cli import make_parser

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]
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
