"""SAC's targets, losses and gradients by hand, and solutions in closed form; see ``linear_sac.py``.

Legend: N envs, T rollout steps, s state, a action.
"""

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import SoftActorCritic
from embodichain.agents.rl.models.squash import TanhSquash
from embodichain.utils.device import torch_threads
from tests.agents.rl.algo.linear_sac import UNIT, SameBatch, make_batch, make_rollout, make_sac, update, weight_of


def grad(parameter: Tensor) -> list[Any]:
    assert parameter.grad is not None
    values: list[Any] = parameter.grad.tolist()
    return values


# --- targets and the critics ---


@pytest.mark.parametrize(
    ("reduction", "discount", "loss"),
    [
        # Q(s, a) is 0.5 and 2 at s = 1; the targets' Q(s', a') are 1.5 and 6 at s' = 3; r = 2.
        ("min", 0.5, 2.25**2 + 0.75**2),  # y = 2 + 0.5 * 1.5 = 2.75
        ("mean", 0.5, 3.375**2 + 1.875**2),  # y = 2 + 0.5 * 3.75 = 3.875
        ("min", 0.0, 1.5**2),  # terminated: y = 2
    ],
)
def test_critic_loss_by_hand(reduction: Any, discount: float, loss: float) -> None:
    sac = make_sac(critic_reduction=reduction, entropy_in_targets=False)
    metrics = update(sac, make_batch(discount=(discount,)))
    assert metrics["critic_loss"] == pytest.approx(loss)
    assert metrics["action_value"] == pytest.approx((0.5 + 2) / 2)


def test_gradient_of_the_critics_by_hand() -> None:
    sac = make_sac(critics=((0.5, 1.0), (2.0, -1.0)), entropy_in_targets=False)
    update(sac, make_batch(discount=(0.0,)))
    # y = 2; Q = 0.5 + 0.5 = 1 and 2 - 0.5 = 1.5; dL/dw = 2 (Q - y) (s, a), (s, a) = (1, 0.5)
    assert grad(weight_of(sac.policy.critics[0])) == [[-2, -1]]
    assert grad(weight_of(sac.policy.critics[1])) == [[-1, -0.5]]


def test_critic_loss_is_a_mean_over_batch_and_a_sum_over_critics() -> None:
    # Two transitions with y = 2 and y = 4: ((0.5 - 2)^2 + (0.5 - 4)^2) / 2 + ((2 - 2)^2 + (2 - 4)^2) / 2
    batch = make_batch((1.0, 1.0), (0.0, 0.0), (2.0, 4.0), (0.0, 0.0), (0.0, 0.0))
    assert update(make_sac(), batch)["critic_loss"] == pytest.approx((2.25 + 12.25) / 2 + (0 + 4) / 2)


def noise_of_next_action() -> tuple[float, float]:
    """Return the standard normal draws of the next update: of the target's action, and of the actor's."""
    torch.manual_seed(0)
    drawn = torch.randn(1, 1).item(), torch.randn(1, 1).item()
    torch.manual_seed(0)
    return drawn


def squashed(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """Return an action tanh(u), u = mean + std * noise, and its log-density."""
    action = math.tanh(mean + math.exp(log_std) * noise)
    log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - math.log(1 - action**2)
    return action, log_prob


@pytest.mark.parametrize("is_soft", [True, False])
def test_target_has_the_next_actions_value_and_entropy(is_soft: bool) -> None:
    sac = make_sac(critics=((0.5, 2.0),), initial_temperature=0.7, entropy_in_targets=is_soft)
    batch = make_batch()
    rollout = make_rollout()
    noise, _ = noise_of_next_action()
    sac.replay = SameBatch(batch)  # type: ignore[assignment]
    metrics = sac.update(rollout)
    # At s' = 3: mean 0.9, log-std 0.6. Q(s, a) = 0.5 + 2 * 0.5 = 1.5.
    action, log_prob = squashed(0.9, 0.6, noise)
    target = 2 + 0.5 * (0.5 * 3 + 2 * action - is_soft * 0.7 * log_prob)
    assert metrics["critic_loss"] == pytest.approx((1.5 - target) ** 2, rel=1e-4)


@pytest.mark.parametrize("num_critics", [1, 2])
def test_values_of_another_shape_are_refused(num_critics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sac = make_sac(critics=((0.5, 0.0),) * num_critics, batch_size=3)
    monkeypatch.setattr(sac, "_next_value", lambda following: torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"SAC\._next_value: must return \[3\], got \[3, 1\]"):
        update(sac)


def test_bootstrap_is_from_the_target_critics() -> None:
    sac = make_sac(critics=((0.5, 0.0),), entropy_in_targets=False, tau=1e-12)
    weight_of(sac.target_critics[0]).data = torch.tensor([[10.0, 0.0]])
    # y = 2 + 0.5 * 10 * 3 = 17, Q = 0.5
    assert update(sac)["critic_loss"] == pytest.approx(16.5**2)


def test_targets_get_no_gradient_and_the_next_action_gives_none() -> None:
    sac = make_sac(policy_delay=2)  # the actor makes no step
    update(sac)
    assert all(not p.requires_grad and p.grad is None for p in sac.target_critics.parameters())
    assert all(p.grad is None for p in sac.policy.actor.parameters())
    assert sac.temperature.log.grad is None


# --- what is stored ---


def stored_target(terminated: bool = False, truncated: bool = False, **settings: Any) -> float:
    """Return the target of the first of two steps, at observations 1 and 3 with rewards 2 and 4; the last is 7.

    The first may end its episode there, at the final observation 5. Q = w s with w = 1 in the target critics.
    """
    sac = make_sac(critics=((1.0, 0.0),), entropy_in_targets=False, batch_size=512, **settings)
    rollout = make_rollout(num_steps=2)
    rollout["obs"][0, :, 0] = torch.tensor([1.0, 3.0, 7.0])
    rollout["reward"][0, :2] = torch.tensor([2.0, 4.0])
    rollout["terminated"][0, 0], rollout["truncated"][0, 0] = terminated, truncated
    rollout["final"]["obs"][0, 0] = 5.0 * truncated
    seen: list[Tensor] = []

    def recording(batch: TensorDict) -> Tensor:
        seen.append(SAC._target(sac, batch)[batch["obs"].squeeze(1) == 1])
        return torch.zeros(len(batch))

    sac._target = recording  # type: ignore[method-assign]
    sac.update(rollout)
    (target,) = seen[0].unique().tolist()
    return float(target)


@pytest.mark.parametrize(
    ("end", "one_step", "two_steps"),
    [
        ({}, 2 + 0.5 * 3, 2 + 0.5 * 4 + 0.25 * 7),
        ({"terminated": True}, 2, 2),
        ({"truncated": True}, 2 + 0.5 * 5, 2 + 0.5 * 5),  # from its final observation
    ],
)
def test_target_of_stored_steps(end: dict[str, bool], one_step: float, two_steps: float) -> None:
    assert stored_target(**end) == one_step
    assert stored_target(**end, n_steps=2) == two_steps


# --- actor and temperature ---


def actor_by_hand(w_a: float, temperature: float, noise: float) -> list[float]:
    """Return the gradient of alpha log pi(a|s) - Q(s, a) with respect to m and l at s = 1, m = 0.3, l = 0.2.

    With u = m + exp(l) e, a = tanh(u): d log pi/dm = 2 a, d log pi/dl = -1 + 2 a exp(l) e, da/du = 1 - a^2.
    """
    spread = math.exp(0.2) * noise
    a = math.tanh(0.3 + spread)
    of_mean = temperature * 2 * a - w_a * (1 - a**2)
    of_log_std = temperature * (2 * a * spread - 1) - w_a * (1 - a**2) * spread
    return [of_mean, of_log_std]


@pytest.mark.parametrize(
    ("reduction", "w_a"),
    [
        ("min", 3.0),  # Q = 0.5 + 3 a is the lower one for every a: 0.5 + 3 a < 9 + a
        ("mean", 2.0),  # (3 + 1) / 2
    ],
)
def test_gradient_of_actor_and_temperature_by_hand(reduction: Any, w_a: float) -> None:
    sac = make_sac(critics=((0.5, 3.0), (9.0, 1.0)), critic_reduction=reduction, initial_temperature=0.7)
    rollout = make_rollout()
    _, noise = noise_of_next_action()
    sac.replay = SameBatch(make_batch())  # type: ignore[assignment]
    metrics = sac.update(rollout)
    of_mean, of_log_std = actor_by_hand(w_a, 0.7, noise)
    assert weight_of(sac.policy.actor).grad is not None
    torch.testing.assert_close(weight_of(sac.policy.actor).grad, torch.tensor([[of_mean], [of_log_std]]))
    action, log_prob = squashed(0.3, 0.2, noise)
    value = (0.5 + 9) / 2 + 2 * action if reduction == "mean" else 0.5 + 3 * action
    assert metrics["actor_loss"] == pytest.approx(0.7 * log_prob - value, rel=1e-4)
    assert metrics["actor_grad_norm"] == pytest.approx(math.hypot(of_mean, of_log_std), rel=1e-4)
    assert metrics["entropy"] == pytest.approx(-log_prob, rel=1e-4)
    assert metrics["temperature"] == pytest.approx(0.7)
    # The target entropy is -A = -1: d/d log alpha of -log alpha (log pi - 1)
    assert sac.temperature.log.grad is not None
    assert sac.temperature.log.grad.item() == pytest.approx(-(log_prob - 1), rel=1e-4)


@pytest.mark.parametrize("space", [UNIT, spaces.Box(-100, 500, (1,))])
@pytest.mark.parametrize(("setting", "target"), [(None, -1.0), (0.25, 0.25)])
def test_target_entropy_is_that_of_the_action_scaled_to_one(
    space: spaces.Box, setting: float | None, target: float
) -> None:
    sac = make_sac(action_space=space, target_entropy=setting, critics=((0.0, 0.0),))
    rollout, batch = make_rollout(), make_batch(action=(0.0,))
    _, noise = noise_of_next_action()
    sac.replay = SameBatch(batch)  # type: ignore[assignment]
    sac.update(rollout)
    _, log_prob = squashed(0.3, 0.2, noise)
    assert sac.temperature.log.grad is not None
    assert sac.temperature.log.grad.item() == pytest.approx(-(log_prob + target), rel=1e-4)


def test_temperature_holds_the_target_entropy() -> None:
    for target, rises in ((-50.0, False), (50.0, True)):
        sac = make_sac(target_entropy=target, learning_rate=0.1)
        update(sac)
        assert (sac.temperature().item() > 1) is rises


def test_actors_step_gives_critics_no_gradient() -> None:
    with_actor, without = make_sac(critics=((0.5, 1.0),)), make_sac(critics=((0.5, 1.0),), policy_delay=2)
    for sac in (with_actor, without):
        torch.manual_seed(0)
        update(sac)
    assert grad(weight_of(with_actor.policy.critics[0])) == grad(weight_of(without.policy.critics[0]))
    assert all(parameter.requires_grad for parameter in with_actor.policy.critics.parameters())


class Quadratic(nn.Module):
    """Q(s, a) = w . (1, s, a, s^2, s a, a^2)."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        s, a = x.unbind(-1)
        return (torch.stack((torch.ones_like(s), s, a, s * s, s * a, a * a), -1) @ self.w).unsqueeze(-1)


class Affine(nn.Module):
    """Mean m s + b and log-std l: [..., 1] -> [..., 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.m, self.b, self.l = (nn.Parameter(torch.zeros(())) for _ in range(3))

    def forward(self, s: Tensor) -> Tensor:
        return torch.cat((self.m * s + self.b, self.l.expand_as(s)), -1)


def free_sac(init_log_std: float = 0.0, **settings: Any) -> SAC:
    policy = SoftActorCritic(
        1, 1, "cpu", Affine(), [Quadratic(), Quadratic()], TanhSquash(UNIT), False, init_log_std, (-5.0, 2.0)
    )
    default: dict[str, Any] = {"learning_starts": 0, "replay_capacity": 8192, "batch_size": 256, "tau": 0.2}
    return SAC(SACCfg(**default | settings), policy)


def one_step_rollout(s: Tensor, a: Tensor, reward: Tensor, behind: Tensor | None = None) -> TensorDict:
    """Return a rollout [N, 2] of episodes that terminate after a step or, with ``behind``, are truncated there."""
    rollout = allocate_rollout(len(s), 1, 1, 1, "cpu", extra_fields=(("raw_action", 1),), has_final=True)
    rollout["obs"][:, 0, 0], rollout["action"][:, 0, 0], rollout["reward"][:, 0] = s, a, reward
    rollout["terminated"][:, 0], rollout["truncated"][:, 0] = behind is None, behind is not None
    if behind is not None:
        rollout["final"]["obs"][:, 0, 0] = behind
    return rollout


@pytest.fixture(autouse=True)
def _reproducible() -> Any:
    torch.manual_seed(0)
    with torch_threads(1):
        yield


@pytest.mark.e2e
def test_bandit_has_the_soft_optimal_policy_and_temperature() -> None:
    # r = -4 (a - 0.2)^2. The soft-optimal density exp(r / alpha) is normal with mean 0.2 and variance alpha / 8, of
    # entropy log(2 pi e alpha / 8) / 2. For an entropy of -1: alpha = 8 exp(-2) / (2 pi e) = 0.0634, std 0.089.
    sac = free_sac(target_entropy=-1.0, learning_rate=0.04, updates_per_step=0.1)
    s = torch.zeros(512)
    for _ in range(8):
        a = torch.rand(512) * 2 - 1
        metrics = sac.update(one_step_rollout(s, a, -4 * (a - 0.2).square()))
    actor = sac.policy.actor
    assert isinstance(actor, Affine)
    assert math.tanh(actor.b.item()) == pytest.approx(0.2, abs=0.02)
    assert metrics["entropy"] == pytest.approx(-1.0, abs=0.1)
    assert metrics["temperature"] == pytest.approx(8 * math.exp(-2) / (2 * math.pi * math.e), rel=0.2)
    # tanh narrows the std by the slope 1 - 0.2^2.
    assert (1 - 0.2**2) * math.exp(actor.l.item()) == pytest.approx(0.089, rel=0.15)


@pytest.mark.e2e
def test_linear_quadratic_regulator_has_riccatis_values_and_gain() -> None:
    # s' = s + a / 2, r = -(s^2 + a^2), gamma 0.8. V = -P s^2 with P = 1 + 0.8 P - (0.4 P)^2 / (1 + 0.2 P).
    gamma, p = 0.8, 1.0
    for _ in range(200):
        p = 1 + gamma * p - (gamma * p / 2) ** 2 / (1 + gamma * p / 4)
    gain = (gamma * p / 2) / (1 + gamma * p / 4)
    # Q(s, a) = -(s^2 + a^2) - gamma P (s + a / 2)^2, and a constant of the noise.
    expected = torch.tensor([-1 - gamma * p, -gamma * p, -1 - gamma * p / 4])
    sac = free_sac(-3.0, target_entropy=-3.0, initial_temperature=1e-3, learning_rate=0.04, gamma=gamma)
    sac.cfg.updates_per_step = 0.1
    for _ in range(9):
        s, a = torch.rand(2, 512) - 0.5
        # Every episode is cut off after a step: only the final observation tells where it led.
        sac.update(one_step_rollout(s, a, -(s.square() + a.square()), behind=s + a / 2))
    for critic in sac.policy.critics:
        assert isinstance(critic, Quadratic)
        torch.testing.assert_close(critic.w[3:].detach(), expected, rtol=0.05, atol=0.0)
    actor = sac.policy.actor
    assert isinstance(actor, Affine)
    assert actor.m.item() == pytest.approx(-gain, rel=0.1)
    assert actor.b.item() == pytest.approx(0.0, abs=0.02)
