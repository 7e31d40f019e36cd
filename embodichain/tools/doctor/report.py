"""What the checks of an algorithm found, and how it is told; the facts of a machine, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


class CheckFailedError(Exception):
    """What should have been, what was, and the likely cause."""

    def __init__(self, expected: str, got: str, cause: str) -> None:
        super().__init__(expected, got, cause)


class CheckSkippedError(Exception):
    """Why a check does not apply."""


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    Attributes:
        expected: what should have been; empty unless it failed.
        got: what was; empty unless it failed.
        cause: the likely cause of a failure, or why the check was skipped.
    """

    name: str
    status: Literal["passed", "failed", "skipped"]
    expected: str = ""
    got: str = ""
    cause: str = ""
    seconds: float = 0.0


def expect(condition: Any, expected: str, got: str, cause: str) -> None:
    """Fail a check unless a condition holds, a bool or a tensor of one."""
    if not condition:
        raise CheckFailedError(expected, got, cause)


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


def format_machine(facts: dict[str, Any]) -> str:
    """Return what ``examine_machine`` found, for the screen."""
    threads = ", ".join([f"torch {facts['torch_threads']}", *(f"{k}={v}" for k, v in facts["environment"].items())])
    rows = {
        "system": f"{facts['system']}, Python {facts['python']}",
        "processor": f"{facts['processor'] or 'unknown'}, {facts['cores']} cores, load {facts['load_average']:g}",
        "memory": f"{facts['memory_gb']} GB, {facts['free_memory_gb']} GB free; disk: {facts['free_disk_gb']} GB free",
        "GPU": "; ".join(facts["gpus"]) or "none",
        "images": facts["pictures"],
        "threads": threads,
        "versions": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
    }
    lines = [f"{name:11}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "", *(f"advice     {line}" for line in facts["advice"] or ["none: all is well"])])
