"""Rows of headlines, and their table."""

import json
from pathlib import Path
from typing import Any

from benchmarks.seeds import current_rows, digest_of, table_of, write_tables
from embodichain.agents.rl.config.named import find_config


def row(seed: int, success: float, **others: Any) -> dict[str, Any]:
    numbers = {"success_rate": success, "return": 1.0, "env_steps": 4096, "train_seconds": 10.0 + seed}
    return {"config": "push_cube", "digest": digest_of(find_config("push_cube")), "seed": seed} | numbers | others


def test_table_has_median_and_worst_seed() -> None:
    table = table_of({"push_cube": [row(1, 0.9), row(2, 1.0), row(3, 0.97)]})
    assert table.splitlines()[-1] == "| `push_cube` | 97.0% | 90.0% | 3 | 4,096 | 12 s |"


def test_rows_of_another_config_and_repeated_seeds_do_not_count(tmp_path: Path) -> None:
    results = tmp_path / "rows.jsonl"
    rows = [row(1, 0.9), row(2, 0.8), row(3, 0.1, digest="other"), row(1, 0.95)]
    results.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    assert [each["success_rate"] for each in current_rows(results)["push_cube"]] == [0.95, 0.8]


def test_table_is_written_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- headlines -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    write_tables("new\n", [page])
    assert page.read_text(encoding="utf-8") == "a\n<!-- headlines -->\nnew\n<!-- end -->\nb\n"
