from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.utils.signatures import takes


class Methods:
    def one(self, x: Any) -> None: ...

    def two(self, x: Any, y: Any = None) -> None: ...

    def any(self, *args: Any) -> None: ...

    def named(self, x: Any, *, y: Any) -> None: ...

    @torch.no_grad()
    def wrapped(self, x: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "counts"), [("one", [2]), ("two", [2, 3]), ("any", [1, 2, 3, 4]), ("named", []), ("wrapped", [2])]
)
def test_number_of_positional_arguments_that_a_method_can_be_called_with(name: str, counts: list[int]) -> None:
    assert [count for count in range(1, 5) if takes(getattr(Methods, name), count)] == counts
