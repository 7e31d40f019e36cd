"""Results of a repeated update, and their text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from embodichain.agents.rl.nan_guard.nonfinite import EXTREME, FieldStats, Origin

_SHOWN_STEPS = 12
_SHOWN_ENVS = 8


@dataclass(frozen=True)
class StepReport:
    """One gradient step.

    Attributes:
        index: from 0.
        terms: the loss terms that the algorithm's ``loss`` returned.
        gradients: non-finite share of each parameter's gradient, by name; empty if the loss is not finite.
        fields: of the minibatch; empty if the algorithm has no ``loss(batch)``.
        operation: with the first NaN derivative, for the first step skipped with a finite loss, if found.
        is_skipped: whether the loss or a gradient is not finite.
    """

    index: int
    loss: float
    terms: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)
    fields: list[FieldStats] = field(default_factory=list)
    operation: str = ""
    is_skipped: bool = False


@dataclass(frozen=True)
class UpdateReport:
    """A whole update.

    Attributes:
        rollout: statistics of the rollout's fields.
        origin: of the first non-finite value in the rollout.
        entry: of the observation that the origin belongs to, if any.
        parameters: names of the policy's parameters and buffers that were not finite before the update.
        reward_terms: names of those whose mean over the rollout was not finite in the run.
        skipped_in_run: number of steps that the run skipped.
        is_broken: whether the parameters are not finite after the update.
        is_repeated: whether the update was repeated: a bundle does not have an algorithm's replay buffer.
    """

    rollout: list[FieldStats]
    origin: Origin | None
    entry: str
    parameters: list[str]
    reward_terms: list[str]
    steps: list[StepReport]
    skipped_in_run: int
    is_broken: bool
    is_repeated: bool = True

    @property
    def skipped(self) -> int:
        """Number of skipped steps."""
        return sum(step.is_skipped for step in self.steps)

    @property
    def is_reproduced(self) -> bool:
        """Whether the same number of steps was skipped as in the run, or the parameters broke."""
        return self.is_broken or (self.skipped > 0 and self.skipped == self.skipped_in_run)

    def facts(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"cause": self.cause, "skipped": self.skipped, "is_reproduced": self.is_reproduced, **asdict(self)}

    @property
    def cause(self) -> str:
        """Where the first non-finite value arose."""
        first = next((step for step in self.steps if step.is_skipped), None)
        if self.origin is not None:
            return _describe_origin(self)
        if self.parameters:
            return f"the policy before the update: {_listed(self.parameters)} not finite"
        if not self.is_repeated:
            return "unknown: the rollout is finite; it may be in what the replay buffer had stored before"
        if not self.steps:
            return "unknown: the algorithm does not use gradient_step, so that its steps cannot be seen"
        if first is None:
            return "unknown: everything here is finite"
        bad = [stats.name for stats in first.fields if stats.bad]
        if bad:
            return f"{_listed(bad)}, computed from a rollout that is finite: see the extremes above"
        terms = [name for name, value in first.terms.items() if not math.isfinite(value)]
        if terms:
            return f"loss of step {first.index + 1}: {_listed(terms)}; all that it is computed from is finite"
        if first.gradients:
            where = f", from {first.operation}" if first.operation else ""
            return f"gradient of {_listed(list(first.gradients))} in step {first.index + 1}, of a finite loss{where}"
        return (
            f"loss of step {first.index + 1}" if not math.isfinite(first.loss) else "the gradient's norm is too large"
        )


def format_headline(bundle: Mapping[str, Any]) -> str:
    """Return a bundle's kind, step and versions, for the screen."""
    versions = ", ".join(f"{name} {version}" for name, version in bundle["versions"].items())
    lines = [f"{bundle['kind']} at step {bundle['global_step']} of '{bundle['config']['trainer']['exp_name']}'"]
    lines += [f"made with {versions}; {bundle['num_threads']} threads, on {bundle.get('device', 'cpu')}"]
    return "\n".join([*lines, ""])


def format_report(report: UpdateReport) -> str:
    """Return a report for the screen."""
    lines = ["rollout", *_format_fields(report.rollout), ""]
    if not report.is_repeated:
        lines.append("gradient steps are not repeated: the bundle does not have the replay buffer that they drew from")
        return "\n".join([*lines, f"skipped  in the run {report.skipped_in_run}", f"cause    {report.cause}"])
    lines.append("gradient steps")
    first = next((step for step in report.steps if step.is_skipped), None)
    for step in report.steps[:_SHOWN_STEPS]:
        lines.append(_format_step(step))
        if step is first and step.fields:
            lines += ["        its minibatch:", *_format_fields(step.fields, "        ")]
    if len(report.steps) > _SHOWN_STEPS:
        rest = report.steps[_SHOWN_STEPS:]
        lines.append(f"  ...   {len(rest)} more, of which {sum(step.is_skipped for step in rest)} were skipped")
    lines += ["", f"skipped  {report.skipped} of {len(report.steps)} steps; in the run {report.skipped_in_run}"]
    if report.is_broken:
        lines.append("         the policy's parameters are not finite after the update")
    lines.append(f"cause    {report.cause}")
    if not report.is_reproduced:
        lines.append("         not reproduced: another device or other versions may be the reason")
    return "\n".join(lines)


def format_divergence(record: list[dict[str, Any]]) -> str:
    """Return the result of ``describe_divergence`` for the screen."""
    lines = []
    for row in record[:_SHOWN_ENVS]:
        times = "once" if row["count"] == 1 else f"{row['count']} times"
        lines.append(f"environment {row['environment']}: {times}, last in step {row['step']} of the rollout")
        lines += _format_fields([FieldStats(**fields) for fields in row["fields"]])
    if len(record) > _SHOWN_ENVS:
        lines.append(f"... {len(record) - _SHOWN_ENVS} more")
    return "\n".join(lines)


def to_json(value: Any) -> str:
    """Return plain data as JSON, with NaN and infinite numbers as text."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: plain(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return list(map(plain, part))
        return str(part) if isinstance(part, float) and not math.isfinite(part) else part

    return json.dumps(plain(value), indent=2)


def _format_fields(fields: Iterable[FieldStats], indent: str = "") -> list[str]:
    """Return a line for each field: its range and problems."""
    lines = []
    for stats in fields:
        notes = [f"NOT FINITE: {stats.bad} of {stats.count}"] if stats.bad else []
        notes += [f"extreme: beyond {EXTREME:g}"] if stats.is_extreme else []
        lines.append(
            f"{indent}  {stats.name:20} {stats.lowest:12.4g} to {stats.highest:<12.4g} {', '.join(notes)}".rstrip()
        )
    return lines


def _format_step(step: StepReport) -> str:
    if not step.is_skipped:
        return f"  {step.index + 1:<4}  made     loss {step.loss:.4g}"
    problems = [f"{name} {value:.4g}" for name, value in step.terms.items() if not math.isfinite(value)]
    problems += [f"batch field {stats.name}" for stats in step.fields if stats.bad]
    problems += [f"gradient of {name} ({share:.0%})" for name, share in step.gradients.items()]
    problems += [step.operation] if step.operation else []
    return f"  {step.index + 1:<4}  SKIPPED  loss {step.loss:.4g}" + (f": {', '.join(problems)}" if problems else "")


def _describe_origin(report: UpdateReport) -> str:
    origin = report.origin
    assert origin is not None
    entry = f" ({report.entry})" if report.entry else ""
    column = "" if origin.column is None else f"[{origin.column}]"
    terms = f"; {_listed(report.reward_terms)} not finite in the run" if report.reward_terms else ""
    return (
        f"the rollout's {origin.field}{column}{entry}: first not finite in environment {origin.env} at step "
        f"{origin.step}; {len(origin.envs)} environment{'s' if len(origin.envs) > 1 else ''} in all{terms}"
    )


def _listed(names: Sequence[str], few: int = 4) -> str:
    more = f" and {len(names) - few} more" if len(names) > few else ""
    return ", ".join(names[:few]) + more
