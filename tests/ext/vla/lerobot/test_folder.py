"""Shapes: B = 8 observations, F = 6 predicted actions, H = 4 executed, A = 2 action size, W = 8 that of the flow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import SmolVLA, VLAPolicy, build_policy, load_vla_model
from embodichain.ext.vla.lerobot.files import LeRobotCfg, find_entries, read_config
from embodichain.ext.vla.lerobot.folder import InstructionTokenizer, LeRobotFolder, build_lerobot_model
from embodichain.ext.vla.loading import read_model_path
from embodichain.lab.gym.utils.instructions import encode_instructions
from embodichain.utils import ConfigError
from embodichain.utils.state import read_safetensors, write_safetensors
from tests.ext.vla.lerobot.conftest import ENTRIES, FIXTURE, Change, change_json

CLASS = "embodichain.agents.rl.models.SmolVLA"
SPACE = spaces.Dict(
    {
        "image": spaces.Dict(
            {"top": spaces.Box(0, 255, (12, 16, 3), np.uint8), "hand": spaces.Box(0, 255, (20, 10, 3), np.uint8)}
        ),
        "state": spaces.Box(-9, 9, (9,)),
        "instruction": spaces.Box(0, 60, (8,), np.int64),
    }
)


def build(path: Path = FIXTURE, **changes: Any) -> SmolVLA:
    found = read_model_path(path)
    assert isinstance(found, LeRobotFolder)
    return build_lerobot_model(found, find_entries(found.cfg, ENTRIES), changes, "cpu")[0]


def policy_of(path: Path = FIXTURE, space: spaces.Dict = SPACE, action_dim: int = 2, **vla: Any) -> VLAPolicy:
    given = {"model_path": str(path), "model_class": CLASS, "features": ENTRIES} | vla
    policy = build_policy({"name": "vla", "vla_config": given}, 1, action_dim, "cpu", observation_space=space)
    assert isinstance(policy, VLAPolicy)
    return policy


def test_actions_and_losses_are_those_of_lerobot(expected: dict[str, torch.Tensor]) -> None:
    model = build()
    with torch.no_grad():
        actions = model.predict(expected, expected["noise"])
        losses = model.flow_loss(expected, expected["action"], expected["noise"], expected["time"]).mean((1, 2))
    torch.testing.assert_close(actions, expected["actions"], atol=1e-5, rtol=0)
    torch.testing.assert_close(losses, expected["losses"], atol=1e-5, rtol=0)


def test_policy_executes_the_first_actions_of_the_chunk(expected: dict[str, torch.Tensor]) -> None:
    policy = policy_of()
    assert (policy.chunk_length, policy.extra_fields) == (4, (("noise", 6 * 8),))
    assert policy.obs_keys == ("image/top", "image/hand", "state", "instruction")
    entries = TensorDict({key: expected[key] for key in policy.obs_keys}, batch_size=[8])
    given = TensorDict({"obs": torch.zeros(8, 1), "entries": entries}, batch_size=[8])
    with torch.no_grad():
        best = policy.get_action(given.clone(), deterministic=True)
        td = policy.get_action(given.clone())
        judged = policy.evaluate_actions(td)
        whole = policy.model.predict(expected, torch.zeros(8, 6, 8))
    torch.testing.assert_close(best["action"], whole[:, :4])
    # LeRobot's mean and std lie between the flow and the environment: the probability is that of the flow's action.
    scale = read_safetensors(FIXTURE / "policy_postprocessor_step_0_unnormalizer_processor.safetensors")["action.std"]
    with torch.no_grad():
        mean = policy.model.predict(expected, td["noise"].unflatten(1, (6, 8)))[:, :4]
    log_prob = torch.distributions.Normal(mean / scale, np.exp(-1.0)).log_prob(td["action"] / scale)
    torch.testing.assert_close(td["sample_log_prob"], log_prob, atol=1e-4, rtol=0)
    assert torch.equal(judged["sample_log_prob"], td["sample_log_prob"])


def test_action_that_is_constant_in_the_data_has_no_probability(
    folder: Path, expected: dict[str, torch.Tensor]
) -> None:
    for name in folder.glob("policy_*.safetensors"):
        tensors = read_safetensors(name)
        tensors["action.std"][1] = 0
        write_safetensors(name, tensors)
    model = build(folder)
    with torch.no_grad():
        action, log_prob, _, noise = model(expected)
        again, entropy, _ = model.evaluate_actions(expected, action, noise)
    assert torch.equal(action[..., 1], model.action_mean[1].expand(8, 4))
    assert torch.equal(log_prob[..., 1], torch.zeros(8, 4))
    assert torch.equal(entropy[..., 1], torch.zeros(8, 4))
    assert torch.equal(log_prob, again)
    assert (log_prob[..., 0] != 0).all()


def test_model_config_changes_some_of_the_folders_settings() -> None:
    model = build(chunk_length=2, denoising_steps=3, train_vlm=True)
    assert (model.chunk_length, model.imitation_length, model.cfg.denoising_steps) == (2, 6, 3)
    assert all(parameter.requires_grad for parameter in model.vlm.parameters())
    with pytest.raises(ConfigError, match=r"model_config\.expert_width: unknown override of a folder .*Known"):
        build(expert_width=0.5)
    with pytest.raises(ConfigError, match="flow_length 6 is below chunk_length 7"):
        build(chunk_length=7)


def test_folder_is_loaded_without_an_environment() -> None:
    model = load_vla_model(FIXTURE, CLASS)
    assert isinstance(model, SmolVLA)
    assert model.image_keys == ("image/top", "image/wrist", "image/empty_camera_0")


def test_other_class_is_refused() -> None:
    for load in (lambda name: load_vla_model(FIXTURE, name), lambda name: policy_of(model_class=name)):
        with pytest.raises(ConfigError, match=r"model_class: .*LeRobot's SmolVLA: must be .*\.SmolVLA, got TinyVLA"):
            load("embodichain.agents.rl.models.TinyVLA")


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "policy_preprocessor.json", "policy_postprocessor_step_0_unnormalizer_processor.safetensors"],
)
def test_missing_file_is_named_in_one_line(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigError) as error:
        policy_of(folder)
    assert str(error.value).startswith(f"policy.vla_config.model_path: {folder / name}: is missing")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(type="pi0"), r"config\.json: a LeRobot policy of type 'pi0'; only 'smolvla' is read"),
        (lambda c: c.update(attention_mode="self_attn"), r"config\.json\.attention_mode: .*'cross_attn'"),
        (lambda c: c.update(num_expert_layers=1), "num_expert_layers 1 must be num_vlm_layers 2"),
        (lambda c: c.update(n_action_steps=7), "n_action_steps 7 is above chunk_size 6"),
        (lambda c: c.update(resize_imgs_with_padding=[32, 24]), r"resize_imgs_with_padding \[32, 24\] must be square"),
        (lambda c: c.update(resize_imgs_with_padding=[24, 24]), "image of 24 pixels must be a multiple of 2"),
        (lambda c: c.update(output_features={}), "output_features must have 'action' of shape"),
        (lambda c: c["input_features"].pop("observation.state"), "input_features must have 'observation.state'"),
        (lambda c: c.update(max_state_dim=8), "state_width 8 is below state_dim 9"),
        (lambda c: c.update(num_vlm_layers=1), "layers.1.*is not the model's"),
    ],
)
def test_config_that_is_computed_otherwise_is_refused(folder: Path, change: Change, message: str) -> None:
    change_json(folder / "config.json", change)
    with pytest.raises(ConfigError, match=message) as error:
        policy_of(folder)
    assert "\n" not in str(error.value)


def test_weights_in_bfloat16_are_computed_in_float32(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    weights = read_safetensors(folder / "model.safetensors")
    rounded = {name: value.bfloat16() for name, value in weights.items()}
    write_safetensors(folder / "model.safetensors", rounded)
    one = build(folder)
    write_safetensors(folder / "model.safetensors", {name: value.float() for name, value in rounded.items()})
    with torch.no_grad():
        results = [model.predict(expected, expected["noise"]) for model in (one, build(folder))]
    assert torch.equal(*results)
    assert not torch.allclose(results[0], expected["actions"], atol=1e-3)


def test_missing_statistics_leave_values_as_they_are(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    """As in lerobot/smolvla_base, whose statistics have other names."""
    for name in folder.glob("policy_*.safetensors"):
        tensors = read_safetensors(name)
        write_safetensors(name, {f"so100.buffer.{key}": value for key, value in tensors.items()})
    model = build(folder)
    assert torch.equal(model._state(expected["state"])[:, :9], expected["state"])
    with torch.no_grad():
        executed = model(expected, deterministic=True)[0]
        assert torch.equal(executed, model.predict(expected, torch.zeros(8, 6, 8))[:, :4])


def test_environment_that_does_not_fit_is_told_with_both_sides() -> None:
    other = spaces.Dict({name: space for name, space in SPACE.items() if name != "state"})
    with pytest.raises(ConfigError) as error:
        policy_of(space=other, features={**ENTRIES, "observation.images.top": "image/front"})
    text = str(error.value)
    for part in (
        "observation.images.top needs an image 'image/front'",
        "it needs 'state'",
        "has image/hand [20, 10, 3]",
    ):
        assert part in text


EMPTY = "observation.images.empty_camera_0"


@pytest.fixture
def cfg() -> LeRobotCfg:
    return read_config(json.loads((FIXTURE / "config.json").read_text()), "config.json")


def test_images_are_found_by_name_in_the_policys_order(cfg: LeRobotCfg) -> None:
    given: dict[str, str | None] = {EMPTY: None, "observation.images.top": "image/front"}
    assert list(find_entries(cfg, given).items()) == [
        ("observation.images.top", "image/front"),
        ("observation.images.wrist", "image/wrist"),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"observation.state": "state"}, "unknown image feature 'observation.state'"),
        ({"observation.images.top": "state"}, r"top: must be an entry 'image/<camera>' or null, got 'state'"),
        ({f"observation.images.{name}": None for name in ("top", "wrist", "empty_camera_0")}, "leaves out all images"),
    ],
)
def test_wrong_names_are_explained(cfg: LeRobotCfg, given: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_entries(cfg, given)


class Letters:
    """A tokenizer whose tokens are the letters' codes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str, truncation: bool, max_length: int | None) -> dict[str, Any]:
        self.texts.append(text)
        tokens = [ord(letter) for letter in text]
        return {"input_ids": tokens[:max_length] if truncation else tokens}


def test_text_becomes_tokens_once_for_each_instruction() -> None:
    letters = Letters()
    read = InstructionTokenizer(letters, 48, ends_in_new_line=True)
    given = encode_instructions(["push the red cube", "open", "push the red cube"])
    for _ in range(2):
        tokens, there = read(given)
    assert letters.texts == ["open\n", "push the red cube\n"] or letters.texts == ["push the red cube\n", "open\n"]
    assert "".join(map(chr, tokens[0])) == "push the red cube\n"
    assert torch.equal(tokens[0], tokens[2])
    assert "".join(map(chr, tokens[1][there[1]])) == "open\n"
    assert there.sum(1).tolist() == [18, 5, 18]


@pytest.mark.parametrize(("length", "end", "expected"), [(3, True, "ope"), (None, True, "open\n"), (48, False, "open")])
def test_text_is_cut_off_and_ended_as_the_processor_says(length: int | None, end: bool, expected: str) -> None:
    tokens, there = InstructionTokenizer(Letters(), length, end)(encode_instructions(["open"]))
    assert "".join(map(chr, tokens[0])) == expected
    assert there.all()
    tokens, _ = InstructionTokenizer(Letters(), length, ends_in_new_line=False)(encode_instructions(["", ""]))
    assert (tokens.dtype, tokens.shape) == (torch.int64, (2, 0))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_tracing_is_refused() -> None:
    """A traced policy would read the traced instruction for ever."""
    read = InstructionTokenizer(Letters(), 48, ends_in_new_line=True)
    with pytest.raises(RuntimeError, match="--format lerobot exports it"):
        torch.jit.trace(lambda x: read(x)[0], (encode_instructions(["open"]),))
