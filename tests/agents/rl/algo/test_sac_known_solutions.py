"""SAC finds solutions that are known in closed form. Legend: N envs, T rollout steps, s state, a action."""

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

UNIT = spaces.Box(-1, 1, (1,))


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


def make_sac(init_log_std: float = 0.0, **settings: Any) -> SAC:
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
    sac = make_sac(target_entropy=-1.0, learning_rate=0.04, updates_per_step=0.1)
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
    sac = make_sac(-3.0, target_entropy=-3.0, initial_temperature=1e-3, learning_rate=0.04, gamma=gamma)
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
