"""Shapes: B batch, H steps of an action chunk, A action size, K bins."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.models import VLAPolicy
from embodichain.agents.rl.models.vla.loading import load_vla_model, save_vla_model
from embodichain.agents.rl.models.vla.lora import LoRACfg, add_lora
from embodichain.agents.rl.models.vla.openvla_oft import OpenVLAOFT
from embodichain.utils import ConfigError

LAYERS = {"intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES: dict[str, Any] = {
    "cameras": ["front"],
    "image_size": [16, 16],
    "state_dim": 3,
    "action_dim": 2,
    "chunk_length": 2,
    "bins": 8,
    "vision": {"hidden_size": 8, "image_size": 32, "patch_size": 16, **LAYERS},
    "language": {"hidden_size": 8, "vocab_size": 64, "num_key_value_heads": 2, **LAYERS},
}
CLASS = "embodichain.agents.rl.models.OpenVLAOFT"


def tiny(**changes: Any) -> OpenVLAOFT:
    pytest.importorskip("transformers", reason="needs the extra vla")
    torch.manual_seed(0)
    return OpenVLAOFT(**{**SIZES, **changes})


def observation(batch: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "image/front": torch.randint(0, 256, (batch, 16, 16, 3), dtype=torch.uint8, generator=draw),
        "state": torch.randn(batch, 3, generator=draw),
        "instruction": torch.randint(1, 20, (batch, 8), generator=draw),
    }


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"OpenVLAOFT needs transformers: pip install 'embodichain-mujoco\[vla\]'"):
        OpenVLAOFT(**SIZES)


def test_actions_are_the_middles_of_bins_and_evaluation_repeats_their_log_probs() -> None:
    net, obs = tiny(), observation()
    action, log_prob, value = net(obs)
    assert (action.shape, log_prob.shape, value.shape) == ((3, 2, 2), (3, 2, 2), (3,))
    # with 8 bins: -0.875, -0.625, ..., 0.875
    bins = (action + 0.875) / 0.25
    torch.testing.assert_close(bins, bins.round())
    again, entropy, value_again = net.evaluate_actions(obs, action)
    torch.testing.assert_close(again, log_prob)
    torch.testing.assert_close(value_again, value)
    assert (entropy > 0).all()
    assert (entropy <= math.log(8) + 1e-5).all()


def test_probabilities_of_all_bins_sum_up_to_one() -> None:
    net, obs = tiny(), observation()
    middles = torch.arange(8) * 0.25 - 0.875
    total = sum(net.evaluate_actions(obs, torch.full((3, 2, 2), float(a)))[0].exp() for a in middles)
    torch.testing.assert_close(total, torch.ones(3, 2, 2))


def test_most_likely_bins_are_taken_where_no_sample_is_wanted() -> None:
    net, obs = tiny(), observation()
    best, log_prob, _ = net(obs, deterministic=True)
    assert torch.equal(net(obs, deterministic=True)[0], best)
    for a in torch.arange(8) * 0.25 - 0.875:
        assert (net.evaluate_actions(obs, torch.full((3, 2, 2), float(a)))[0] <= log_prob + 1e-6).all()


@pytest.mark.parametrize("entry", ["image/front", "state", "instruction"])
def test_every_entry_of_the_observation_changes_the_distribution(entry: str) -> None:
    net, obs = tiny(), observation()
    changed = obs | {entry: observation(seed=1)[entry]}
    zeros = torch.zeros(3, 2, 2)
    before, after = (net.evaluate_actions(o, zeros)[0] for o in (obs, changed))
    assert not torch.allclose(before, after, atol=1e-6)


def test_all_queries_see_each_other() -> None:
    """Parallel decoding: what comes last in the sequence matters for the first number, too."""
    net, obs = tiny(), observation()
    zeros = torch.zeros(3, 2, 2)
    before = net.evaluate_actions(obs, zeros)[0][:, 0, 0]
    with torch.no_grad():
        net.queries[-1] += 1.0
    assert not torch.allclose(net.evaluate_actions(obs, zeros)[0][:, 0, 0], before, atol=1e-6)


def test_folder_gives_the_model_back(tmp_path: Any) -> None:
    net, obs = tiny(), observation()
    save_vla_model(net, SIZES, tmp_path)
    back = load_vla_model(tmp_path, CLASS)
    assert torch.equal(back(obs, deterministic=True)[1], net(obs, deterministic=True)[1])


def test_policy_with_adapters_learns_through_them() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    policy = VLAPolicy(add_lora(tiny(), LoRACfg(rank=2)), SIZES)
    td = TensorDict({"entries": TensorDict(observation(), batch_size=[3])}, batch_size=[3])
    policy.get_action(td)
    policy.evaluate_actions(td)["sample_log_prob"].sum().backward()
    grads = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.any()}
    assert any("lora_B" in name for name in grads)
    assert all("lora_" in name or "modules_to_save" in name for name in grads)
