"""Writes the table of THIRD_PARTY.md from the packages' own metadata: python scripts/third_party.py REPORT

REPORT is the output of ``pip install --dry-run --report REPORT`` for all packages in requirements/*.txt; ``make lock``
writes both.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["DOCUMENT", "licence", "locked", "render"]

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENT = REPOSITORY / "THIRD_PARTY.md"
# A part of the lock, and what installs it, in the table's words.
PARTS = {
    "run": "`make setup`",
    "torch": "`make setup`",
    "dev": "`make setup-dev`",
    "docs": "`make docs`",
    "extras": "an extra",
    "bench": "`make bench`",
    "tools": "`make sbom`",
}
_TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+)", re.MULTILINE)


def normalised(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, tuple[str, str]]:
    """Return version and part of each package in requirements/*.txt; of several parts, the first in ``PARTS``."""
    packages: dict[str, tuple[str, str]] = {}
    for part in PARTS:
        text = (REPOSITORY / f"requirements/{part}.txt").read_text(encoding="utf-8")
        for name, version in _PINNED.findall(text):
            packages.setdefault(normalised(name), (version, part))
    return packages


def licence(metadata: dict[str, Any]) -> str:
    """Return the licence that a package states: an expression, else one line of text, else classifiers."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    text = metadata.get("license") or ""
    if 0 < len(text) <= 60 and "\n" not in text and text != "UNKNOWN":
        return str(text)
    classifiers = [entry for entry in metadata.get("classifier", []) if entry.startswith("License ::")]
    return ", ".join(entry.rpartition(" :: ")[2] for entry in classifiers) or "not stated"


def render(document: str, report: dict[str, Any]) -> str:
    """Return the document with its table written again from pip's report."""
    stated = {normalised(item["metadata"]["name"]): licence(item["metadata"]) for item in report["install"]}
    packages = locked()
    if missing := packages.keys() - stated.keys():
        raise SystemExit(f"third_party: the report lacks {', '.join(sorted(missing))}; run this on Linux")
    rows = ["| package | version | licence | installed by |", "| --- | --- | --- | --- |"]
    for name, (version, part) in sorted(packages.items()):
        rows.append(f"| {name} | {version} | {stated[name]} | {PARTS[part]} |")
    return _TABLE.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[2], document)


if __name__ == "__main__":
    REPORT = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    DOCUMENT.write_text(render(DOCUMENT.read_text(encoding="utf-8"), REPORT), encoding="utf-8")
