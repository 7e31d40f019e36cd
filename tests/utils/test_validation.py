from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import Discriminator, Field, Tag, model_validator

from embodichain.utils import MISSING, ConfigError, configclass, field
from embodichain.utils.validation import from_dict, parse


@configclass
class Ball:
    kind: Literal["ball"] = "ball"
    radius: Annotated[float, Field(gt=0)] = 1.0


@configclass
class Mesh:
    path: str
    kind: Literal["mesh"] = "mesh"


@configclass
class Part:
    name: str
    gain: float | dict[str, float] = 1.0


@configclass
class Thing:
    uid: str
    parts: list[Part] = []
    by_name: dict[str, Part] = field(default_factory=dict)
    shape: Annotated[Ball | Mesh, Field(discriminator="kind")] = field(default_factory=Ball)
    spare: Part | None = None
    count: Annotated[int, Field(ge=1)] = 1


def errors(data: dict[str, Any], place: str = "thing") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_dict(Thing, data, place)
    return str(caught.value).splitlines()


def test_nested_plain_data_become_config_classes() -> None:
    thing = from_dict(
        Thing, {"uid": "a", "parts": [{"name": "p", "gain": 2}], "shape": {"kind": "mesh", "path": "x"}}, ""
    )
    assert isinstance(thing.parts[0], Part)
    assert thing.parts[0].gain == 2.0
    assert isinstance(thing.shape, Mesh)


def test_unknown_key_has_its_path_and_the_nearest_field() -> None:
    assert errors({"uid": "a", "cuont": 2}) == [
        "thing.cuont: unknown key. Did you mean 'count'? Known: uid, parts, by_name, shape, spare, count"
    ]


def test_unknown_key_has_its_nearest_field_at_any_depth() -> None:
    assert errors({"uid": "a", "parts": [{"name": "p"}, {"name": "q", "gian": 1}]}) == [
        "thing.parts[1].gian: unknown key. Did you mean 'gain'? Known: name, gain"
    ]
    assert errors({"uid": "a", "by_name": {"x": {"name": "p", "gian": 1}}}) == [
        "thing.by_name.x.gian: unknown key. Did you mean 'gain'? Known: name, gain"
    ]
    assert errors({"uid": "a", "spare": {"name": "p", "gian": 1}}) == [
        "thing.spare.gian: unknown key. Did you mean 'gain'? Known: name, gain"
    ]


def test_path_of_an_error_has_only_what_stands_in_the_file() -> None:
    # Pydantic's own location is shape.ball.raduis: the tag is no key.
    assert errors({"uid": "a", "shape": {"kind": "ball", "raduis": 1}}) == [
        "thing.shape.raduis: unknown key. Did you mean 'radius'? Known: kind, radius"
    ]


def test_value_that_fits_none_of_several_types_is_one_error() -> None:
    (line,) = errors({"uid": "a", "parts": [{"name": "p", "gain": "much"}]})
    assert line.startswith("thing.parts[0].gain: ")
    assert "valid number" in line
    assert "should be an object" in line
    assert line.endswith("got 'much'")


def test_wrong_value_is_named_with_what_was_got() -> None:
    (line,) = errors({"uid": "a", "count": 0})
    assert line == "thing.count: Input should be greater than or equal to 1, got 0"


def test_missing_fields_are_named_at_any_depth() -> None:
    assert errors({"parts": [{"gain": 1.0}]}) == [
        "thing.uid: required, but missing",
        "thing.parts[0].name: required, but missing",
    ]
    assert errors({"uid": "a", "shape": {"kind": "mesh"}}) == ["thing.shape.path: required, but missing"]
    assert errors({"uid": "a", "spare": {}}) == ["thing.spare.name: required, but missing"]


def test_all_errors_are_reported_with_missing_fields() -> None:
    lines = errors({"count": "x", "colour": 1, "by_name": {"b": {"gain": []}}}, place="")
    assert {line.split(":")[0] for line in lines} == {"count", "by_name.b.gain", "colour", "uid", "by_name.b.name"}
    assert len(lines) == 5


def test_unknown_tag_lists_the_known_ones() -> None:
    (line,) = errors({"uid": "a", "shape": {"kind": "bal"}})
    assert line == "thing.shape.kind: unknown kind 'bal'. Did you mean 'ball'? Known: ball, mesh"


def test_absent_tag_is_named() -> None:
    assert errors({"uid": "a", "shape": {"radius": 2}}) == [
        "thing.shape: must be an object with 'kind', got {'radius': 2}"
    ]


@configclass
class Strict:
    whole: int = 1
    number: float = 1.0
    flag: bool = False
    text: str = ""
    pair: tuple[float, float] = (0.0, 0.0)
    call: Any = None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("whole", "4"),
        ("whole", True),
        ("whole", 1.5),
        ("number", "0.1"),
        ("number", True),
        ("number", float("inf")),
        ("flag", 1),
        ("flag", "true"),
        ("text", 3),
        ("pair", "12"),
        ("pair", {"0": 1, "1": 2}),
        ("whole", None),
    ],
)
def test_types_are_strict_where_json_has_the_type(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Strict, {key: value}, "")
    assert str(caught.value).startswith(f"{key}: Input should be a ")
    assert str(caught.value).endswith(f"got {value!r}")


def test_data_with_python_objects_are_converted() -> None:
    strict = from_dict(Strict, {"call": len, "pair": (1, 2)}, "")
    assert (strict.call, strict.pair) == (len, (1.0, 2.0))


def test_too_few_and_too_many_values_are_counted() -> None:
    for pair, problem in (([1], "too few values, got [1]"), ([1, 2, 3], "Tuple should have at most 2 items")):
        with pytest.raises(ConfigError) as caught:
            from_dict(Strict, {"pair": pair}, "")
        assert str(caught.value).startswith(f"pair: {problem}")


def test_error_inside_one_of_several_types_is_the_only_line() -> None:
    (line,) = errors({"uid": "a", "parts": [{"name": "p", "gain": {"x": None}}]})
    assert line == "thing.parts[0].gain.x: Input should be a valid number, got None"
    (line,) = errors({"uid": "a", "count": {"b": 1}})  # an object where none may be
    assert line == "thing.count: Input should be a valid integer, got {'b': 1}"


def test_errors_without_end_are_cut_off() -> None:
    lines = errors({"uid": "a", "parts": [{"name": "p", "gain": "x" * 10_000}] * 3000})
    assert len(lines) == 101  # of the first 200 errors, two make a line: an entry fits neither of two types
    assert lines[-1] == "thing: and more"
    assert all(len(line) < 1000 for line in lines)


def test_wrong_values_are_left_out_of_parsed_configs() -> None:
    data = {
        "uid": "a",
        "parts": [3, {"name": "p", "gain": "x", "nmae": 1}],
        "by_name": {"one": {"gain": 2.0}, "two": []},
        "shape": {"kind": "ball", "radius": -1},
        "count": 0,
    }
    thing, problems = parse(Thing, data, "thing")
    assert thing is not None
    assert list(problems) == [
        *("thing.parts[0]", "thing.parts[1].gain", "thing.parts[1].nmae", "thing.by_name.two"),
        *("thing.shape.radius", "thing.count", "thing.by_name.one.name"),
    ]
    assert [part.name for part in thing.parts] == [MISSING, "p"]
    assert thing.by_name["one"].gain == 2.0
    assert (thing.shape, thing.count, list(thing.by_name)) == (Ball(), 1, ["one", "two"])
    assert parse(Thing, {"uid": "a"}, "") == (Thing(uid="a"), {})


def test_functions_stand_for_their_names() -> None:
    assert from_dict(Strict, {"call": len, "number": 2}, "").call is len
    with pytest.raises(ConfigError, match=r"^number: Input should be a valid number, got '2'"):
        from_dict(Strict, {"call": len, "number": "2"}, "")


@configclass
class RangeCfg:
    low: float
    high: float = 1.0

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self


def test_validator_does_not_run_with_missing_fields() -> None:
    with pytest.raises(ConfigError, match=r"^r\.low: required, but missing$"):
        from_dict(RangeCfg, {"high": 2.0}, "r")
    with pytest.raises(ConfigError, match=r"low 3.0 is above high 2.0"):
        from_dict(RangeCfg, {"low": 3.0, "high": 2.0}, "r")


@configclass
class Named:
    """Of a union whose objects need not say their type."""

    uid: str
    kind: Literal["named"] = "named"


@configclass
class Choice:
    parts: list[
        Annotated[
            Annotated[Named, Tag("named")] | Annotated[Mesh, Tag("mesh")],
            Discriminator(lambda value: value.get("kind", "named") if isinstance(value, dict) else value.kind),
        ]
    ] = []


def test_missing_field_is_found_in_an_untagged_object() -> None:
    value, problems = parse(Choice, {"parts": [{}, {"kind": "mesh"}, {"uid": "a"}]}, "")
    assert problems == {"parts[0].uid": "required, but missing", "parts[1].path": "required, but missing"}
    assert value is not None
    assert value.parts[2] == Named("a")
