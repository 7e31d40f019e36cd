"""Users' networks for ``actor.type``."""

import copy
import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

import embodichain as ec
from embodichain.agents.rl.models import MLP, SoftActorCritic, build_mlp_from_cfg, build_policy, networks
from embodichain.agents.rl.models.networks import (
    CNN,
    CNNCfg,
    CNNNetworkCfg,
    ConvolutionsCfg,
    ImageEncoder,
    ImageEncoderCfg,
    MLPCfg,
    SimBa,
)
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.utils import ConfigError, device


@pytest.fixture(autouse=True)
def residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_NETWORKS", {})

    @ec.register_network("residual")
    class Residual(nn.Module):
        def __init__(self, in_dim: int, out_dim: int, width: int = 8, blocks: int = 1) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(in_dim, width), nn.Linear(width, out_dim)
            self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = x + torch.relu(block(x))
            out: Tensor = self.last(x)
            return out


def block(**network_cfg: Any) -> dict[str, Any]:
    network = {"type": "residual", "network_cfg": network_cfg}
    return {"name": "actor_critic", "actor": network, "critic": network}


def test_registered_network_is_built_with_its_arguments() -> None:
    policy = build_policy(block(width=5, blocks=3), 4, 2, "cpu")
    assert policy.actor.first.weight.shape == (5, 4)  # type: ignore[union-attr]
    assert len(policy.actor.blocks) == 3  # type: ignore[union-attr,arg-type]
    assert policy.block is not None
    assert policy.block["actor"] == {"type": "residual", "network_cfg": {"width": 5, "blocks": 3}}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"widht": 5}, "got an unexpected keyword argument 'widht'"),
        ({"width": "5"}, "width must be of type int, not '5'"),
    ],
)
def test_wrong_argument_of_a_network_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy_block(block(**given))
    assert str(caught.value).splitlines()[0] == f"policy.actor.network_cfg: {problem}, got {given}"


def kinds(mlp: MLP) -> list[str]:
    return [type(layer).__name__ for layer in mlp]


def test_layers_stand_in_the_documented_order() -> None:
    mlp = MLP(3, 2, [8, 4], activation="tanh", layer_norm=True, dropout=0.1, last_activation="sigmoid")
    hidden = ["Linear", "LayerNorm", "Tanh", "Dropout"]
    assert kinds(mlp) == [*hidden, *hidden, "Linear", "Sigmoid"]
    assert mlp(torch.zeros(5, 7, 3)).shape == (5, 7, 2)


def test_large_batch_in_pieces_gives_the_same_outputs_and_gradients() -> None:
    mlp = MLP(3, 2, [8], activation="elu")
    plain = nn.Sequential(*copy.deepcopy(list(mlp)))
    x = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
    for network in (mlp, plain):
        network(x).square().mean().backward()
    torch.testing.assert_close(mlp(x), plain(x))
    for ours, expected in zip(mlp.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad)


def test_config_block_is_built_as_written() -> None:
    cfg = {"type": "mlp", "network_cfg": {"hidden_sizes": [6], "activation": "elu", "layer_norm": True}}
    mlp = build_mlp_from_cfg(cfg, 3, 2)
    assert kinds(mlp) == ["Linear", "LayerNorm", "ELU", "Linear"]
    assert [layer.weight.shape for layer in mlp if isinstance(layer, nn.Linear)] == [(6, 3), (2, 6)]
    assert kinds(build_mlp_from_cfg(MLPCfg(), 3, 2)) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_network_that_does_not_fit_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 4 * 26)
    MLP(3, 2, [4])  # (3 + 1) 4 + (4 + 1) 2 = 26
    with pytest.raises(ConfigError, match=r"^network_cfg\.hidden_sizes: the 32 parameters of a network take 0\.0 MB"):
        MLP(3, 2, [5])


def test_orthogonal_weights_have_the_documented_gains() -> None:
    cfg = {"network_cfg": {"hidden_sizes": [4], "orthogonal_init": True}}
    hidden, _, output = build_mlp_from_cfg(cfg, 4, 2, output_gain=0.01)
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    # W W^T = gain^2 I: 2 for the hidden layer's sqrt(2), 1e-4 for the last one's 0.01
    torch.testing.assert_close(hidden.weight @ hidden.weight.T, 2 * torch.eye(4))
    torch.testing.assert_close(output.weight @ output.weight.T, 1e-4 * torch.eye(2))
    assert not hidden.bias.any()
    assert not output.bias.any()


def test_simba_output_equals_the_papers_layers() -> None:
    torch.manual_seed(0)
    simba = SimBa(3, 2, width=4, num_blocks=2)
    params = dict(simba.named_parameters())
    for name, value in params.items():
        if name.endswith("bias"):
            nn.init.normal_(value)
    x = torch.randn(5, 3)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * params[f"{name}.weight"] + params[f"{name}.bias"]

    h = linear(x, "0")
    for block in ("1", "2"):
        h = h + linear(linear(norm(h, f"{block}.0"), f"{block}.1").clamp(min=0), f"{block}.3")
    torch.testing.assert_close(simba(x), linear(norm(h, "3"), "4"))
    assert params["1.1.weight"].shape == (16, 4)
    # 16 + 2 (8 + 80 + 68) + 8 + 10
    assert sum(p.numel() for p in params.values()) == 346


def test_simba_starts_with_the_papers_weights() -> None:
    torch.manual_seed(0)
    params = dict(SimBa(64, 4, width=64, num_blocks=1, output_gain=0.5).named_parameters())
    first, last = params["0.weight"], params["3.weight"]
    torch.testing.assert_close(first @ first.T, torch.eye(64), atol=1e-5, rtol=0)
    torch.testing.assert_close(last @ last.T, 0.25 * torch.eye(4), atol=1e-5, rtol=0)
    for name, inputs in (("1.1", 64), ("1.3", 256)):
        std = math.sqrt(2 / inputs)
        assert params[f"{name}.weight"].std().item() == pytest.approx(std, rel=0.02)
        assert params[f"{name}.weight"].abs().max().item() <= 2 * std / 0.8796
    assert not any(value.any() for name, value in params.items() if name.endswith("bias"))


def test_simba_block_is_built_for_ppo_and_refuses_a_typo() -> None:
    network = {"type": "simba", "network_cfg": {"width": 8, "num_blocks": 1}}
    policy = build_policy({"name": "actor_critic", "actor": network, "critic": network}, 3, 2, "cpu")
    assert isinstance(policy.actor, SimBa)
    assert policy.block is not None
    assert policy.block["critic"]["network_cfg"] == {"width": 8, "num_blocks": 1, "output_gain": 1.0}
    wrong = {"type": "simba", "network_cfg": {"with": 8}}
    with pytest.raises(ConfigError, match=r"policy\.actor\.network_cfg\.with: .*'width'"):
        parse_policy_block({"name": "actor_critic", "actor": wrong, "critic": {}})


def test_simba_that_does_not_fit_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 4 * 346)
    SimBa(3, 2, width=4, num_blocks=2)  # see above
    with pytest.raises(ConfigError, match=r"^network_cfg\.width: the 502 parameters of a network take 0\.0 MB"):
        SimBa(3, 2, width=4, num_blocks=3)


TINY: dict[str, Any] = {"channels": [2], "kernel_sizes": [2], "strides": [2], "hidden_sizes": [3]}


def make_cnn(keys: list[str], shapes: dict[str, tuple[int, int, int]], in_dim: int = 1, **network: Any) -> CNN:
    torch.manual_seed(0)
    return CNN(CNNCfg(keys=keys, network_cfg=CNNNetworkCfg(**{**TINY, **network})), shapes, in_dim, 2)


def test_default_layers_are_those_of_the_nature_paper() -> None:
    cnn = CNN(CNNCfg(keys=["a"]), {"a": (84, 84, 4)}, 0, 6)
    (encoder,) = cnn.encoders
    assert isinstance(encoder, nn.Sequential)
    convolutions = [layer for layer in encoder if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions] == [
        (4, 32, 8, 4),
        (32, 64, 4, 2),
        (64, 64, 3, 1),
    ]
    # 84 -> 20 -> 9 -> 7: 64 * 7 * 7 = 3136 features, 512 hidden units
    assert isinstance(cnn.head, MLP)
    assert [layer.weight.shape for layer in cnn.head if isinstance(layer, nn.Linear)] == [(512, 3136), (6, 512)]


@pytest.mark.parametrize("batch", [(4,), (4, 3)])
def test_image_features_are_joined_with_the_flat_observation(batch: tuple[int, ...]) -> None:
    cnn = make_cnn(["a", "b"], {"a": (4, 6, 3), "b": (2, 2, 1)}, in_dim=5)
    # a: 2 channels of 2 x 3, b: 2 of 1 x 1, 5 numbers: 12 + 2 + 5
    assert next(cnn.head.parameters()).shape == (3, 19)
    images = {"a": torch.zeros(*batch, 4, 6, 3), "b": torch.zeros(*batch, 2, 2, 1)}
    assert cnn(torch.zeros(*batch, 5), TensorDict(images, batch_size=batch)).shape == (*batch, 2)


def test_bytes_are_scaled_to_one_and_floats_are_not() -> None:
    cnn = make_cnn(["a"], {"a": (2, 2, 1)})
    pixels = torch.tensor([[[[0], [255]], [[51], [102]]]], dtype=torch.uint8)
    floats = torch.tensor([[[[0.0], [1.0]], [[0.2], [0.4]]]])
    out = [cnn(torch.zeros(1, 1), TensorDict({"a": image}, batch_size=[1])) for image in (pixels, floats)]
    torch.testing.assert_close(out[0], out[1])


def test_rows_columns_and_channels_are_told_apart() -> None:
    # One kernel of 1 x 1 that takes channel 1 alone: the features are that channel, row by row.
    cnn = make_cnn(["a"], {"a": (2, 3, 2)}, in_dim=0, channels=[1], kernel_sizes=[1], strides=[1])
    convolution = next(layer for layer in cnn.encoders.modules() if isinstance(layer, nn.Conv2d))
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1))
        assert convolution.bias is not None
        convolution.bias.zero_()
    cnn.head = MLP(6, 6, [])
    with torch.no_grad():
        for parameter, value in zip(cnn.head.parameters(), (torch.eye(6), torch.zeros(6)), strict=True):
            parameter.copy_(value)
    image = torch.stack((torch.full((2, 3), -1.0), torch.arange(6.0).reshape(2, 3)), dim=-1)
    out = cnn(torch.zeros(1, 0), TensorDict({"a": image[None]}, batch_size=[1]))
    assert out.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_image_smaller_than_the_convolutions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"image 'a' \[3, 9, 1\] is too small .*\[2, 2\]"):
        make_cnn(["a"], {"a": (3, 9, 1)}, channels=[2, 2], kernel_sizes=[2, 2], strides=[2, 2])


def test_encoder_joins_all_images_to_features_of_one_scale() -> None:
    torch.manual_seed(0)
    network = ConvolutionsCfg(channels=[2], kernel_sizes=[2], strides=[2])
    cfg = ImageEncoderCfg(keys=["a", "b"], network_cfg=network, num_features=7)
    encoder = ImageEncoder(cfg, {"a": (4, 6, 3), "b": (2, 2, 1)})
    assert next(encoder.head.parameters()).shape == (7, 14)  # 2 channels of 2 x 3, 2 of 1 x 1
    images = TensorDict({"a": 1000 * torch.rand(4, 3, 4, 6, 3), "b": torch.rand(4, 3, 2, 2, 1)}, batch_size=[4, 3])
    features = encoder(images)
    assert features.shape == (4, 3, 7)
    # Normalised over the features, then squashed.
    raw = features.atanh()
    torch.testing.assert_close(raw.mean(-1), torch.zeros(4, 3), atol=1e-3, rtol=0)
    torch.testing.assert_close(raw.std(-1, correction=0), torch.ones(4, 3), atol=1e-2, rtol=0)


def test_critic_of_an_own_class_keeps_its_forward() -> None:
    @ec.register_network("scaled")
    class Scaled(MLP):
        def __init__(self, in_dim: int, out_dim: int) -> None:
            super().__init__(in_dim, out_dim, [4])

        def forward(self, x: Tensor) -> Tensor:
            return 100 * super().forward(x)

    plain: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}}
    values = []
    for critic in (plain, {"type": "scaled"}):
        torch.manual_seed(0)
        block = {"name": "soft_actor_critic", "actor": plain, "critic": critic}
        policy = build_policy(block, 3, spaces.Box(-1, 1, (1,)), "cpu")
        assert isinstance(policy, SoftActorCritic)
        values.append(policy.critic_outputs(TensorDict({"obs": torch.ones(2, 3)}, [2]), torch.ones(2, 1)))
    torch.testing.assert_close(values[1], 100 * values[0])


def test_network_of_another_output_size_is_refused() -> None:
    @ec.register_network("feature")
    class Feature(nn.Linear):
        def __init__(self, in_dim: int, out_dim: int) -> None:
            super().__init__(in_dim, 8)

    block = {"name": "soft_actor_critic", "actor": {"type": "mlp"}, "critic": {"type": "feature"}}
    with pytest.raises(ConfigError, match=r"critic\.type: 'feature' returns \[2, 8\] for \[2, 4\], needed is \[2, 1\]"):
        build_policy(block, 3, spaces.Box(-1, 1, (1,)), "cpu")
