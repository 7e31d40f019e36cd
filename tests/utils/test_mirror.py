from __future__ import annotations

import pytest
import torch

from embodichain.utils import ConfigError
from embodichain.utils.mirror import Mirror

SWAP = Mirror.of([1, 0, 2], [-1, -1, 1], "here")


def test_mirror_image_takes_each_component_from_its_partner_with_its_sign() -> None:
    assert SWAP(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [[-2.0, -1.0, 3.0]]


def test_mirror_image_of_a_mirror_image_is_the_vector_itself() -> None:
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(SWAP(SWAP(x)), x)


def test_joined_mirrors_leave_each_part_in_its_place() -> None:
    joined = Mirror.joined([SWAP, Mirror.of([0], [-1], "here")])
    assert joined(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [-2.0, -1.0, 3.0, -4.0]


@pytest.mark.parametrize(
    ("permutation", "signs", "message"),
    [
        ([0, 1], [1], r"^here: the permutation has 2 components and signs has 1$"),
        ([0, 2], [1, 1], r"^here: the permutation must have each index from 0 to 1 once, got \[0, 2\]$"),
        ([0, 0], [1, 1], r"^here: the permutation must have each index from 0 to 1 once, got \[0, 0\]$"),
        ([0], [2], r"^here: signs must be 1 or -1, got 2$"),
        ([1, 2, 0], [1, 1, 1], r"^here: mirrored twice, .* component 0 becomes component 2$"),
        ([1, 0], [1, -1], r"^here: mirrored twice, .* component 0 becomes -component 0$"),
    ],
)
def test_what_is_no_mirror_is_refused_in_one_line(permutation: list[int], signs: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Mirror.of(permutation, signs, "here")
