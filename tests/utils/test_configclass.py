from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Self

import numpy as np
import pytest
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from embodichain.schema import field_docs
from embodichain.utils import MISSING, ConfigError, configclass, field, from_dict, parse
from embodichain.utils.configclass import is_required


@configclass
class Drive:
    stiffness: float
    damping: float = 1.0
    names: list[str] = []


@configclass
class Robot:
    uid: str
    drive: Drive = field(default_factory=lambda: Drive(stiffness=2.0))
    by_part: dict[str, Drive] = {}
    tools: list[Drive] = []
    offset: tuple[float, float] = (0.0, 0.0)


@configclass
class Arm(Robot):
    joints: int = 6
    uid: str = "arm"


@configclass(frozen=True)
class Fixed:
    value: int = 1


def test_mutable_defaults_are_not_shared() -> None:
    one, two = Drive(1.0), Drive(1.0)
    one.names.append("elbow")
    assert two.names == []
    assert Drive(1.0).names == []


def test_configs_and_arrays_as_defaults_are_copied() -> None:
    @configclass
    class Cell:
        drive: Drive = Drive(stiffness=7.0)
        array: np.ndarray = np.zeros(2)

    first = Cell()
    first.drive.stiffness, first.array[0] = 8.0, 1.0
    assert (Cell().drive.stiffness, Cell().array.tolist()) == (7.0, [0.0, 0.0])


@pytest.mark.parametrize("method", ["copy", "replace"])
def test_copy_changes_only_what_is_named_and_shares_nothing(method: str) -> None:
    robot = Robot(uid="a", tools=[Drive(1.0, names=["x"])])
    other = getattr(robot, method)(uid="b")
    assert (robot.uid, other.uid) == ("a", "b")
    other.tools[0].names.append("y")
    assert robot.tools[0].names == ["x"]


def test_changes_of_a_copy_are_checked() -> None:
    with pytest.raises(ValidationError, match="valid number"):
        Drive(1.0).replace(stiffness="x")  # type: ignore[attr-defined]
    with pytest.raises(ValidationError, match="colour"):
        Drive(1.0).replace(colour=1)  # type: ignore[attr-defined]


def test_copy_keeps_the_class_and_what_is_missing() -> None:
    copied = Arm().copy(joints=7)  # type: ignore[attr-defined]
    assert type(copied) is Arm
    assert copied.joints == 7
    assert Drive().copy(damping=2.0).stiffness is MISSING  # type: ignore[attr-defined,call-arg]


def test_to_dict_is_plain_nested_and_leaves_out_what_is_missing() -> None:
    robot = Robot(uid="a", by_part={"arm": Drive()}, offset=(1.0, 2.0))  # type: ignore[call-arg]
    assert robot.to_dict() == {  # type: ignore[attr-defined]
        "uid": "a",
        "drive": {"stiffness": 2.0, "damping": 1.0, "names": []},
        "by_part": {"arm": {"damping": 1.0, "names": []}},
        "tools": [],
        "offset": [1.0, 2.0],
    }


def test_to_dict_names_functions_and_classes() -> None:
    @configclass
    class Term:
        func: object = test_mutable_defaults_are_not_shared
        cls: type = dict

    assert Term().to_dict() == {  # type: ignore[attr-defined]
        "func": f"{__name__}.test_mutable_defaults_are_not_shared",
        "cls": "builtins.dict",
    }


def test_validate_lists_missing_fields_with_their_dotted_names() -> None:
    robot = Robot(by_part={"arm": Drive()}, tools=[Drive(1.0), Drive()])  # type: ignore[call-arg]
    assert robot.validate() == ["uid", "by_part.arm.stiffness", "tools[1].stiffness"]  # type: ignore[attr-defined]
    assert robot.validate("robot")[0] == "robot.uid"  # type: ignore[attr-defined]
    assert Robot(uid="a").validate() == []  # type: ignore[attr-defined]


def test_frozen_config_refuses_assignment_and_can_be_replaced() -> None:
    fixed = Fixed()
    with pytest.raises(dataclasses.FrozenInstanceError):
        fixed.value = 2  # type: ignore[misc]
    assert fixed.replace(value=2).value == 2  # type: ignore[attr-defined]
    assert fixed.value == 1


def test_subclass_may_give_defaults_to_its_bases_fields() -> None:
    arm = Arm()
    assert arm.uid == "arm"
    assert arm.drive.stiffness == 2.0
    assert Arm(uid="b", joints=7).to_dict()["uid"] == "b"  # type: ignore[attr-defined]
    assert arm.validate() == []  # type: ignore[attr-defined]


def test_own_method_of_a_reserved_name_is_kept() -> None:
    @configclass
    class Own:
        value: int = 1

        def to_dict(self) -> dict[str, int]:
            return {"own": self.value}

    assert Own().to_dict() == {"own": 1}


def test_field_that_must_be_given_by_keyword_is_required_too() -> None:
    @configclass
    class Body:
        uid: str = ""
        shape: str = field(kw_only=True)

    uid, shape = dataclasses.fields(Body)
    assert (is_required(uid), is_required(shape)) == (False, True)


@configclass
class Base:
    """A base."""

    mass: float = 1.0
    """In ``kg``,
    at rest."""
    size: float = 1.0


@configclass
class Child(Base):
    """A child."""

    size: float = 2.0
    """m."""


def test_field_docs_include_inherited_ones() -> None:
    assert field_docs(Base) == {"mass": "In `kg`, at rest."}
    assert field_docs(Child) == {"mass": "In `kg`, at rest.", "size": "m."}


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


UNKNOWN_GAIN = "gian: unknown key. Did you mean 'gain'? Known: name, gain"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (
            {"uid": "a", "cuont": 2},
            ["cuont: unknown key. Did you mean 'count'? Known: uid, parts, by_name, shape, spare, count"],
        ),
        ({"uid": "a", "parts": [{"name": "p"}, {"name": "q", "gian": 1}]}, [f"parts[1].{UNKNOWN_GAIN}"]),
        ({"uid": "a", "by_name": {"x": {"name": "p", "gian": 1}}}, [f"by_name.x.{UNKNOWN_GAIN}"]),
        ({"uid": "a", "spare": {"name": "p", "gian": 1}}, [f"spare.{UNKNOWN_GAIN}"]),
        # Pydantic's own location is shape.ball.raduis: the tag is no key.
        (
            {"uid": "a", "shape": {"kind": "ball", "raduis": 1}},
            ["shape.raduis: unknown key. Did you mean 'radius'? Known: kind, radius"],
        ),
        ({"parts": [{"gain": 1.0}]}, ["uid: required, but missing", "parts[0].name: required, but missing"]),
        ({"uid": "a", "shape": {"kind": "mesh"}}, ["shape.path: required, but missing"]),
        ({"uid": "a", "spare": {}}, ["spare.name: required, but missing"]),
        (
            {"uid": "a", "shape": {"kind": "bal"}},
            ["shape.kind: unknown kind 'bal'. Did you mean 'ball'? Known: ball, mesh"],
        ),
        ({"uid": "a", "shape": {"radius": 2}}, ["shape: must be an object with 'kind', got {'radius': 2}"]),
        # Inside one of several types; an object where none may be.
        (
            {"uid": "a", "parts": [{"name": "p", "gain": {"x": None}}]},
            ["parts[0].gain.x: Input should be a valid number, got None"],
        ),
        ({"uid": "a", "count": {"b": 1}}, ["count: Input should be a valid integer, got {'b': 1}"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_errors_have_the_places_in_the_file(data: dict[str, Any], lines: list[str]) -> None:
    assert errors(data) == [f"thing.{line}" for line in lines]


def test_value_that_fits_none_of_several_types_is_one_error() -> None:
    (line,) = errors({"uid": "a", "parts": [{"name": "p", "gain": "much"}]})
    assert line.startswith("thing.parts[0].gain: ")
    assert "valid number" in line
    assert "should be an object" in line
    assert line.endswith("got 'much'")


def test_all_errors_are_reported_with_missing_fields() -> None:
    lines = errors({"count": "x", "colour": 1, "by_name": {"b": {"gain": []}}}, place="")
    assert {line.split(":")[0] for line in lines} == {"count", "by_name.b.gain", "colour", "uid", "by_name.b.name"}
    assert len(lines) == 5


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
    with pytest.raises(ConfigError, match=r"^number: Input should be a valid number, got '2'"):
        from_dict(Strict, {"call": len, "number": "2"}, "")


def test_too_few_and_too_many_values_are_counted() -> None:
    for pair, problem in (([1], "too few values, got [1]"), ([1, 2, 3], "Tuple should have at most 2 items")):
        with pytest.raises(ConfigError) as caught:
            from_dict(Strict, {"pair": pair}, "")
        assert str(caught.value).startswith(f"pair: {problem}")


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
