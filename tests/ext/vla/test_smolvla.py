"""Shapes: B batch, H steps of an action chunk, A action size."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F

from embodichain.agents.rl.models import SmolVLA, build_policy
from embodichain.ext.vla.policy import LoRACfg, add_lora
from embodichain.ext.vla.smolvla import Normalization, denormalized, fitted, fitted_pixels, normalized
from embodichain.utils import ConfigError

LAYERS = {"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
NETWORKS: dict[str, Any] = {
    "vision": {"hidden_size": 8, "image_size": 32, "patch_size": 8, **LAYERS},
    "language": {"hidden_size": 16, "vocab_size": 64, "num_key_value_heads": 1, **LAYERS},
    "scale_factor": 2,
    "chunk_length": 3,
}
SIZES: dict[str, Any] = {"cameras": ["front"], "image_size": [16, 24], "state_dim": 3, "action_dim": 2, **NETWORKS}
CLASS = "embodichain.agents.rl.models.SmolVLA"


def tiny(**changes: Any) -> SmolVLA:
    pytest.importorskip("transformers", reason="needs the extra vla")
    torch.manual_seed(0)
    return SmolVLA(**{**SIZES, **changes})


def observation(batch: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "image/front": torch.randint(0, 256, (batch, 16, 24, 3), dtype=torch.uint8, generator=draw),
        "state": torch.randn(batch, 3, generator=draw),
        "instruction": torch.randint(1, 20, (batch, 8), generator=draw),
    }


def inputs(batch: int = 4) -> TensorDict:
    entries = TensorDict(observation(batch), batch_size=[batch])
    return TensorDict({"obs": torch.zeros(batch, 1), "entries": entries}, batch_size=[batch])


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"SmolVLA needs transformers: .*pip install .*'transformers"):
        SmolVLA(**SIZES)


def test_evaluation_repeats_the_log_probs_from_the_stored_noise() -> None:
    net, obs = tiny(), observation()
    action, log_prob, value, noise = net(obs)
    assert (action.shape, log_prob.shape, value.shape, noise.shape) == ((4, 3, 2), (4, 3, 2), (4,), (4, 6))
    again, entropy, value_again = net.evaluate_actions(obs, action, noise)
    torch.testing.assert_close(again, log_prob)
    torch.testing.assert_close(value_again, value)
    # deviation exp(-1): 1/2 + log(2 pi) / 2 - 1
    torch.testing.assert_close(entropy, torch.full((4, 3, 2), 0.5 + 0.5 * math.log(2 * math.pi) - 1))
    other = net.evaluate_actions(obs, action, torch.randn(4, 6))[0]
    assert not torch.allclose(other, log_prob, atol=1e-3)


def test_noise_is_carried_by_euler_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the velocity x + t, 2 steps from x: y = x - (x + 1) / 2, then y - (y + 1/2) / 2 = x / 4 - 1 / 2."""
    net, obs = tiny(denoising_steps=2), observation()
    monkeypatch.setattr(net, "_velocity", lambda x, time, prefix: x + time[:, None, None])
    _, log_prob, _, noise = net(obs)
    mean = noise.view(4, 3, 2) / 4 - 0.5
    chosen = mean + 0.3
    # of a normal distribution with deviation s = exp(-1): -(0.3 / s)^2 / 2 - log s - log(2 pi) / 2
    expected = -0.5 * (0.3 * math.e) ** 2 + 1 - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(net.evaluate_actions(obs, chosen, noise)[0], torch.full((4, 3, 2), expected))
    assert log_prob.max().item() <= 1 - 0.5 * math.log(2 * math.pi)
    best, _, _, none = net(obs, deterministic=True)
    assert torch.equal(none, torch.zeros(4, 6))
    torch.testing.assert_close(best, torch.full((4, 3, 2), -0.5))


def test_imitation_loss_of_the_straight_way_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    net, obs = tiny(), observation()
    shown = torch.rand(4, 3, 2)
    # at x = t noise + (1 - t) action, noise - action is (x - action) / t
    monkeypatch.setattr(net, "_velocity", lambda x, time, prefix: (x - shown) / time[:, None, None])
    torch.testing.assert_close(net.imitation_loss(obs, shown), torch.zeros(4, 3, 2), atol=1e-6, rtol=0)
    monkeypatch.setattr(net, "_velocity", lambda x, time, prefix: (x - shown) / time[:, None, None] + 2.0)
    torch.testing.assert_close(net.imitation_loss(obs, shown), torch.full((4, 3, 2), 4.0))


def test_times_of_imitation_have_their_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    net = tiny()
    times: list[torch.Tensor] = []

    def note(x: torch.Tensor, time: torch.Tensor, prefix: Any) -> torch.Tensor:
        times.append(time)
        return x

    monkeypatch.setattr(net, "_see", lambda obs: None)
    monkeypatch.setattr(net, "_velocity", note)
    net.imitation_loss({}, torch.zeros(100_000, 3, 2))
    # Beta(1.5, 1) has mean 3/5 and variance 1.5 / (2.5^2 3.5)
    assert times[0].mean().item() == pytest.approx(0.6, abs=0.004)
    assert times[0].var().item() == pytest.approx(1.5 / (2.5**2 * 3.5), abs=0.002)


@pytest.mark.parametrize("entry", ["image/front", "state", "instruction"])
def test_every_entry_changes_actions_and_value(entry: str) -> None:
    net, obs = tiny(), observation()
    changed = obs | {entry: observation(seed=1)[entry]}
    before, after = (net(o, deterministic=True) for o in (obs, changed))
    assert not torch.allclose(before[0], after[0], atol=1e-6)
    assert not torch.allclose(before[2], after[2], atol=1e-6)


def test_words_that_fill_up_are_not_read() -> None:
    net, obs = tiny(), observation()
    obs["instruction"][:, 3:] = 0
    longer = obs | {"instruction": F.pad(obs["instruction"], (0, 5))}
    for one, two in zip(net(obs, deterministic=True), net(longer, deterministic=True), strict=True):
        torch.testing.assert_close(one, two)


def test_later_actions_do_not_move_earlier_ones() -> None:
    net, obs = tiny(), observation()
    noise, zeros = torch.randn(4, 3, 2), torch.zeros(4, 3, 2)
    other = noise.clone()
    other[:, 1] += 1.0
    one, two = (net.evaluate_actions(obs, zeros, x.flatten(1))[0] for x in (noise, other))
    torch.testing.assert_close(one[:, 0], two[:, 0])
    assert not torch.allclose(one[:, 2], two[:, 2], atol=1e-6)


@pytest.mark.parametrize("train_vlm", [False, True])
def test_vision_and_language_learn_only_if_asked(train_vlm: bool) -> None:
    net, obs = tiny(train_vlm=train_vlm), observation()
    with torch.no_grad():
        action, _, _, noise = net(obs)
    net.evaluate_actions(obs, action, noise)[0].sum().backward()
    moved = {name.split(".")[0] for name, p in net.named_parameters() if p.grad is not None and p.grad.any()}
    rest = {"expert", "expert_norm", "state", "action_in", "time_in", "time_out", "action_out", "log_std"}
    assert moved == rest | ({"vlm"} if train_vlm else set())


def test_steps_computed_again_have_the_same_gradients() -> None:
    obs = observation()
    found = []
    for checkpointed in (False, True):
        net = tiny(gradient_checkpointing=checkpointed)
        torch.manual_seed(1)
        action, _, _, noise = net(obs)
        net.evaluate_actions(obs, action.detach(), noise.detach())[0].sum().backward()
        found.append({name: p.grad for name, p in net.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, grad in found[0].items():
        torch.testing.assert_close(found[1][name], grad)


def test_stored_features_replace_the_vision_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    net, obs = tiny(cache_vision=True), observation()
    action, log_prob, value, noise, vision = net(obs)
    # an image of 32 x 32 has 4 x 4 patches of 8; 2 x 2 of them are a token, of width 16
    assert net.extra_fields == (("noise", 6), ("vision", 4 * 16))
    assert vision.shape == (4, 64)
    monkeypatch.setattr(net.vlm.vision_model, "forward", None)
    again, _, value_again = net.evaluate_actions(obs, action, noise, vision)
    torch.testing.assert_close(again, log_prob)
    torch.testing.assert_close(value_again, value)
    with pytest.raises(ConfigError, match="cache_vision: only without train_vlm"):
        tiny(cache_vision=True, train_vlm=True)


def test_stored_features_must_not_change() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    net = tiny(cache_vision=True)
    add_lora(net, LoRACfg(rank=2, target_modules=["expert.0.self_attn.q_proj"]))
    net.check_training()
    net = tiny(cache_vision=True)
    add_lora(net, LoRACfg(rank=2))  # the vision encoder has layers of these names, too
    with pytest.raises(ConfigError, match="cache_vision: the vision encoder is trained by lora"):
        net.check_training()


def test_images_keep_their_proportions_on_black() -> None:
    images = torch.full((1, 16, 24, 3), 255, dtype=torch.uint8)
    pixels = fitted_pixels(images, 32)  # 24 x 16 becomes 32 x 21
    assert pixels.shape == (1, 3, 32, 32)
    assert (pixels[:, :, :11] == -1).all()
    torch.testing.assert_close(pixels[:, :, 11:], torch.ones(1, 3, 21, 32))


def test_policy_stores_the_noise_and_judges_by_it() -> None:
    pytest.importorskip("transformers", reason="needs the extra vla")
    space = spaces.Dict(
        {
            "image": spaces.Dict({"front": spaces.Box(0, 255, (16, 24, 3), np.uint8)}),
            "state": spaces.Box(-1, 1, (3,)),
            "instruction": spaces.Box(0, 50, (8,), np.int64),
        }
    )
    block = {"name": "vla", "vla_config": {"model_class": CLASS, "model_config": NETWORKS}}
    policy = build_policy(block, 1, 2, "cpu", observation_space=space)
    assert policy.extra_fields == (("noise", 6),)
    assert "noise" in policy.evaluation_fields
    td = policy.get_action(inputs())
    torch.testing.assert_close(policy.evaluate_actions(td)["sample_log_prob"], td["sample_log_prob"])
    grid = td.reshape(2, 2)
    torch.testing.assert_close(policy.evaluate_actions(grid)["sample_log_prob"], grid["sample_log_prob"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision": {"hiden_size": 8}}, r"vision\.hiden_size: unknown key 'hiden_size'\. Did you mean 'hidden_size'"),
        ({"vision": {"image_size": 30}}, r"image of 30 pixels must be a multiple of 2 \(scale_factor\) patches of 8"),
        ({"init_log_std": 2.0}, r"init_log_std 2\.0 must lie in log_std_range"),
    ],
)
def test_wrong_config_says_where(changes: dict[str, Any], message: str) -> None:
    whole = {key: NETWORKS[key] | value if isinstance(value, dict) else value for key, value in changes.items()}
    with pytest.raises(ConfigError, match=message):
        tiny(**whole)


def test_critic_reads_mean_features_without_padding() -> None:
    net, obs = tiny(), observation()
    first = net.critic[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[:, : first.in_features // 2] = 0.0  # of the token that attends to all others
        values = net.get_value(obs)
        assert not torch.isclose(values, net.get_value(obs | {"image/front": observation(seed=1)["image/front"]})).any()
        assert torch.equal(values, net.get_value(obs | {"state": torch.zeros(4, 3)}))  # image and words do not see it
        padded = obs["instruction"].clone()
        padded[:, 3:] = 0
        short = obs | {"instruction": padded[:, :3]}
        torch.testing.assert_close(net.get_value(obs | {"instruction": padded}), net.get_value(short))


X = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1], [3.0, 0.1], [4.0, 0.1]])


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("IDENTITY", [0.0, 4.0]),
        ("MEAN_STD", [-(2**0.5), 2**0.5]),  # mean 2, variance (4 + 1 + 0 + 1 + 4) / 5 = 2
        ("MIN_MAX", [-1.0, 1.0]),
        ("QUANTILE10", [-1.25, 1.25]),  # the quantiles are 0.4 and 3.6: -0.4 / 1.6 beyond the end
    ],
)
def test_vectors_are_normalised_by_what_was_fitted_to_them(kind: Normalization, ends: list[float]) -> None:
    mean, std = fitted(X, kind)
    scaled = normalized(X, mean, std, kind)
    torch.testing.assert_close(scaled[[0, -1], 0], torch.tensor(ends))
    torch.testing.assert_close(denormalized(scaled, mean, std, kind), X)


def test_std_of_a_constant_number_is_exactly_0() -> None:
    assert fitted(X, "MEAN_STD")[1][1] == 0
