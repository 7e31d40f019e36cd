"""Shapes: B batch, H steps of an action chunk, A action size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import VLAPolicy
from embodichain.agents.rl.nan_guard import NonFiniteError
from embodichain.tools.cloning.cloning import Cloning, cloning_loss
from embodichain.tools.cloning.config import BCCfg
from embodichain.tools.cloning.demonstrations import Demonstrations
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace


class Linear(nn.Module):
    """Chunks of two actions, normal around a linear function of the state, with deviation 1."""

    chunk_length = 2
    observation_keys = ("state",)

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 2)
        nn.init.zeros_(self.net.weight)
        nn.init.zeros_(self.net.bias)

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        mean = self.net(obs["state"]).unsqueeze(2)
        return mean, torch.zeros_like(mean), self.get_value(obs)

    def get_value(self, obs: Any) -> Any:
        return torch.zeros(len(obs["state"]))

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        mean, zeros, value = self(obs)
        return -0.5 * (actions - mean).square(), zeros, value


def demonstrations() -> Demonstrations:
    """Two episodes of 2 frames: the action is twice the state."""
    state = torch.tensor([[1.0], [3.0], [-1.0], [-3.0]])
    entries = TensorDict({"state": state}, batch_size=[4])
    return Demonstrations(entries, 2 * state, torch.tensor([2, 1, 2, 1]), 2)


def test_loss_is_the_mean_over_what_is_in_the_episode() -> None:
    policy = VLAPolicy(Linear(), {})
    # frame 0 is followed by actions 2 and 6, frame 1 by 6 alone; the mean is 0: (4 + 36 + 36) / 2 / 3
    loss = cloning_loss(policy, demonstrations(), torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(76 / 6)


def test_beyond_the_end_there_is_no_gradient() -> None:
    policy = VLAPolicy(Linear(), {})
    cloning_loss(policy, demonstrations(), torch.tensor([1, 3])).backward()
    grad = policy.model.net.weight.grad
    # d/dw of ((6 - 3w)^2 + (-6 + 3w)^2) / 2 / 2 at w = 0: -18; the chunk's second action is in no episode
    assert grad.squeeze(1).tolist() == [-18.0, 0.0]


class Longer(Linear):
    """Is shown three actions where it executes two."""

    imitation_length = 3

    def imitation_loss(self, obs: Any, actions: Any) -> Any:
        return torch.full_like(actions, actions.shape[1])


def test_model_that_predicts_more_than_it_executes_is_shown_more() -> None:
    assert cloning_loss(VLAPolicy(Longer(), {}), demonstrations(), torch.tensor([0])) == 3


def test_policy_comes_to_do_what_was_shown() -> None:
    torch.manual_seed(0)
    policy = VLAPolicy(Linear(), {})
    reports: list[tuple[int, float]] = []
    cfg = BCCfg("train_config.json", steps=200, batch_size=8, learning_rate=0.1)
    cloning = Cloning(policy, demonstrations(), cfg)
    cloning.run(lambda *report: reports.append(report))
    # the first action is 2 s; the second, shown after s = 1 and s = -1 alone, is 6 s
    torch.testing.assert_close(policy.model.net.weight, torch.tensor([[2.0], [6.0]]), atol=0.05, rtol=0)
    assert [step for step, _ in reports] == list(range(20, 201, 20))
    assert cloning.loss == reports[-1][1] < 0.01 < reports[0][1]


def test_minibatch_beyond_the_memory_is_refused_before_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embodichain.utils.machine.available_memory", lambda device: 1_000)
    cfg = BCCfg("train_config.json", batch_size=200)
    # a frame is a state and an action, 4 bytes each
    with pytest.raises(ConfigError, match=r"batch_size: the 200 frames of a minibatch take 0\.0 MB of memory at least"):
        Cloning(VLAPolicy(Linear(), {}), demonstrations(), cfg)
    Cloning(VLAPolicy(Linear(), {}), demonstrations(), replace(cfg, batch_size=125))


def test_part_that_is_frozen_in_evaluation_mode_stays_in_it() -> None:
    model = Linear()
    model.backbone = nn.Dropout(0.5).eval()
    policy = VLAPolicy(model, {})
    Cloning(policy, demonstrations(), BCCfg("train_config.json", steps=2, batch_size=2)).run(lambda *report: None)
    assert policy.training
    assert not model.backbone.training


class Bad(Linear):
    """Its loss is not-a-number, or its gradient infinite, in the calls whose numbers, from 1 on, are given."""

    def __init__(self, *calls: int, gradient: bool = False) -> None:
        super().__init__()
        self.calls = calls
        self.gradient = gradient
        self.count = 0

    def imitation_loss(self, obs: Any, actions: Any) -> Any:
        self.count += 1
        loss = -self.evaluate_actions(obs, actions)[0]
        if self.count not in self.calls:
            return loss
        # The root's derivative at 0 is infinite, its value is 0.
        return loss + (0 * loss).sqrt() if self.gradient else loss * float("nan")


@pytest.mark.parametrize("gradient", [False, True])
def test_step_that_is_not_finite_is_skipped_counted_and_told_once(
    gradient: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    policy = VLAPolicy(Bad(2, 3, 5, gradient=gradient), {})
    cloning = Cloning(policy, demonstrations(), BCCfg("train_config.json", steps=10, batch_size=4))
    reports: list[tuple[int, float]] = []
    cloning.run(lambda *report: reports.append(report))
    assert cloning.skipped == 3
    assert all(parameter.isfinite().all() for parameter in policy.parameters())
    # A report a step: of those that were skipped there is nothing to tell.
    assert [step for step, loss in reports if math.isnan(loss)] == [2, 3, 5]
    warnings = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert warnings == [f"[WARNING] step {n}: skipped, since its loss or gradient is not finite" for n in (2, 5)]


def test_training_without_any_step_ends() -> None:
    policy = VLAPolicy(Bad(*range(200)), {})
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    cloning = Cloning(policy, demonstrations(), BCCfg("train_config.json", steps=300, batch_size=2))
    with pytest.raises(NonFiniteError, match="step 100: 100 steps in a row were skipped"):
        cloning.run(lambda *report: None)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_parameters_that_are_not_finite_are_not_saved() -> None:
    policy = VLAPolicy(Linear(), {})
    cloning = Cloning(policy, demonstrations(), BCCfg("train_config.json"))
    with torch.no_grad():
        policy.model.net.weight[0] = float("inf")
    with pytest.raises(NonFiniteError, match="the model's parameters are not finite any more"):
        cloning.state_dict()


class Watching(Linear):
    """Keeps the images that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[torch.Tensor] = []

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        self.shown.append(obs["image/front"].clone())
        return super().evaluate_actions(obs, actions)


@pytest.mark.parametrize("random_shift", [0, 1])
def test_images_are_moved_anew_each_time_that_they_are_shown_and_not_in_the_demonstrations(random_shift: int) -> None:
    torch.manual_seed(0)
    data, image = demonstrations(), torch.zeros(8, 8, 1, dtype=torch.uint8)
    image[4, 4] = 255
    data.entries["image/front"] = image.expand(4, 8, 8, 1).clone()
    policy = VLAPolicy(Watching(), {})
    cfg = BCCfg("train_config.json", steps=20, batch_size=4, random_shift=random_shift)
    Cloning(policy, data, cfg).run(lambda *report: None)
    places = {tuple(place) for place in torch.cat(policy.model.shown).squeeze(-1).nonzero()[:, 1:].tolist()}
    reached = range(4 - random_shift, 5 + random_shift)
    assert places == {(row, column) for row in reached for column in reached}
    assert (data.entries["image/front"] == image).all()
