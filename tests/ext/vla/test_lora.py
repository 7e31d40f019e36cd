"""Shapes: B batch, H steps of an action chunk, A action size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import build_algo
from embodichain.agents.rl.models import TinyVLA, VLAPolicy
from embodichain.ext.vla.policy import LoRACfg, add_lora
from embodichain.utils import ConfigError

SIZES: dict[str, Any] = {
    "cameras": ["front"],
    "image_size": [16, 16],
    "state_dim": 3,
    "action_dim": 2,
    "chunk_length": 2,
    "channels": [4, 8],
    "width": 8,
    "depth": 1,
    "heads": 2,
}


def tiny() -> TinyVLA:
    torch.manual_seed(0)
    return TinyVLA(**SIZES)


def inputs(batch: int) -> TensorDict:
    draw = torch.Generator().manual_seed(0)
    entries = {
        "image/front": torch.randint(0, 256, (batch, 16, 16, 3), dtype=torch.uint8, generator=draw),
        "state": torch.randn(batch, 3, generator=draw),
        "instruction": torch.randint(0, 20, (batch, 8), generator=draw),
    }
    return TensorDict({"entries": TensorDict(entries, batch_size=[batch])}, batch_size=[batch])


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"policy\.vla_config\.lora: needs peft: .*pip install .*'peft"):
        add_lora(tiny(), LoRACfg())


@pytest.mark.parametrize("cfg", [LoRACfg(target_modules=["head"]), LoRACfg(trained_modules=["head"])])
def test_modules_that_are_not_there_are_named(cfg: LoRACfg) -> None:
    with pytest.raises(ConfigError, match="TinyVLA has no module whose path ends in 'head'"):
        add_lora(tiny(), cfg)


def test_model_that_names_no_layers_needs_them_named() -> None:
    with pytest.raises(ConfigError, match="target_modules: required, since Linear names none"):
        add_lora(torch.nn.Linear(2, 2), LoRACfg())


def test_adapters_begin_as_nothing_and_learn_with_the_heads() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    plain, policy = VLAPolicy(tiny(), SIZES), VLAPolicy(add_lora(tiny(), LoRACfg(rank=2)), SIZES)
    before = plain.get_action(inputs(3), deterministic=True)
    after = policy.get_action(inputs(3), deterministic=True)
    torch.testing.assert_close(after["action"], before["action"])
    learning = [name for name, p in policy.named_parameters() if p.requires_grad]
    assert learning
    assert all("lora_" in name or "modules_to_save" in name for name in learning)
    assert any("actor.modules_to_save" in name for name in learning)
    assert any("critic.modules_to_save" in name for name in learning)


def test_reference_is_the_policy_without_adapters() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    policy = VLAPolicy(add_lora(tiny(), LoRACfg(rank=2)), SIZES)
    reference = policy.reference()
    assert list(reference.parameters()) == []
    td = policy.get_action(inputs(3))
    before = reference.evaluate_actions(td)["sample_log_prob"]
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    assert torch.equal(reference.evaluate_actions(td)["sample_log_prob"], before)
    assert not torch.allclose(policy.evaluate_actions(td)["sample_log_prob"], before)


def test_grpo_has_no_second_model_beside_adapters() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    policy = VLAPolicy(add_lora(tiny(), LoRACfg(rank=2)), SIZES)
    algorithm: Any = build_algo("grpo", {"kl_coef": 0.1, "group_size": 2, "device": "cpu"}, policy, "cpu")
    assert algorithm.reference.state_dict() == {}
