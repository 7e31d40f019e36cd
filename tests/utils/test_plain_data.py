from __future__ import annotations

from typing import Any

import pytest

from embodichain.utils import ConfigError
from embodichain.utils.plain_data import check_plain, leaves_by_path


def test_what_configs_hold_is_accepted() -> None:
    check_plain({"a": [1, 2.5, True, None, {"b": "tëxt"}], "$schema": "", "c": {"d": [[]]}, "e": 2**63 - 1})
    check_plain({"a": [-1e308, 1e-300]})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"a": [0, float("nan")]}, r"a\[1\]: must be a finite number, got nan"),
        ({"a": {"b": -float("inf")}}, r"a\.b: must be a finite number, got -inf"),
        ({"a": 2**63}, "a: must be a number of at most 64 bits"),
        ({"a": "x\0"}, "a: must be text without zero bytes"),
        ({"a": {"\ud800": 1}}, r"a: must be text without zero bytes and half characters, got '\\ud800'"),
        ({"a": {"x" * 201: 1}}, "a: a key has at most 200 characters"),
        ({"a": [0] * 500_001}, "too much: a config has at most 500,000 values"),
    ],
)
def test_what_no_config_holds_is_refused_by_its_place(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_plain(data)


def test_value_alone_has_no_place() -> None:
    with pytest.raises(ConfigError) as caught:
        check_plain(float("inf"))
    assert str(caught.value) == "must be a finite number, got inf"


def test_depth_has_a_limit_and_what_is_inside_itself_too() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    check_plain(deep)
    endless: dict[str, Any] = {}
    endless["a"] = endless
    for data in ([deep], endless):
        with pytest.raises(ConfigError, match="nested too deeply: at most 40 levels"):
            check_plain(data)


def test_values_in_several_places_count_in_each() -> None:
    data: Any = ["x"]
    for _ in range(30):  # 2**30 texts of one list
        data = [data, data]
    with pytest.raises(ConfigError, match="too much"):
        check_plain(data)


def test_leaves_have_the_paths_that_lead_to_them() -> None:
    assert leaves_by_path({"a": 1, "b": {"c": [2], "d": {"e": 3, "f": {}}}}) == {"a": 1, "b.c": [2], "b.d.e": 3}
