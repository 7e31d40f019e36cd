"""What docs/troubleshooting.md says is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.nan_guard.guard import MAX_BUNDLES, MAX_DIVERGENCE_RATE, WINDOW
from embodichain.agents.rl.nan_guard.nonfinite import EXTREME, FieldStats, Origin
from embodichain.tools.replay.report import StepReport, UpdateReport, format_report

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").split())


def test_every_message_of_the_table_is_in_the_code() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## Messages\n")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `(.+?)` \| .*\|$", table, re.MULTILINE)
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "embodichain").rglob("*.py")))
    code = re.sub(r'"\s*f?"', "", code)  # texts that go on in the next line
    assert len(messages) > 20
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in code, message


def test_page_gives_the_numbers_of_the_code() -> None:
    assert f"`trainer.max_skipped_updates` ({TrainerCfg.max_skipped_updates}) updates in a row" in PAGE
    assert (MAX_DIVERGENCE_RATE, "Above one in a thousand environment steps" in PAGE) == (1e-3, True)
    assert (WINDOW, "the ten steps up to it" in PAGE) == (10, True)
    assert (MAX_BUNDLES, "only the first three of each kind" in PAGE) == (3, True)
    assert (EXTREME, "numbers above 1e6, marked as extreme" in PAGE) == (1e6, True)


def test_example_of_a_replay_is_how_it_looks() -> None:
    fields = [
        FieldStats("obs", -11.5, 3.328, 0, 16),
        FieldStats("action", -0.6327, 2.085, 0, 8),
        FieldStats("sample_log_prob", -2.369, -0.9248, 0, 8),
        FieldStats("advantage", float("nan"), float("nan"), 8, 8),
        FieldStats("return", 0.5917, 3.726, 3, 8),
    ]
    terms = {"policy_loss": float("nan"), "value_loss": float("nan"), "entropy": 1.4}
    step = StepReport(0, float("nan"), terms, fields=fields, is_skipped=True)
    report = UpdateReport(
        rollout=[FieldStats("reward", -0.1755, 0.9034, 8, 32)],
        origin=Origin("reward", 1, 0, None, [1]),
        entry="",
        parameters=[],
        reward_terms=["rewards/align"],
        steps=[step] * 12,
        skipped_in_run=12,
        is_broken=False,
    )
    lines = [" ".join(line.split()) for line in format_report(report).splitlines()]
    assert len(lines) > 10
    for line in lines[:10]:
        assert line in PAGE
    for line in lines[-2:]:
        assert line in PAGE
