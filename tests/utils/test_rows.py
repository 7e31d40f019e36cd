"""Changes in the rows of a mask. Shapes: N environments."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from embodichain.utils.rows import by_mask, changing_rows, is_by_mask

MASK = torch.tensor([True, False, True])


def owner() -> SimpleNamespace:
    return SimpleNamespace(a=torch.zeros(3), b=torch.zeros(3, 2), one=torch.zeros(1, 2), number=1.0, name="x")


def test_rows_outside_the_mask_stay_however_they_are_changed() -> None:
    thing = owner()
    kept = thing.a
    with changing_rows([thing], MASK):
        thing.a += 1.0
        thing.b = thing.b + 2.0
        thing.number = 2.0
    assert thing.a is kept
    assert thing.a.tolist() == [1.0, 0.0, 1.0]
    assert thing.b.tolist() == [[2.0, 2.0], [0.0, 0.0], [2.0, 2.0]]
    assert thing.number == 2.0


def test_what_numpy_writes_counts_too() -> None:
    thing = owner()
    with changing_rows([thing], MASK):
        thing.a.numpy()[:] = 5.0
    assert thing.a.tolist() == [5.0, 0.0, 5.0]


def test_row_for_all_becomes_one_for_each() -> None:
    thing = owner()
    with changing_rows([thing], MASK):
        thing.one = thing.one.expand(3, 2) + 1.0
    assert thing.one.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_one_tensor_under_two_names_stays_one() -> None:
    thing = owner()
    thing.same = thing.a
    with changing_rows([thing], MASK):
        thing.a = thing.same = thing.a + 1.0
    assert thing.same is thing.a
    assert thing.a.tolist() == [1.0, 0.0, 1.0]


def test_tensor_of_another_size_is_left_as_it_is() -> None:
    thing = SimpleNamespace(table=torch.zeros(4))
    with changing_rows([thing], MASK):
        thing.table += 1.0
    assert thing.table.tolist() == [1.0] * 4


@by_mask
def declared() -> None:
    """Says so."""


class Declared:
    """Says so, for its own methods alone."""


by_mask(Declared)


class Derived(Declared):
    """Does not say so, and may do anything."""


def test_declaration_is_of_a_function_or_of_a_class_itself() -> None:
    assert is_by_mask(declared)
    assert is_by_mask(Declared())
    assert not is_by_mask(Derived())
    assert not is_by_mask(len)
