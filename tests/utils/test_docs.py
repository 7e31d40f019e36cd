from __future__ import annotations

from embodichain.utils import configclass
from embodichain.utils.docs import argument_docs, field_docs, first_line


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


def test_docstrings_of_fields_are_those_below_them_inherited_ones_included() -> None:
    assert field_docs(Base) == {"mass": "In `kg`, at rest."}
    assert field_docs(Child) == {"mass": "In `kg`, at rest.", "size": "m."}


def test_arguments_are_those_of_the_section() -> None:
    assert argument_docs(act) == {"thing": "what it is.", "factor": "by how much."}
    assert argument_docs(test_arguments_are_those_of_the_section) == {}
    assert first_line(act) == "Do something."
