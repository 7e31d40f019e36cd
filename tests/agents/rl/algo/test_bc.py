"""Behaviour cloning. Shapes: M frames, B batch, L sequence length, A action size."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import BC, BCCfg
from embodichain.agents.rl.algo.bc import shift_images
from embodichain.agents.rl.buffer import Demonstrations
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.utils import ConfigError

MLP = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
CNN = {"type": "cnn", "keys": ["image/cam"], "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
GRU = {"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 8}
BLOCKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "actor_critic", "actor": MLP, "critic": MLP},
    "normalised, without a critic": {"name": "actor_only", "actor": MLP, "normalize_obs": True},
    "squashed": {"name": "actor_critic", "actor": MLP, "critic": MLP, "squash": True},
    "scaled": {"name": "actor_critic", "actor": MLP, "critic": MLP, "scale_actions": True},
    "soft": {"name": "soft_actor_critic", "actor": MLP, "critic": MLP},
    "two actions at once": {"name": "actor_critic", "actor": MLP, "critic": MLP, "chunk_length": 2},
}
ACTIONS = spaces.Box(-2.0, 2.0, (1,), np.float32)


def build(block: dict[str, Any], **entries: spaces.Space[Any]) -> Policy:
    torch.manual_seed(0)
    flat = spaces.Box(-np.inf, np.inf, (1, 1), np.float32)
    structured = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (1,), np.float32), **entries})
    return build_policy(block, flat, ACTIONS, torch.device("cpu"), observation_space=structured)


def demonstrations(
    obs: torch.Tensor, action: torch.Tensor, lengths: list[int], image: torch.Tensor | None = None
) -> Demonstrations:
    """Return episodes of frames [M] with a 99 behind each, which nothing may read."""
    frames = TensorDict({"obs": obs, "action": action}, batch_size=[len(obs)])
    if image is not None:
        frames["entries"] = TensorDict({"image/cam": image}, batch_size=[len(obs)])
    padding = frames[:1].apply(lambda x: torch.full_like(x, 99))
    episodes = [TensorDict.cat((part, padding)).unsqueeze(0) for part in frames.split(lengths)]
    return Demonstrations(episodes, len(lengths))


def clone(policy: Policy, data: Demonstrations, steps: int = 120, **settings: Any) -> dict[str, float]:
    bc = BC(BCCfg(updates_per_iteration=steps, batch_size=32, learning_rate=0.03, **settings), policy)
    bc.use_demonstrations(data)
    bc.update_share = 1.0
    return bc.update(TensorDict())


def loss_of(policy: Policy, data: Demonstrations, frames: list[int]) -> float:
    bc = BC(BCCfg(), policy)
    bc.use_demonstrations(data)
    return bc.loss(torch.tensor(frames))[0].item()


def test_loss_is_the_likelihood_of_each_number() -> None:
    policy = build(BLOCKS["mlp"] | {"normalize_obs": False})
    data = demonstrations(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]), [2])
    mean = policy.get_action(TensorDict({"obs": torch.zeros(1, 1)}, [1]), deterministic=True)["action"].item()
    # the std is 1: 1/2 log 2 pi + (a - mean)^2 / 2, of both frames
    expected = 0.5 * math.log(2 * math.pi) + ((1 - mean) ** 2 + (3 - mean) ** 2) / 4
    assert loss_of(policy, data, [0, 1]) == pytest.approx(expected, rel=1e-5)


def test_actions_beyond_the_end_of_an_episode_do_not_count() -> None:
    policy = build(BLOCKS["two actions at once"] | {"normalize_obs": False})
    obs, action = torch.zeros(3, 1), torch.tensor([[1.0], [2.0], [5.0]])
    one, two = (loss_of(policy, demonstrations(obs[:n], action[:n], [n]), [0]) for n in (1, 2))
    # frames 0 and 1 of [1, 2 | 5]: the actions (1, 2), and 2 alone, which frame 0 of [2] has, too
    alone = loss_of(policy, demonstrations(obs[:1], action[1:2], [1]), [0])
    both = loss_of(policy, demonstrations(obs, action, [2, 1]), [0, 1])
    assert both == pytest.approx((2 * two + alone) / 3)
    assert one != pytest.approx(two)
    bc = BC(BCCfg(), policy)
    bc.use_demonstrations(demonstrations(obs, action, [2, 1]))
    assert int(bc.loss(torch.tensor([0, 1, 2]))[1]) == 4  # of several processes, each counts by its actions


@pytest.mark.parametrize("name", BLOCKS)
def test_policy_comes_to_do_what_was_shown(name: str) -> None:
    policy = build(BLOCKS[name])
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    metrics = clone(policy, demonstrations(x, 0.5 * x, [32, 32]))
    action = policy.get_action(TensorDict({"obs": x}, [64]), deterministic=True)["action"]
    torch.testing.assert_close(action.reshape(64, -1)[:, :1], 0.5 * x, atol=0.1, rtol=0)
    assert metrics["learning_rate"] == pytest.approx(0.03 / 120)  # the last of a line from 0.03 to 0


def test_image_decides_what_a_cnn_does() -> None:
    block = BLOCKS["mlp"] | {"actor": CNN, "critic": CNN}
    policy = build(block, **{"image/cam": spaces.Box(0, 255, (36, 36, 3), np.uint8)})
    bright = torch.arange(8) % 2
    image = (255 * bright.view(8, 1, 1, 1).expand(8, 36, 36, 3)).to(torch.uint8)
    data = demonstrations(torch.zeros(8, 1), bright.view(8, 1) - 0.5, [8], image=image)
    clone(policy, data, steps=30, random_shift=2)
    given = TensorDict({"obs": torch.zeros(8, 1), "entries": {"image/cam": image}}, [8])
    action = policy.get_action(given, deterministic=True)["action"].squeeze(1)
    assert ((action > 0) == (bright == 1)).all()


def test_recurrent_policy_learns_from_the_first_observation() -> None:
    policy = build(GRU)
    cues = torch.tensor([0.5, -0.5, 0.5, -0.5])
    lengths = [3, 3, 2, 3]  # the shorter one is masked at its end
    obs = torch.cat([torch.tensor([cue, *[0.0] * (length - 1)]) for cue, length in zip(cues, lengths, strict=True)])
    action = torch.cat([cue.repeat(length) for cue, length in zip(cues, lengths, strict=True)])
    clone(policy, demonstrations(obs.unsqueeze(1), action.unsqueeze(1), lengths))
    state = torch.zeros(2, 8)
    for seen in ([0.5, -0.5], [0.0, 0.0], [0.0, 0.0]):
        step = policy.get_action(TensorDict({"obs": torch.tensor(seen).unsqueeze(1), "state": state}, [2]), True)
        state = step["next_state"]
        torch.testing.assert_close(step["action"].squeeze(1), cues[:2], atol=0.1, rtol=0)


def test_recurrent_loss_is_a_mean_over_the_frames_of_episodes() -> None:
    policy = build(GRU | {"normalize_obs": False})
    obs, action = torch.tensor([[0.1], [0.2], [0.3]]), torch.tensor([[1.0], [2.0], [3.0]])
    both = demonstrations(obs, action, [1, 2])
    one, two, mixed = (loss_of(policy, both, frames) for frames in ([0], [1], [0, 1]))
    assert mixed == pytest.approx((one + 2 * two) / 3)


def test_policy_whose_likelihood_needs_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = build(BLOCKS["mlp"])
    policy.extra_fields = (("noise", 3),)
    monkeypatch.setattr(type(policy), "imitation_loss", Policy.imitation_loss)
    with pytest.raises(ConfigError, match=r"ActorCritic cannot be cloned: its likelihoods need noise"):
        BC(BCCfg(), policy)


def test_demonstrations_of_another_run_are_refused() -> None:
    policy, x = build(BLOCKS["mlp"]), torch.ones(2, 1)
    one, other = BC(BCCfg(), policy), BC(BCCfg(), policy)
    one.use_demonstrations(demonstrations(x, x, [2]))
    other.use_demonstrations(demonstrations(x, 2 * x, [2]))
    with pytest.raises(ConfigError, match=r"demonstrations: expert: are not the run's"):
        other.load_state_dict(one.state_dict())


# --- images moved at random ---


def numbered(*batch: int) -> torch.Tensor:
    """Images of 4 x 5 pixels, whose two channels are row and column."""
    row, column = torch.meshgrid(torch.arange(4), torch.arange(5), indexing="ij")
    return torch.stack((row, column), dim=-1).to(torch.uint8).expand(*batch, 4, 5, 2)


def test_image_is_moved_with_its_border_repeated() -> None:
    torch.manual_seed(0)
    entries = TensorDict({"image/front": numbered(500), "state": torch.ones(500, 3)}, batch_size=[500])
    out = shift_images(entries, 2)
    assert out["image/front"].dtype == torch.uint8
    assert torch.equal(out["state"], entries["state"])
    shifted = {
        (down, right): torch.stack(
            (
                (torch.arange(4) + down).clamp(0, 3)[:, None].expand(4, 5),
                (torch.arange(5) + right).clamp(0, 4).expand(4, 5),
            ),
            dim=-1,
        )
        for down in range(-2, 3)
        for right in range(-2, 3)
    }
    found = [[where for where, image in shifted.items() if torch.equal(moved, image)] for moved in out["image/front"]]
    assert all(len(places) == 1 for places in found)
    assert len({places[0] for places in found}) == 25  # each of them, in each direction


def test_frames_of_a_sequence_are_moved_alike_and_cameras_apart() -> None:
    torch.manual_seed(0)
    entries = TensorDict({"image/front": numbered(50, 3), "image/wrist": numbered(50, 3)}, batch_size=[50, 3])
    out = shift_images(entries, 3)
    front, wrist = out["image/front"], out["image/wrist"]
    assert torch.equal(front, front[:, :1].expand_as(front))
    assert not torch.equal(front, wrist)
    assert not torch.equal(front[:1].expand_as(front), front)


def test_defaults_that_learn_little_name_a_recipe() -> None:
    (line,) = BCCfg().notices(1, 1)
    assert "the recipe pick_cube/bc" in line
    assert BCCfg(batch_size=256).notices(1, 1) == []
