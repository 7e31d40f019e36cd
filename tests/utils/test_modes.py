from __future__ import annotations

import pytest
from torch import nn

from embodichain.utils.modes import keeping_modes


def test_each_module_gets_its_own_mode_back_also_after_an_error() -> None:
    frozen = nn.Sequential(nn.Dropout(), nn.Dropout()).eval()
    frozen[1].train()
    network = nn.Sequential(nn.Dropout(), frozen)
    before = [module.training for module in network.modules()]
    assert before == [True, True, False, False, True]

    def fail() -> None:
        with keeping_modes(network):
            network.eval()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [module.training for module in network.modules()] == before
