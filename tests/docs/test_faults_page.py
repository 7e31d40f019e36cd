"""docs/faults.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/faults.md").read_text(encoding="utf-8")


def test_every_case_names_the_tests_that_hold_it_and_they_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith(("| tried ", "| --- "))]
    assert len(rows) > 30
    for row in rows:
        tried, holds, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert tried
        assert holds
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`(, `(tests/[\w/]+\.py)::(test_\w+)`)*", tests)
        assert named, row
        for file, name in re.findall(r"`([\w/.]+)::(\w+)`", tests):
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
