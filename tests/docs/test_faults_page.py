"""docs/faults.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/faults.md").read_text(encoding="utf-8")


def test_every_fault_names_existing_tests() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith(("| fault ", "| --- "))]
    assert len(rows) > 30
    for row in rows:
        fault, result, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert fault
        assert result
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`(, `(tests/[\w/]+\.py)::(test_\w+)`)*", tests)
        assert named, row
        for file, name in re.findall(r"`([\w/.]+)::(\w+)`", tests):
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
