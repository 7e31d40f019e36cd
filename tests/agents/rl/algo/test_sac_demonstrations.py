"""SAC that learns from demonstrations, too; see ``linear_sac.py``. Legend: B batch."""

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import SAC
from embodichain.agents.rl.buffer import Demonstrations
from embodichain.utils import ConfigError
from tests.agents.rl.algo.linear_sac import SameBatch, make_batch, make_rollout, make_sac, weight_of

EXPERT_OBS = 100.0


def shown(first: float = EXPERT_OBS) -> Demonstrations:
    """Return an episode of 3 steps that ends with the reward 1."""
    fields = {
        "obs": first + torch.arange(4.0)[:, None],
        "action": torch.zeros(4, 1),
        "reward": torch.tensor([0.0, 0.0, 1.0, 0.0]),
        "terminated": torch.tensor([False, False, True, False]),
    }
    return Demonstrations([TensorDict(fields, batch_size=[4]).unsqueeze(0)], 1)


def make(**settings: Any) -> SAC:
    sac = make_sac(demonstrations="expert", **{"batch_size": 8, **settings})
    sac.use_demonstrations(shown())
    return sac


def batches(sac: SAC, monkeypatch: pytest.MonkeyPatch, num_steps: int = 4) -> list[TensorDict]:
    """Return the batches of the gradient steps for a rollout."""
    found: list[TensorDict] = []
    improve = sac._improve_critics

    def keeping(batch: TensorDict) -> dict[str, torch.Tensor]:
        found.append(batch.clone())
        return improve(batch)

    monkeypatch.setattr(sac, "_improve_critics", keeping)
    sac.update(make_rollout(num_steps=num_steps))
    return found


@pytest.mark.parametrize(("share", "size", "count"), [(0.5, 8, 4), (0.25, 8, 2), (0.5, 5, 2)])
def test_share_of_every_batch_is_of_demonstrations(
    share: float, size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = batches(make(demonstration_share=share, batch_size=size), monkeypatch)
    assert len(found) == 4
    for batch in found:
        assert batch.batch_size == (size,)
        is_shown = batch["obs"].squeeze(1) > EXPERT_OBS / 2
        assert is_shown.tolist() == [False] * (size - count) + [True] * count


def test_demonstrations_have_the_same_returns_as_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = TensorDict.cat(batches(make(n_steps=2, batch_size=64), monkeypatch))
    rows = {
        obs: (reward, discount)
        for obs, reward, discount in zip(
            batch["obs"].squeeze(1).tolist(), batch["reward"].tolist(), batch["discount"].tolist(), strict=True
        )
        if obs > EXPERT_OBS / 2
    }
    # gamma 0.5: two steps without a reward; 0 + 0.5 * 1 and the end; 1 and the end.
    assert rows == {100.0: (0.0, 0.25), 101.0: (0.5, 0.0), 102.0: (1.0, 0.0)}


def test_checkpoint_is_loaded_with_the_same_demonstrations_alone() -> None:
    sac, same, other = make(), make(), make_sac(demonstrations="expert", batch_size=8)
    other.use_demonstrations(shown(first=101.0))
    state = sac.state_dict()
    same.load_state_dict(state)
    for wrong in (other, make_sac(demonstrations="expert", batch_size=8)):
        with pytest.raises(ConfigError, match=r"demonstrations: expert: are not the run's"):
            wrong.load_state_dict(state)


@pytest.mark.parametrize(("weight", "imitated"), [(2.0, 1.0), (-2.0, 0.0)])
def test_imitation_by_hand(weight: float, imitated: float) -> None:
    # Critics Q = weight * a: more is better, or worse. The expert's actions are 0.8; the actor's mean is tanh(0.3 s).
    sac = make(critics=((0.0, weight), (0.0, weight)), imitation_coef=0.5)
    shown_batch = TensorDict({"obs": torch.tensor([[0.0], [1.0]]), "action": torch.tensor([[0.8], [0.8]])}, [2])
    found = sac._imitate(sac.policy.encode(shown_batch))
    # ((0.8 - 0)^2 + (0.8 - tanh 0.3)^2) / 2
    expected = imitated * (0.64 + (0.8 - math.tanh(0.3)) ** 2) / 2
    assert found["imitation_loss"].item() == pytest.approx(expected)
    assert found["imitated"].item() == imitated


def test_imitation_measures_actions_scaled_to_their_bounds() -> None:
    sac = make(critics=((0.0, 1.0), (0.0, 1.0)), imitation_coef=0.5, action_space=spaces.Box(0, 10, (1,)))
    # The actor's mean for s = 0 is the bounds' middle, 5; 7.5 is 0.5 of the half range above it.
    sac._demonstrations = None
    replay: Any = SameBatch(make_batch(obs=(0.0,), action=(7.5,)))
    (batch,) = sac._batches(replay, 1)
    assert sac._imitate(batch)["imitation_loss"].item() == pytest.approx(0.25)


def gradient_of(network: nn.Module) -> torch.Tensor:
    gradient = weight_of(network).grad
    assert gradient is not None
    return gradient


def test_imitation_pulls_the_actor_and_no_critic_and_is_logged() -> None:
    def learn(coef: float) -> tuple[SAC, dict[str, float]]:
        torch.manual_seed(0)
        # Lower actions are worth a little more, and the expert's, 0, are lower than the actor's, tanh(0.3 s).
        critics = ((0.0, -1e-6), (0.0, -1e-6))
        sac = make_sac(critics, demonstrations="expert", imitation_coef=coef, batch_size=8, initial_temperature=1e-9)
        sac.use_demonstrations(shown(first=1.0))
        return sac, sac.update(make_rollout())

    plain, metrics = learn(0.0)
    assert not {"imitation_loss", "imitated"} & set(metrics)
    pulled, metrics = learn(1.0)
    assert metrics["imitated"] == 1.0
    gradients = [gradient_of(sac.policy.actor)[0].item() for sac in (plain, pulled)]
    assert abs(gradients[0]) < 1e-5 < 0.01 < gradients[1]  # descended, it lowers the mean
    for one, other in zip(plain.policy.critics, pulled.policy.critics, strict=True):
        assert torch.equal(gradient_of(one), gradient_of(other))
