"""Constants on a device."""

import torch

from embodichain.utils.constants import constant

CPU = torch.device("cpu")


def test_constant_is_made_once_for_each_type() -> None:
    assert constant((1, 0), CPU) is constant((1, 0), CPU)
    assert constant((1, 0), CPU).tolist() == [1, 0]
    assert constant((True, False), CPU, torch.bool).tolist() == [True, False]
    assert constant((1.0, 0.0), CPU, torch.float32).dtype == torch.float32
    assert constant((), CPU).dtype == torch.int64
