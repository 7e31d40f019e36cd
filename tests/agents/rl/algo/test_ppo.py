"""Legend: N envs, T rollout steps, B minibatch."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import PPO, PPOCfg, compute_gae, normalize_advantages
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import MLP, ActorCritic, Policy


class FixedPolicy(Policy):
    """Evaluates any two actions to what it was given."""

    def __init__(self, log_prob: torch.Tensor, value: torch.Tensor, entropy: torch.Tensor) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))
        self.out = TensorDict({"sample_log_prob": log_prob, "value": value, "entropy": entropy}, batch_size=[2])

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return self.out


def make_policy() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(2, 1, "cpu", MLP(2, 1, [8]), MLP(2, 1, [8]))


def make_rollout(policy: Policy, N: int = 4, T: int = 5) -> TensorDict:
    """A rollout of the policy in random states, with random rewards; each env's episode ends once."""
    rollout = allocate_rollout(N, T, 2, 1, "cpu")
    rollout["obs"].normal_()
    chosen = policy.get_action(TensorDict({"obs": rollout["obs"]}, batch_size=[N, T + 1]))
    for name in ("action", "sample_log_prob", "value"):
        rollout[name].copy_(chosen[name])
    rollout["reward"].normal_()
    rollout["terminated"][:, 2] = True
    rollout["done"][:, 2] = True
    return rollout


def test_loss_by_hand() -> None:
    policy = FixedPolicy(
        log_prob=torch.tensor([1.5, 0.5]).log(), value=torch.tensor([1.0, 2.0]), entropy=torch.tensor([0.5, 1.5])
    )
    batch = TensorDict(
        {
            "sample_log_prob": torch.zeros(2),
            "advantage": torch.tensor([1.0, -1.0]),
            "return": torch.tensor([0.0, 4.0]),
        },
        batch_size=[2],
    )
    loss, metrics = PPO(PPOCfg(clip_coef=0.2, vf_coef=0.5, ent_coef=0.1), policy).loss(batch)
    expected = {
        "policy_loss": -0.2,  # -(min(1.5, 1.2) + min(-0.5, -0.8)) / 2
        "value_loss": 1.25,  # (1/2 + 4/2) / 2
        "entropy": 1.0,
        "approx_kl": (0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2,
        "clip_fraction": 1.0,
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected)
    assert loss.item() == pytest.approx(-0.2 + 0.5 * 1.25 - 0.1 * 1.0)


def test_first_minibatch_sees_a_ratio_of_one() -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    metrics = PPO(PPOCfg(n_epochs=1, batch_size=20), policy).update(rollout)
    # with r = 1 the policy loss is minus the mean of the normalised advantages
    assert metrics["policy_loss"] == pytest.approx(0, abs=1e-6)
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0
    advantages, _ = compute_gae(rollout, 0.99, 0.95)
    assert normalize_advantages(advantages).mean().item() == pytest.approx(0, abs=1e-6)


def test_update_changes_the_policy_and_reports_every_metric() -> None:
    policy = make_policy()
    before = {name: value.clone() for name, value in policy.named_parameters()}
    rollout = make_rollout(policy)
    untouched = rollout.clone()
    metrics = PPO(PPOCfg(n_epochs=2, batch_size=8, learning_rate=0.01), policy).update(rollout)  # 8 + 8 + 4, twice
    assert set(metrics) == {
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "std",
        "grad_norm",
        "learning_rate",
    }
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    assert metrics["learning_rate"] == 0.01
    assert metrics["approx_kl"] > 0
    assert not any(torch.equal(value, before[name]) for name, value in policy.named_parameters())
    assert (rollout == untouched).all()
    assert sorted(rollout.keys()) == sorted(untouched.keys())


def test_metrics_are_means_over_the_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(n_epochs=2, batch_size=8), policy)
    losses = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])  # 20 rows make 3 minibatches; mean 3.5
    monkeypatch.setattr(algo, "_step", lambda minibatch: {"policy_loss": torch.tensor(next(losses))})
    assert algo.update(make_rollout(policy))["policy_loss"] == 3.5


@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
def test_entropy_bonus_raises_the_std(ent_coef: float) -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    for name in ("reward", "value"):
        rollout[name].zero_()  # no advantages: the bonus alone moves the deviation
    PPO(PPOCfg(n_epochs=1, ent_coef=ent_coef, learning_rate=0.01), policy).update(rollout)
    # Adam's first step is the learning rate, against the gradient's sign
    assert policy.log_std.item() == pytest.approx(0.01 if ent_coef else 0.0, abs=1e-5)


def test_gradient_is_cut_to_the_maximal_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(n_epochs=1, batch_size=20, max_grad_norm=0.01), policy)
    monkeypatch.setattr(algo.optimizer, "step", lambda: None)
    metrics = algo.update(make_rollout(policy))
    assert metrics["grad_norm"] > 0.01  # reported as it was
    norms = torch.stack([p.grad.norm() for p in policy.parameters() if p.grad is not None])
    assert norms.norm().item() == pytest.approx(0.01, rel=1e-3)


def test_same_seed_gives_the_same_parameters() -> None:
    results = []
    for _ in range(2):
        policy = make_policy()
        PPO(PPOCfg(n_epochs=2, batch_size=8), policy).update(make_rollout(policy))
        results.append(policy.state_dict())
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


@pytest.mark.learning
def test_ppo_finds_the_best_action_of_a_one_step_episode() -> None:
    torch.manual_seed(0)
    N, T = 64, 4
    policy = ActorCritic(1, 1, "cpu", MLP(1, 1, [16]), MLP(1, 1, [16]))
    algo = PPO(PPOCfg(n_epochs=4, batch_size=64, learning_rate=0.01), policy)
    rollout = allocate_rollout(N, T, 1, 1, "cpu")
    rollout["obs"].fill_(1.0)
    rollout["terminated"].fill_(True)
    rollout["done"].fill_(True)
    for _ in range(40):
        chosen = policy.get_action(TensorDict({"obs": rollout["obs"]}, batch_size=[N, T + 1]))
        for name in ("action", "sample_log_prob", "value"):
            rollout[name].copy_(chosen[name])
        rollout["reward"].copy_(-(rollout["action"].squeeze(-1) - 0.5).square())
        metrics = algo.update(rollout)
    best = policy.get_action(TensorDict({"obs": torch.ones(1, 1)}, batch_size=[1]), deterministic=True)["action"].item()
    assert best == pytest.approx(0.5, abs=0.05)
    assert metrics["std"] < 0.5  # from 1: exploring costs reward here
