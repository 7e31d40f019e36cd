"""What a task's ``compute_task_state`` may return."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.hooks import checked_task_state
from embodichain.utils import ConfigError

YES = torch.ones(2, dtype=torch.bool)


class Lifting:
    """A task's name."""


def test_what_a_task_returns_is_passed_on() -> None:
    state = (YES, ~YES, {"height": torch.zeros(2)})
    assert checked_task_state(state, 2, Lifting) == state


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (None, "NoneType"),
        ((YES, YES), "a tuple of 2"),
        ((YES.float(), YES, {}), "a tensor [2] of torch.float32 as success"),
        ((YES, YES[:1], {}), "a tensor [1] of torch.bool as fail"),
        ((YES, False, {}), "bool as fail"),
        ((YES, YES, None), "NoneType as metrics"),
    ],
)
def test_anything_else_is_named(value: Any, got: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_task_state(value, 2, Lifting)
    assert str(caught.value) == (
        "Lifting.compute_task_state must return (success, fail, metrics): two bool tensors [N] = [2] and a dict of "
        f"tensors [N]. Got {got}"
    )
