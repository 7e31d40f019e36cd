"""Rows of headlines, and their table."""

import json
from pathlib import Path
from typing import Any

from benchmarks.seeds import current_rows, digest_of, table_of, write_tables
from embodichain.agents.rl.config.named import find_config


def row(seed: int, success: float, **others: Any) -> dict[str, Any]:
    numbers = {"success_rate": success, "return": 1.0, "env_steps": 4096, "train_seconds": 10.0 + seed}
    return {"config": "push_cube", "digest": digest_of(find_config("push_cube")), "seed": seed} | numbers | others


def test_digest_is_of_the_trainings_events_and_not_of_the_cameras(tmp_path: Path) -> None:
    digests = []
    for number, events in enumerate(({}, {"eval": {"camera": 1}}, {"train": {"pose": 1}})):
        config = tmp_path / f"{number}.json"
        config.write_text(json.dumps({"trainer": {"gym_config": {}, "events": events}}), encoding="utf-8")
        digests.append(digest_of(config))
    assert digests[0] == digests[1] != digests[2]


def test_table_has_median_and_worst_seed() -> None:
    table = table_of({"push_cube": [row(1, 0.9), row(2, 1.0), row(3, 0.97)]})
    assert table.splitlines()[-1] == "| `push_cube` | 97.0% | 90.0% | 3 | 4,096 | 12 s |"


def test_table_has_the_velocity_error_of_robots_that_walk() -> None:
    rows = [row(seed, 0.9, metrics={"velocity_error_xy": 0.05 + 0.01 * seed}) for seed in (1, 2, 3)]
    table = table_of({"walk": rows})
    assert table.splitlines()[-1] == "| `walk` | 0.070 m/s | 0.080 m/s | 3 | 4,096 | 12 s |"


def test_rows_of_another_config_and_repeated_seeds_do_not_count(tmp_path: Path) -> None:
    results = tmp_path / "rows.jsonl"
    rows = [row(1, 0.9), row(2, 0.8), row(3, 0.1, digest="other"), row(1, 0.95)]
    results.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    assert [each["success_rate"] for each in current_rows(results)["push_cube"]] == [0.95, 0.8]


def test_rows_of_other_words_for_train_are_apart(tmp_path: Path) -> None:
    results, command = tmp_path / "rows.jsonl", "push_cube --processes 2"
    rows = [row(1, 0.9), row(1, 0.8, config=command)]
    results.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    assert current_rows(results) == {"push_cube": [rows[0]], command: [rows[1]]}


def test_table_is_written_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- headlines -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    write_tables("new\n", [page])
    assert page.read_text(encoding="utf-8") == "a\n<!-- headlines -->\nnew\n<!-- end -->\nb\n"
