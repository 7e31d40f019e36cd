from __future__ import annotations

from typing import Any

import pytest

from embodichain.ext.upstream.translation import Translation


def translation(data: dict[str, Any]) -> Translation:
    return Translation(data)


def test_value_moves_and_is_reported() -> None:
    t = translation({"old": {"key": 1}, "empty": None})
    t.move("old.key", "new.place")
    t.move("old.absent", "new.other")
    t.move("empty", "new.other")  # null: not given
    assert t.data == {"old": {}, "new": {"place": 1}}
    assert t.moved == ["old.key -> new.place"]


def test_value_that_changes_is_reported_with_both() -> None:
    t = translation({})
    t.put("new", 0.5, "old", was=2)
    assert t.moved == ["old 2 -> new 0.5"]


def test_value_that_is_there_stays_and_is_a_problem() -> None:
    t = translation({"old": 1, "new": 2})
    t.move("old", "new")
    assert t.data == {"new": 2}
    assert t.problems == ["old: is another form of 'new', which is given too"]


def test_paths_in_an_object_inside_begin_with_its_own() -> None:
    outer = translation({"robot": {"a": 1, "b": 2, "c": 3}})
    inner = outer.inside("robot", outer.get("robot"))
    inner.move("a", "x")
    inner.skip("b", "for looks")
    inner.require("c", (4,), "only 4 works")
    assert outer.data == {"robot": {"x": 1}}
    assert outer.moved == ["robot.a -> robot.x"]
    assert outer.unused == ["robot.b 2 (for looks)"]
    assert outer.problems == ["robot.c: must be 4, got 3: only 4 works"]


def test_block_that_is_no_object_is_a_problem() -> None:
    t = translation({"block": 3, "none": None})
    assert t.take_object("block").data == {}
    assert t.take_object("none").data == {}
    assert t.problems == ["block: must be an object, got 3"]


def test_values_below_what_is_no_object_are_not_there() -> None:
    t = translation({"a": 3})
    assert t.get("a.b") is None
    assert t.take("a.b.c") is None
    t.put("a.b", 1, "x")
    assert t.data == {"a": 3}


def test_long_value_is_shortened_in_a_message() -> None:
    t = translation({"a": "x" * 100})
    t.skip("a")
    assert t.unused == ["a '" + "x" * 56 + "..."]


def test_report_is_a_warning_for_each_kind_and_none_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    t = translation({"a": 1, "b": 2, "c": 3})
    t.report("config")
    assert capsys.readouterr().err == ""
    t.move("a", "x")
    t.skip("b")
    t.skip("c")
    t.report("config")
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] config in another layout (deprecated), read as: a -> x",
        "[WARNING] config: without counterpart, not used: b 2, c 3",
    ]
