from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from embodichain.agents.rl.models import MLP, MLPCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.mlp import _ACTIVATIONS, Activation
from embodichain.utils import ConfigError, device


def kinds(mlp: MLP) -> list[str]:
    return [type(layer).__name__ for layer in mlp]


def test_layers_stand_in_the_documented_order() -> None:
    mlp = MLP(3, 2, [8, 4], activation="tanh", layer_norm=True, dropout=0.1, last_activation="sigmoid")
    hidden = ["Linear", "LayerNorm", "Tanh", "Dropout"]
    assert kinds(mlp) == [*hidden, *hidden, "Linear", "Sigmoid"]
    assert mlp(torch.zeros(5, 7, 3)).shape == (5, 7, 2)


def test_no_hidden_layer_makes_a_linear_map() -> None:
    assert kinds(MLP(3, 2, [])) == ["Linear"]


def test_config_block_is_built_as_written() -> None:
    cfg = {"type": "mlp", "network_cfg": {"hidden_sizes": [6], "activation": "elu", "layer_norm": True}}
    mlp = build_mlp_from_cfg(cfg, 3, 2)
    assert kinds(mlp) == ["Linear", "LayerNorm", "ELU", "Linear"]
    assert [layer.weight.shape for layer in mlp if isinstance(layer, nn.Linear)] == [(6, 3), (2, 6)]
    assert kinds(build_mlp_from_cfg(MLPCfg(), 3, 2)) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_unknown_activation_is_an_error_that_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown activation 'rellu'.*Did you mean 'relu'.*tanh"):
        MLP(3, 2, [4], activation="rellu")
    with pytest.raises(ValueError, match=r"network_cfg.activation\n.*'relu'.*'tanh'"):
        build_mlp_from_cfg({"network_cfg": {"activation": "rellu"}}, 3, 2)


def test_every_activation_that_a_config_may_name_exists() -> None:
    assert set(get_args(Activation)) == set(_ACTIVATIONS)


@pytest.mark.parametrize("bad", [{"hidden_sizes": [0]}, {"dropout": 1.0}, {"layernorm": True}])
def test_impossible_network_settings_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        build_mlp_from_cfg({"network_cfg": bad}, 3, 2)


def test_network_that_does_not_fit_the_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 4 * 26)
    MLP(3, 2, [4])  # (3 + 1) 4 + (4 + 1) 2 = 26
    with pytest.raises(ConfigError, match=r"^network_cfg\.hidden_sizes: the 32 parameters of a network take 0\.0 MB"):
        MLP(3, 2, [5])


def test_orthogonal_weights_have_the_documented_gains_and_zero_biases() -> None:
    cfg = {"network_cfg": {"hidden_sizes": [4], "orthogonal_init": True}}
    hidden, _, output = build_mlp_from_cfg(cfg, 4, 2, output_gain=0.01)
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    # W W^T = gain^2 I: 2 for the hidden layer's sqrt(2), 1e-4 for the last one's 0.01
    torch.testing.assert_close(hidden.weight @ hidden.weight.T, 2 * torch.eye(4))
    torch.testing.assert_close(output.weight @ output.weight.T, 1e-4 * torch.eye(2))
    assert not hidden.bias.any()
    assert not output.bias.any()
