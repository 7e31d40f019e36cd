from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pydantic import ValidationError

from embodichain.schema import field_docs
from embodichain.utils import MISSING, configclass, field
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


def test_unknown_field_is_refused_at_any_depth() -> None:
    with pytest.raises(ValidationError, match="stifness"):
        Drive(stifness=1.0)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="stifness"):
        Robot(uid="a", drive={"stifness": 1.0})  # type: ignore[arg-type]


def test_mutable_defaults_are_not_shared() -> None:
    one, two = Drive(1.0), Drive(1.0)
    one.names.append("elbow")
    assert two.names == []
    assert Drive(1.0).names == []


def test_config_as_a_default_is_copied_for_every_instance() -> None:
    @configclass
    class Cell:
        drive: Drive = Drive(stiffness=7.0)

    first = Cell()
    first.drive.stiffness = 8.0
    assert Cell().drive.stiffness == 7.0


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


def test_arrays_are_copied_as_defaults() -> None:
    @configclass
    class Cell:
        array: np.ndarray = np.zeros(2)

    first = Cell()
    first.array[0] = 1.0
    assert Cell().array.tolist() == [0.0, 0.0]


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


def act(thing: str, factor: float) -> None:
    """Do something.

    Args:
        thing: what
            it is.
        factor: by how much.

    Raises:
        ValueError: never.
    """


def test_field_docs_include_inherited_ones() -> None:
    assert field_docs(Base) == {"mass": "In `kg`, at rest."}
    assert field_docs(Child) == {"mass": "In `kg`, at rest.", "size": "m."}
