"""Shapes: B batch, H steps of an action chunk, A action size, J size of the state, L tokens of an instruction."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import TinyVLA
from embodichain.ext.vla.tiny_vla import _soft_maxima
from embodichain.lab.gym.utils.instructions import encode_instructions
from embodichain.utils import ConfigError

SIZES: dict[str, Any] = {
    "cameras": ["front", "wrist"],
    "image_size": [16, 16],
    "state_dim": 3,
    "action_dim": 2,
    "chunk_length": 4,
    "instruction_length": 5,
    "channels": [4, 8],
    "width": 16,
    "depth": 2,
    "heads": 2,
}


def model(**changes: Any) -> TinyVLA:
    torch.manual_seed(0)
    return TinyVLA(**{**SIZES, **changes})


def observation(batch: int = 3, seed: int = 1) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    images = {
        f"image/{name}": torch.randint(0, 256, (batch, 16, 16, 3), dtype=torch.uint8, generator=draw)
        for name in SIZES["cameras"]
    }
    words = torch.randint(1, 20, (batch, 5), generator=draw)
    return {**images, "state": torch.randn(batch, 3, generator=draw), "instruction": words}


def test_log_prob_is_normal_and_evaluation_repeats_it() -> None:
    net = model(init_log_std=-0.5)
    obs = observation()
    action, log_prob, value = net(obs)
    mean, _, _ = net(obs, deterministic=True)
    expected = torch.distributions.Normal(mean, math.exp(-0.5)).log_prob(action)
    torch.testing.assert_close(log_prob, expected)
    again, entropy, value_again = net.evaluate_actions(obs, action)
    assert torch.equal(again, log_prob)
    assert torch.equal(value_again, value)
    assert torch.equal(net.get_value(obs), value)
    # of a normal distribution: 1/2 + log(2 pi) / 2 + log s
    torch.testing.assert_close(entropy, torch.full((3, 4, 2), 0.5 + 0.5 * math.log(2 * math.pi) - 0.5))


@pytest.mark.parametrize("entry", ["image/front", "image/wrist", "state", "instruction"])
def test_every_entry_of_the_observation_changes_the_action(entry: str) -> None:
    net = model()
    obs = observation()
    changed = obs | {entry: observation(seed=2)[entry]}
    before, after = (net(o, deterministic=True)[0] for o in (obs, changed))
    assert not torch.allclose(before, after, atol=1e-5)


def test_dictionaries_arrays_and_tensordicts_convert_alike() -> None:
    net = model()
    obs = observation()
    nested: dict[str, Any] = {"image": {n: obs[f"image/{n}"].numpy() for n in SIZES["cameras"]}}
    nested |= {name: obs[name].numpy() for name in ("state", "instruction")}
    forms: list[Any] = [
        {name: value.numpy() for name, value in obs.items()},
        nested,
        TensorDict(obs, batch_size=[3]),
        TensorDict(nested, batch_size=[3]),
    ]
    expected = net(obs, deterministic=True)[0]
    for form in forms:
        assert torch.equal(net(form, deterministic=True)[0], expected)


def test_value_error_leaves_the_features_alone() -> None:
    net = model()
    net.get_value(observation()).square().sum().backward()
    assert all(p.grad is None for name, p in net.named_parameters() if not name.startswith("critic"))
    assert all(p.grad is not None for p in net.critic.parameters())


def test_states_are_normalised_by_those_it_was_fitted_to() -> None:
    net = model()
    states = torch.tensor([[1.0, 10.0, 5.0], [3.0, 30.0, 5.0]])
    net.fit_inputs(states)
    assert net.state_mean.tolist() == [2.0, 20.0, 5.0]
    # The std of two numbers d apart is d / 2; of one that never moves 0.001.
    torch.testing.assert_close(net.state_std, torch.tensor([1.0, 10.0, 1e-3]))
    net.fit_inputs(states[:1])
    torch.testing.assert_close(net.state_std, torch.full((3,), 1e-3))


def test_gradient_checkpointing_changes_no_gradient() -> None:
    grads = []
    for checkpointing in (False, True):
        net = model(gradient_checkpointing=checkpointing)
        log_prob, _, _ = net.evaluate_actions(observation(), torch.zeros(3, 4, 2))
        log_prob.sum().backward()
        grads.append([p.grad for p in net.parameters() if p.grad is not None])
    assert len(grads[0]) == len(grads[1])
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two)


def test_bf16_is_near_and_its_log_probs_are_repeatable() -> None:
    obs = observation()
    exact, rough = model(), model(bf16=True)
    action, log_prob, value = rough(obs)
    assert {x.dtype for x in (action, log_prob, value)} == {torch.float32}
    assert torch.equal(rough.evaluate_actions(obs, action)[0], log_prob)
    means = [net(obs, deterministic=True)[0] for net in (exact, rough)]
    # bfloat16 has 8 bits of mantissa: some per cent after a few layers
    torch.testing.assert_close(means[0], means[1], atol=0.05, rtol=0)
    assert not torch.equal(*means)


def test_soft_maximum_is_the_mean_place_under_the_softmax() -> None:
    heat = torch.full((1, 2, 3, 5), -100.0)
    heat[0, 0, 2, 1] = 0.0  # the last of 3 rows, the second of 5 columns
    heat[0, 1, 0, 0] = heat[0, 1, 0, 4] = 0.0  # two that are equal: the middle between them
    # y of both, then x: rows are at -1, 0, 1 and columns at -1, -0.5, 0, 0.5, 1
    torch.testing.assert_close(_soft_maxima(heat), torch.tensor([[1.0, -1.0, -0.5, 0.0]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 15}, "width 15 is not a multiple of heads 2"),
        ({"image_size": [4, 16]}, "too small for 3 halvings"),
        ({"init_log_std": 3.0}, "must lie in log_std_range"),
    ],
)
def test_wrong_config_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(**changes)


def box(*shape: int, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(0, 100, shape, dtype)


def test_config_follows_from_the_environments_spaces() -> None:
    space = spaces.Dict(
        {
            "image": spaces.Dict({"front": box(32, 48, 3, dtype=np.uint8)}),
            "state": box(7),
            "instruction": box(8, dtype=np.int64),
            "robot": spaces.Dict({"qpos": box(8)}),
        }
    )
    config = TinyVLA.config_for(space, 2)
    assert config == {
        "cameras": ["front"],
        "image_size": [32, 48],
        "state_dim": 7,
        "instruction_length": 8,
        "action_dim": 2,
    }


def test_observation_without_what_is_read_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"reads state, instruction, image/<camera>, the observation has only robot/qpos"
    ):
        TinyVLA.config_for(spaces.Dict({"robot": spaces.Dict({"qpos": box(8)})}), 2)


def test_it_learns_to_find_what_the_instruction_names() -> None:
    # Two patches of 3 x 3 pixels, red and blue, in a grey image: where is the one that is named?
    torch.manual_seed(0)
    model = TinyVLA(
        cameras=["front"],
        image_size=(32, 32),
        state_dim=1,
        action_dim=2,
        chunk_length=1,
        channels=[16, 32],
        width=64,
        heads=2,
        depth=1,
    )
    tokens = encode_instructions(["push the red cube", "push the blue cube"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    errors = []
    for _ in range(150):
        places = torch.randint(0, 29, (64, 2, 2))
        image = torch.full((64, 32, 32, 3), 128, dtype=torch.uint8)
        rows, columns = torch.arange(64)[:, None, None], torch.arange(3)
        for which, rgb in enumerate(([200, 30, 30], [30, 30, 200])):
            y, x = places[:, which, 0, None, None], places[:, which, 1, None, None]
            image[rows, y + columns[:, None], x + columns] = torch.tensor(rgb, dtype=torch.uint8)
        named = torch.randint(0, 2, (64,))
        target = (places[torch.arange(64), named] + 1) / 15.5 - 1
        obs = {"image/front": image, "state": torch.zeros(64, 1), "instruction": tokens[named]}
        mean, _, _ = model(obs, deterministic=True)
        error = (mean.squeeze(1) - target).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    # A guess in the middle has the variance of the places, 0.29; the mean of both patches half of that.
    assert sum(errors[-20:]) / 20 < 0.05
