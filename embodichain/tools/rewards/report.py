"""The terms of a reward, as text."""

from __future__ import annotations

from typing import Any

from embodichain.tools.rewards.terms import OTHER


def format_terms(result: dict[str, Any], is_rescored: bool) -> str:
    """Return the result of ``analyse_reward`` for the screen; ``is_rescored``: with other weights than the run's."""
    facts = result["terms"]
    total = sum(fact["size"] for fact in facts.values()) or 1.0
    width = max(len(name) for name in (*facts, "an episode")) + 2
    head = f"{'an episode':{width}}{'weight':>10}{'mean':>12}{'of size':>10}{'of variance':>13}{'with success':>14}"
    lines = [
        f"{result['episodes']} episodes with exploration, {result['success_rate']:.1%} succeed"
        + (", paid by other weights" if is_rescored else ""),
        "",
        head,
    ]
    for name, fact in facts.items():
        weight = result["weights"].get(name)
        share = fact["size"] / total
        lines.append(
            f"{name:{width}}{'' if weight is None else f'{weight:g}':>10}{fact['mean']:12.4g}{share:10.1%}"
            f"{_cell(fact['share_of_variance'], '{:.1%}'):>13}{_cell(fact['correlation'], '{:+.2f}'):>14}"
        )
    lines += ["", f"return of episodes that succeed  {_cell(result['return_of_success'], '{:.4g}')}"]
    lines += [f"return of those that do not      {_cell(result['return_of_failure'], '{:.4g}')}"]
    before = f", before {_cell(result['correlation_before'], '{:+.2f}')}" if is_rescored else ""
    after = _cell(result["correlation_of_return_with_success"], "{:+.2f}")
    lines += [f"correlation of return with success  {after}{before}"]
    for name, reason in result["misleading"].items():
        lines.append(f"look at '{name}': in training it {reason}")
    if OTHER in facts:
        lines.append(f"{OTHER}: what the task pays beside these terms")
    return "\n".join(lines)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
