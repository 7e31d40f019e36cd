"""Legend: N envs, T rollout steps, K members of a group, L sequence length."""

import copy
import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import GRPO, GRPOCfg
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import MLP, ActorOnly, Policy
from embodichain.agents.rl.trainer.trainer import update_precision
from embodichain.utils import ConfigError
from tests.agents.rl.algo.test_ppo import make_rollout as make_ended_rollout
from tests.agents.rl.fakes import StubPolicy, assert_same


class TablePolicy(StubPolicy):
    """Evaluates every action to the rollout's own log-probability plus a parameter, and keeps what it was asked."""

    def __init__(self, sequence_length: int | None = None) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))
        self.sequence_length = sequence_length
        self.seen: list[TensorDict] = []

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        self.seen.append(td)
        log_prob = td["obs"].squeeze(-1) + self.shift
        value = {"sample_log_prob": log_prob, "entropy": log_prob, "value": torch.zeros_like(log_prob)}
        return TensorDict(value, batch_size=td.batch_size)


def make_policy(**settings: Any) -> ActorOnly:
    torch.manual_seed(0)
    return ActorOnly(2, 1, "cpu", MLP(2, 1, [8]), **settings)


def make_rollout(policy: Policy, N: int = 4, T: int = 5) -> TensorDict:
    """A rollout of the policy in random states with random rewards; odd envs end at step 2."""
    rollout = make_ended_rollout(policy, N, T)
    rollout["done"][::2] = False
    return rollout


def loss_batch(**fields: list[float] | torch.Tensor) -> TensorDict:
    return TensorDict({name: torch.as_tensor(value) for name, value in fields.items()}, batch_size=[3])


def test_loss_by_hand_over_the_valid_samples_only() -> None:
    batch = loss_batch(
        obs=torch.tensor([[1.5], [0.5], [7.0]]).log(),  # the new log-probabilities
        sample_log_prob=torch.zeros(3),
        advantage=[1.0, -1.0, 50.0],
        valid=torch.tensor([True, True, False]),
    )
    loss, metrics = GRPO(GRPOCfg(clip_coef=0.2, ent_coef=0.1), TablePolicy()).loss(batch)
    expected = {
        "policy_loss": -0.2,  # -(min(1.5, 1.2) + min(-0.5, -0.8)) / 2
        "entropy": (math.log(1.5) + math.log(0.5)) / 2,
        "approx_kl": (0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2,
        "clip_fraction": 1.0,
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected)
    assert loss.item() == pytest.approx(-0.2 - 0.1 * expected["entropy"])


def test_unknown_entropy_without_a_weight_is_no_part_of_the_loss() -> None:
    class Unknown(TablePolicy):
        def evaluate_actions(self, td: TensorDict) -> TensorDict:
            out = super().evaluate_actions(td)
            return out.set("entropy", torch.full_like(out["entropy"], math.nan))

    batch = loss_batch(obs=torch.zeros(3, 1), sample_log_prob=torch.zeros(3), advantage=[1.0, -1.0, 2.0])
    batch["valid"] = torch.ones(3, dtype=torch.bool)
    assert GRPO(GRPOCfg(), Unknown()).loss(batch)[0].item() == pytest.approx(-2 / 3)


def test_reference_adds_its_weighted_divergence() -> None:
    algo = GRPO(GRPOCfg(kl_coef=0.5), TablePolicy())
    batch = loss_batch(
        obs=torch.tensor([[2.0], [1.0], [1.0]]).log(),
        sample_log_prob=torch.zeros(3),
        advantage=torch.zeros(3),
        valid=torch.tensor([True, True, False]),
        reference_log_prob=torch.tensor([6.0, 1.0, 9.0]).log(),
    )
    loss, metrics = algo.loss(batch)
    # pi/old = 2, ref/pi = 3: 2 (3 - 1 - log 3), and nothing from the second; the third is masked
    assert metrics["reference_kl"].item() == pytest.approx(2 - math.log(3))
    assert loss.item() == pytest.approx(0.5 * (2 - math.log(3)))


def test_masked_steps_and_groups_without_spread_have_no_gradient() -> None:
    policy = TablePolicy()
    rollout = allocate_rollout(4, 3, 1, 1, "cpu")
    rollout["reward"].copy_(torch.tensor([[1.0, 1, 1, 9]] * 2 + [[0.0, 1, 5, 9], [0, 3, 5, 9]]))
    rollout["done"][2:, 1] = True
    algo = GRPO(GRPOCfg(group_size=2, gamma=0.5, n_epochs=1), policy)
    metrics = algo.update(rollout)
    # The first group did equally well. In the second step 2 is masked, and from step 0 and 1 the members differ.
    assert metrics["valid_fraction"] == pytest.approx(10 / 12)
    assert metrics["informative_fraction"] == pytest.approx(4 / 10)
    (batch,) = policy.seen
    assert batch.batch_size == (10,)
    r = 1 / math.sqrt(2)
    assert sorted(batch["advantage"].tolist()) == pytest.approx([-r, -r, 0, 0, 0, 0, 0, 0, r, r])


def test_sequences_without_a_valid_step_are_dropped() -> None:
    policy = TablePolicy(sequence_length=2)
    rollout = allocate_rollout(2, 6, 1, 1, "cpu")
    rollout["reward"][0] = 1.0
    rollout["done"][:, 2] = True
    GRPO(GRPOCfg(group_size=2, n_epochs=1), policy).update(rollout)
    (batch,) = policy.seen
    # of each env's three pieces: steps 0 and 1; step 2 and the masked 3; the last has none
    assert batch.batch_size == (4, 2)
    assert sorted(batch["valid"].int().tolist()) == [[1, 0], [1, 0], [1, 1], [1, 1]]


def test_first_ratio_is_one_and_every_metric_is_reported() -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    untouched = rollout.clone()
    cfg = GRPOCfg(group_size=2, n_epochs=1, batch_size=20, learning_rate=0.01, kl_coef=0.1)
    metrics = GRPO(cfg, policy).update(rollout)
    assert metrics["approx_kl"] == metrics["reference_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0
    assert metrics["policy_loss"] == pytest.approx(0, abs=1e-6)  # the advantages of a group add up to 0
    assert metrics["learning_rate"] == 0.01
    assert metrics["valid_fraction"] == pytest.approx(16 / 20)  # odd envs: 3 of 5 steps
    assert set(metrics) == {
        "policy_loss",
        "entropy",
        "reference_kl",
        "approx_kl",
        "clip_fraction",
        "grad_norm",
        "valid_fraction",
        "informative_fraction",
        "std",
        "learning_rate",
    }
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    assert (rollout == untouched).all()


def test_older_samples_keep_their_log_probability_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    rollout["lag"] = torch.zeros(4, 6, dtype=torch.int64)
    rollout["lag"][:, 0] = 1
    batches: list[TensorDict] = []
    evaluate = policy.evaluate_actions

    def keep(td: TensorDict) -> TensorDict:
        batches.append(td.clone())
        return evaluate(td)

    monkeypatch.setattr(policy, "evaluate_actions", keep)
    with update_precision("bf16", torch.device("cpu")):
        GRPO(GRPOCfg(group_size=2, n_epochs=1, batch_size=20), policy).update(rollout)
    stored, learned = batches  # of the pass before the first step, and of the one step, in other orders
    is_behind = learned["lag"] > 0
    assert is_behind.sum() == 4
    assert set(learned["sample_log_prob"][is_behind].tolist()) <= set(stored["sample_log_prob"].tolist())
    assert not set(learned["sample_log_prob"][~is_behind].tolist()) & set(stored["sample_log_prob"].tolist())


def test_reference_shares_the_moving_input_statistics() -> None:
    policy = make_policy(normalize_obs=True)
    algo = GRPO(GRPOCfg(kl_coef=0.1, group_size=2, n_epochs=2, batch_size=20, learning_rate=1e-30), policy)
    for iteration in range(4):  # before the first update there are no statistics; then they move by deviations
        metrics = algo.update(make_rollout(policy))
        assert metrics["reference_kl"] == pytest.approx(0, abs=1e-12), iteration
        policy.update_normalizer(torch.randn(100, 2) * 3 + 5 * iteration)
    assert policy.training
    assert all(module.training for module in policy.modules())


def test_saved_reference_does_not_replace_input_statistics() -> None:
    policy = make_policy(normalize_obs=True)
    algo = GRPO(GRPOCfg(kl_coef=0.1, group_size=2), policy)
    policy.update_normalizer(torch.randn(100, 2) + 5)
    before, state = copy.deepcopy(policy.state_dict()), copy.deepcopy(algo.state_dict())
    assert not any(name.startswith("normalizer") for name in state["reference"])
    # as a checkpoint had it when the reference was a copy of everything
    state["reference"] = make_policy(normalize_obs=True).state_dict() | {"log_std": torch.tensor([-1.0])}
    algo.load_state_dict(state)
    assert_same(dict(policy.state_dict()), dict(before))
    assert algo.reference is not None
    assert algo.reference.state_dict()["log_std"] == -1
    assert algo.reference.state_dict()["normalizer.count"] == 100


def test_indivisible_number_of_environments_is_refused() -> None:
    cfg = GRPOCfg(group_size=4, batch_size=1)
    message = "algorithm.cfg.group_size: 10 environments (trainer.num_envs) cannot be divided into groups of 4"
    assert cfg.problems(10) == [message]
    policy = make_policy()
    with pytest.raises(ConfigError) as caught:
        GRPO(cfg, policy).update(make_rollout(policy, N=10))
    assert str(caught.value) == message


def test_nan_reward_after_the_first_done_counts_nothing() -> None:
    policy = make_policy()
    algo = GRPO(GRPOCfg(n_epochs=1, batch_size=20, group_size=2), policy)
    rollout = make_rollout(policy)
    rollout["reward"][1, 4] = float("nan")  # its episode ended at step 2
    assert math.isfinite(algo.update(rollout)["policy_loss"])
    assert algo.take_step_counts() == [(1, 0)]
