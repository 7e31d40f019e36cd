"""A term's parameters, read from the signature of its function and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

from embodichain.lab.gym.envs.managers import ActionTerm, Functor, types
from embodichain.lab.gym.envs.managers.checks import parse_params
from embodichain.lab.gym.envs.managers.randomization import randomize_light
from embodichain.utils import ConfigError

if TYPE_CHECKING:
    from somewhere import Thing  # type: ignore[import-not-found]


def typed(
    env: Thing,
    number: float,
    whole: int = 1,
    flag: bool = False,
    text: str = "a",
    pair: tuple[float, float] = (0.0, 1.0),
    ids: Sequence[int] | None = None,
    kind: Literal["near", "far"] = "near",
    thing: types.SceneEntityCfg | None = None,
    things: list[types.SceneEntityCfg] = [],  # noqa: B006
    careless: float = None,  # type: ignore[assignment]  # noqa: RUF013
    *,
    last: str = "z",
) -> None: ...


def untyped(env, anything, thing: Thing = None, call: callable = len) -> None: ...  # type: ignore[valid-type]


def half_known(env: Thing, things: Any = None) -> None: ...


def open_ended(env: Thing, scale: float = 1.0, **more: Any) -> None: ...


def errors(func: Callable[..., Any], params: dict[str, Any], skip: int = 1) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_params(func, skip, params, "params")
    return str(caught.value).splitlines()


def test_range_of_looks_with_its_ends_exchanged_is_refused() -> None:
    found = errors(randomize_light, {"entity_cfg": {"uid": "sun"}, "intensity_range": [90, 10]}, skip=2)
    assert [line.partition(":")[0] for line in found] == ["params.intensity_range"]


def test_values_become_what_the_annotations_say_and_defaults_are_filled_in() -> None:
    parsed = parse_params(typed, 1, {"number": 2, "pair": [1, 2], "ids": [0, 3], "thing": {"uid": "cube"}}, "")
    assert isinstance(parsed["number"], float)
    assert (parsed["number"], parsed["pair"], parsed["ids"]) == (2.0, (1.0, 2.0), [0, 3])
    assert parsed["thing"] == types.SceneEntityCfg("cube")
    assert (parsed["whole"], parsed["last"], parsed["things"]) == (1, "z", [])
    assert parse_params(typed, 1, {"number": 1, "things": [{"uid": "a"}]}, "")["things"] == [types.SceneEntityCfg("a")]
    assert parse_params(typed, 1, {"number": 1, "careless": None}, "")["careless"] is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("number", "2", "Input should be a valid number, got '2'"),
        ("number", float("nan"), "Input should be a finite number, got nan"),
        ("thing", {"uid": "a", "colour": 1}, "colour: unknown parameter. Known: uid"),
        ("nubmer", 3, "unknown parameter. Did you mean 'number'?"),
        ("env", 3, "unknown parameter."),  # the manager gives it
    ],
)
def test_wrong_parameter_says_what_would_be_right(name: str, value: Any, problem: str) -> None:
    (line,) = errors(typed, {"number": 1.0} | {name: value})
    assert line.startswith(f"params.{name}")
    assert problem in line


def test_all_errors_come_together() -> None:
    assert len(errors(typed, {"whole": "x", "lsat": 1, "ids": ["a"]})) == 4  # and `number` is missing


def test_what_only_a_type_checker_knows_is_not_checked() -> None:
    parsed = parse_params(untyped, 1, {"anything": [1], "thing": {"uid": "a"}, "call": "x"}, "")
    assert (parsed["anything"], parsed["thing"], parsed["call"]) == ([1], types.SceneEntityCfg("a"), "x")
    assert errors(untyped, {}) == ["params.anything: required, but missing"]
    half_known.__annotations__["things"] = list["Thing"]  # as in a module without `from __future__ import annotations`
    assert parse_params(half_known, 1, {"things": 3}, "") == {"things": 3}


def test_open_signature_takes_more_but_checks_what_it_names() -> None:
    assert parse_params(open_ended, 1, {"scale": 2, "other": {"uid": "a"}}, "") == {
        "scale": 2.0,
        "other": types.SceneEntityCfg("a"),
    }
    assert errors(open_ended, {"scale": "x", "other": 1}) == ["params.scale: Input should be a valid number, got 'x'"]


def test_range_has_two_lists_of_equal_length_in_order() -> None:
    def draw(env: Thing, bounds: types.Range) -> None: ...

    assert parse_params(draw, 1, {"bounds": [[0, -1], [0, 1]]}, "")["bounds"] == ((0.0, -1.0), (0.0, 1.0))
    for bounds in ([[0, 1], [1]], [[1], [0]]):
        (line,) = errors(draw, {"bounds": bounds})
        assert "must be [lowest, highest] of equal length" in line


def test_class_that_reads_its_config_itself_takes_anything() -> None:
    assert parse_params(ActionTerm.configure, 1, {"gain": 2.0}, "") == {"gain": 2.0}
    assert parse_params(Functor.__call__, 2, {"gain": 2.0}, "") == {"gain": 2.0}
