"""What the checks found, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["CheckResult", "Finding", "failed", "format_result", "format_totals", "passed", "skipped"]

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        status: whether it passed.
        expected: what should have been; empty unless it failed.
        got: what was; empty unless it failed.
        cause: the likely cause of a failure, or why the check was skipped.
    """

    status: Status
    expected: str = ""
    got: str = ""
    cause: str = ""


@dataclass(frozen=True)
class CheckResult(Finding):
    """A finding with the check's name and how long it took.

    Attributes:
        name: of the check.
        seconds: it took.
    """

    name: str = ""
    seconds: float = 0.0


def passed() -> Finding:
    """Return the finding of a check in order."""
    return Finding("passed")


def failed(expected: str, got: str, cause: str) -> Finding:
    """Return the finding of a check that failed."""
    return Finding("failed", expected, got, cause)


def skipped(reason: str) -> Finding:
    """Return the finding of a check that does not apply."""
    return Finding("skipped", cause=reason)


def format_result(result: CheckResult) -> str:
    """Return a result for the screen: a line, and three more where the check failed."""
    if result.status == "skipped":
        return f"  skipped  {result.name}: {result.cause}"
    if result.status == "passed":
        return f"  passed   {result.name}"
    lines = [f"  FAILED   {result.name}"]
    lines += [f"             {label:9} {getattr(result, label)}" for label in ("expected", "got", "cause")]
    return "\n".join(lines)


def format_totals(results: Sequence[CheckResult]) -> str:
    """Return the last line of a report."""
    statuses = [result.status for result in results]
    seconds = sum(result.seconds for result in results)
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("passed", "failed", "skipped"))
    return f"{counts} in {seconds:.1f} s"
