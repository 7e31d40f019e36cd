"""Shapes: B batch, H steps of an action chunk, A action size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import build_algo
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import TinyVLA, VLAPolicy, build_policy, save_vla_model
from embodichain.ext.vla.policy import LoRACfg, VLAConfig, add_lora, stored_chunk_length
from embodichain.utils import ConfigError
from embodichain.utils.choices import Choices
from tests.agents.rl.buffer.test_layout import T, check
from tests.agents.rl.fakes import ChunkedEnv

SMALL = {"channels": [4, 8], "width": 8, "depth": 1, "heads": 2, "chunk_length": 3}


def space(state_dim: int = 4) -> spaces.Dict:
    return spaces.Dict(
        {
            "image": spaces.Dict({"front": spaces.Box(0, 255, (16, 16, 3), np.uint8)}),
            "state": spaces.Box(-1, 1, (state_dim,)),
            "instruction": spaces.Box(0, 50, (8,), np.int64),
        }
    )


def build(observation_space: spaces.Dict | None = None, **vla: Any) -> VLAPolicy:
    block = {"name": "vla", "vla_config": {"model_config": SMALL} | vla}
    policy = build_policy(block, 12, 2, "cpu", observation_space=observation_space or space())
    assert isinstance(policy, VLAPolicy)
    return policy


def inputs(*batch: int) -> TensorDict:
    draw = torch.Generator().manual_seed(0)
    entries = {
        "image/front": torch.randint(0, 256, (*batch, 16, 16, 3), dtype=torch.uint8, generator=draw),
        "state": torch.randn(*batch, 4, generator=draw),
        "instruction": torch.randint(0, 20, (*batch, 8), generator=draw),
    }
    obs = torch.zeros(*batch, 12)
    return TensorDict({"obs": obs, "entries": TensorDict(entries, batch_size=batch)}, batch_size=batch)


def test_stored_chunk_length_is_the_folders_own(tmp_path: Path) -> None:
    def length(path: str, **config: int) -> int:
        name = "embodichain.agents.rl.models.TinyVLA"
        return stored_chunk_length(VLAConfig(model_class=name, model_path=path, model_config=config))

    assert length("owner/name@main") == 1  # known once it is downloaded
    assert length("owner/name@main", chunk_length=5) == 5
    (tmp_path / "config.json").write_text('{"type": "smolvla", "input_features": {}}', encoding="utf-8")
    assert length(str(tmp_path)) == 50  # LeRobot's default


def test_policy_is_built_from_block_and_spaces() -> None:
    policy = build()
    assert policy.chunk_length == 3
    assert policy.obs_keys == ("image/front", "state", "instruction")
    model = policy.model
    assert isinstance(model, TinyVLA)
    assert (model.cfg.state_dim, model.cfg.action_dim, model.cfg.image_size) == (4, 2, (16, 16))


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^policy\.name: vla: needs continuous actions"):
        build_policy(
            {"name": "vla", "vla_config": {"model_config": SMALL}}, 12, Choices((2,)), "cpu", observation_space=space()
        )


def test_log_probs_and_entropies_are_not_reduced() -> None:
    policy, td = build(), inputs(5)
    policy.get_action(td)
    assert (td["action"].shape, td["sample_log_prob"].shape, td["value"].shape) == ((5, 3, 2), (5, 3, 2), (5,))
    out = policy.evaluate_actions(td)
    assert (out["entropy"].shape, out["value"].shape) == ((5, 3, 2), (5,))
    assert torch.equal(out["sample_log_prob"], td["sample_log_prob"])
    assert torch.equal(policy.get_value(inputs(5))["value"], td["value"])


def test_more_batch_dimensions_are_rows() -> None:
    policy, td = build(), inputs(2, 3)
    policy.get_action(td, deterministic=True)
    assert td["action"].shape == (2, 3, 3, 2)
    flat = policy.get_action(inputs(2, 3).reshape(-1), deterministic=True)
    assert torch.equal(td["action"].flatten(0, 1), flat["action"])
    assert policy.evaluate_actions(td)["sample_log_prob"].shape == (2, 3, 3, 2)


def test_a_chunk_of_one_is_a_single_action_with_one_log_prob() -> None:
    policy, td = build(model_config=SMALL | {"chunk_length": 1}), inputs(5)
    policy.get_action(td)
    out = policy.evaluate_actions(td)
    assert (td["action"].shape, td["sample_log_prob"].shape, out["entropy"].shape) == ((5, 2), (5,), (5,))
    assert torch.equal(out["sample_log_prob"], td["sample_log_prob"])
    # two normal numbers of deviation exp(-1): 2 (1/2 + log(2 pi) / 2 - 1)
    assert out["entropy"][0].item() == pytest.approx(2 * (0.5 + 0.5 * np.log(2 * np.pi) - 1))


def test_folder_of_a_cloned_model_is_read_with_its_config(tmp_path: Path) -> None:
    first = build()
    save_vla_model(first.model, first.model_config, tmp_path)
    second = build(model_path=str(tmp_path), model_config={"bf16": True})
    assert second.model_config == first.model_config | {"bf16": True}
    for name, value in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], value)


def test_model_for_another_environment_says_what_differs(tmp_path: Path) -> None:
    first = build()
    save_vla_model(first.model, first.model_config, tmp_path)
    with pytest.raises(ConfigError, match=r"was made for state_dim 4, the environment has 5"):
        build(space(state_dim=5), model_path=str(tmp_path))


class SeeingEnv(ChunkedEnv):
    """Has an image and an instruction beside its numbers, as VLA policies read them."""

    def __init__(self) -> None:
        super().__init__(2)
        self.action_space = spaces.Box(-1, 1, (2, 2))

    def _obs(self) -> TensorDict:
        obs = super()._obs()
        obs["image"] = TensorDict({"front": torch.zeros(2, 16, 16, 3, dtype=torch.uint8)}, batch_size=[2])
        obs["state"] = torch.zeros(2, 4)
        obs["instruction"] = torch.zeros(2, 8, dtype=torch.int64)
        return obs


def test_every_field_of_a_rollout_is_in_the_table() -> None:
    policy = build()
    check(SyncCollector(SeeingEnv(), policy, "cpu").collect(T), policy, {"info", "executed", "entries"})


# --- low-rank adapters ---


def adapted() -> VLAPolicy:
    """Return a policy with adapters, of the same weights each time."""
    pytest.importorskip("peft", reason="needs the extra vla")
    torch.manual_seed(0)
    return build(lora={"rank": 2})


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"policy\.vla_config\.lora: needs peft: .*pip install .*'peft"):
        build(lora={"rank": 2})


@pytest.mark.parametrize("key", ["target_modules", "trained_modules"])
def test_modules_that_are_not_there_are_named(key: str) -> None:
    with pytest.raises(ConfigError, match="TinyVLA has no module whose path ends in 'head'"):
        build(lora={key: ["head"]})


def test_model_that_names_no_layers_needs_them_named() -> None:
    with pytest.raises(ConfigError, match="target_modules: required, since Linear names none"):
        add_lora(torch.nn.Linear(2, 2), LoRACfg())


def test_adapters_begin_as_nothing_and_learn_with_the_heads() -> None:
    policy = adapted()
    torch.manual_seed(0)
    before, after = (p.get_action(inputs(3), deterministic=True)["action"] for p in (build(), policy))
    torch.testing.assert_close(after, before)
    learning = [name for name, p in policy.named_parameters() if p.requires_grad]
    assert all("lora_" in name or "modules_to_save" in name for name in learning)
    assert any("actor.modules_to_save" in name for name in learning)
    assert any("critic.modules_to_save" in name for name in learning)


def change_what_is_trained(policy: VLAPolicy) -> None:
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))


def test_reference_has_the_adapters_of_the_start() -> None:
    policy = adapted()
    change_what_is_trained(policy)  # as ``init_from`` does
    reference = policy.reference()
    td = policy.get_action(inputs(3))
    before = policy.evaluate_actions(td)["sample_log_prob"].detach()
    change_what_is_trained(policy)
    after = policy.evaluate_actions(td)["sample_log_prob"]
    assert torch.equal(reference.evaluate_actions(td)["sample_log_prob"], before)
    assert torch.equal(policy.evaluate_actions(td)["sample_log_prob"], after)
    assert not torch.allclose(after, before)


def test_grpo_stores_no_second_model_beside_adapters() -> None:
    policy = adapted()
    algorithm: Any = build_algo("grpo", {"kl_coef": 0.1, "group_size": 2, "device": "cpu"}, policy, "cpu")
    trained = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    assert {name for name in algorithm.state_dict()["reference"] if "state_" not in name} == trained
