"""Whether the backends agree, as text."""

from __future__ import annotations

from embodichain.tools.verify.run import Verdict
from embodichain.tools.verify.steps import FIELDS

_SHOWN = (1, 2, 5)  # and tens of these


def format_verdict(verdict: Verdict) -> str:
    """Return what was found, for the screen."""
    one, other = verdict.devices
    lines = [f"backends: mujoco.batch on {one}, MuJoCo Warp on {other}; {verdict.num_envs} environments", ""]
    for name, spread in verdict.steps.items():
        lines.append(
            f"one step from the same state, {spread.count} times, {name}: median {spread.median:.1e} apart, "
            f"nine in ten {spread.ninetieth:.1e}, at most {spread.largest:.1e}"
        )
    if not verdict.steps:
        lines.append("one step from the same state: nothing to compare, all episodes ended in their first step")
    lines += [
        "",
        "the same start and the same actions:",
        f"{'step':>6}{'envs':>6}" + "".join(f"{name + part:>13}" for name in FIELDS for part in (" median", " max")),
    ]
    lines[-1] += f"{'reward max':>13}"
    for row in verdict.drift:
        if row is verdict.drift[-1] or _is_shown(row.step):
            cells = [row.median[name] if part else row.largest[name] for name in FIELDS for part in (1, 0)]
            lines.append(f"{row.step:>6}{row.envs:>6}" + "".join(f"{cell:>13.1e}" for cell in (*cells, row.reward)))
    for name, evaluation in zip(verdict.devices, verdict.success, strict=False):
        low, high = evaluation.success_interval
        lines += [] if lines[-1].startswith("success") else [""]
        lines.append(
            f"success on {name}: {evaluation.success_rate:.1%} of {evaluation.episodes} episodes "
            f"(95 %: {low:.1%} to {high:.1%}), mean return {evaluation.avg_reward:.3f}"
        )
    return "\n".join([*lines, "", "the backends agree" if verdict.agree else "the backends do NOT agree"])


def _is_shown(step: int) -> bool:
    while step % 10 == 0:
        step //= 10
    return step in _SHOWN
