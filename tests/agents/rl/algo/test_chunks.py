"""Chunks of actions in the algorithms. Legend: N envs, T decisions, H actions of a chunk, A' log-probs of an action."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import GRPO, PPO, GRPOCfg, PPOCfg, compute_gae
from embodichain.agents.rl.algo.advantages import discounted_returns
from embodichain.agents.rl.algo.chunks import LogProbLevel, at_level, chunk_rewards, count_rows
from embodichain.agents.rl.algo.on_policy import compare
from embodichain.agents.rl.models import ActorCritic
from tests.agents.rl.algo.test_ppo import FixedPolicy
from tests.agents.rl.fakes import linear_policy

LEVELS: tuple[LogProbLevel, ...] = ("token", "action", "chunk")


def flags(rows: Any) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def rollout_of(
    reward: Any, executed: Any, value: Any, terminated: Any, truncated: Any, final_value: Any = None
) -> TensorDict:
    """One environment: rows of decisions, whose padding slot is appended here; ``value`` has it already."""
    terminated, truncated = flags([[*terminated, 0]]), flags([[*truncated, 0]])
    slots = terminated.shape[1]
    fields = {
        "reward": torch.tensor([[*reward, [0.0] * len(reward[0])]]),
        "executed": flags([[*executed, [0] * len(executed[0])]]),
        "value": torch.tensor([value]),
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
        "final_value": torch.tensor([[*(final_value or [0.0] * (slots - 1)), 0.0]]),
    }
    return TensorDict(fields, batch_size=[1, slots])


def test_decision_earns_and_discounts_by_its_executed_steps() -> None:
    rollout = rollout_of([[1.0, 2, 4], [1, 2, 9]], [[1, 1, 1], [1, 1, 0]], [0.0, 0, 0], [0, 1], [0, 0])
    earned, discount = chunk_rewards(rollout, 0.5)
    # 1 + 0.5 * 2 + 0.25 * 4 = 3; 1 + 0.5 * 2 = 2, since the third step was not made
    assert earned.tolist() == [[3, 2]]
    assert isinstance(discount, torch.Tensor)
    assert discount.tolist() == [[0.125, 0.25]]


def test_gae_of_chunks_by_hand() -> None:
    # gamma = lambda = 0.5, H = 2, nothing ends
    rollout = rollout_of([[1.0, 2], [4, 8]], [[1, 1], [1, 1]], [1.0, 2, 4], [0, 0], [0, 0])
    advantages, returns = compute_gae(rollout, 0.5, 0.5)
    # R = 1 + 0.5 * 2 = 2 and 4 + 0.5 * 8 = 8; both discount by 0.25
    # delta_1 = 8 + 0.25 * 4 - 2 = 7; delta_0 = 2 + 0.25 * 2 - 1 = 1.5
    # A_1 = 7; A_0 = 1.5 + 0.25 * 0.5 * 7 = 2.375
    assert advantages.tolist() == [[2.375, 7]]
    assert returns.tolist() == [[3.375, 9]]


@pytest.mark.parametrize("is_truncated", [False, True])
def test_gae_across_an_episode_that_ends_within_a_chunk(is_truncated: bool) -> None:
    # The first chunk is left after 1 of 3 steps; the second one is of a new episode.
    ends = [1, 0]
    rollout = rollout_of(
        [[1.0, 9, 9], [1, 1, 2]],
        [[1, 0, 0], [1, 1, 1]],
        [3.0, 5, 8],
        [0, 0] if is_truncated else ends,
        ends if is_truncated else [0, 0],
        final_value=[6.0, 0],
    )
    advantages, _ = compute_gae(rollout, 0.5, 0.5)
    # second: 1 + 0.5 + 0.25 * 2 = 2; delta = 2 + 0.125 * 8 - 5 = -2
    # first: terminated 1 - 3 = -2; truncated after 1 step 1 + 0.5 * 6 - 3 = 1; the second's advantage does not reach it
    assert advantages.tolist() == [[1 if is_truncated else -2, -2]]


def test_returns_of_chunks_discount_by_the_steps_made() -> None:
    reward, done = torch.tensor([[1.0, 2.0, 4.0]]), flags([[0, 1, 0]])
    discount = torch.tensor([[0.25, 0.5, 0.25]])
    # 4; 2 (cut there); 1 + 0.25 * 2
    assert discounted_returns(reward, done, discount).tolist() == [[1.5, 2, 4]]


def test_log_probabilities_at_each_level_by_hand() -> None:
    log_prob = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])  # [1, H = 3, A' = 2]
    executed = flags([[1, 1, 0]])
    assert at_level(log_prob, executed, "token").tolist() == [[[1, 2], [3, 4], [0, 0]]]
    assert at_level(log_prob, executed, "action").tolist() == [[3, 7, 0]]
    assert at_level(log_prob, executed, "chunk").tolist() == [10]


def batch_by_hand() -> tuple[FixedPolicy, TensorDict]:
    """Two decisions of H = 2 actions of A' = 2 components; the second's last action was not executed."""
    ratios = torch.tensor([[[2.0, 0.5], [1.0, 1.1]], [[0.5, 0.5], [77.0, 77.0]]])
    policy = FixedPolicy(log_prob=ratios.log(), value=torch.zeros(2), entropy=torch.ones(2, 2, 2))
    batch = TensorDict(
        {
            "sample_log_prob": torch.zeros(2, 2, 2),
            "executed": flags([[1, 1], [1, 0]]),
            "advantage": torch.tensor([1.0, -1.0]),
            "return": torch.zeros(2),
        },
        batch_size=[2],
    )
    return policy, batch


@pytest.mark.parametrize(
    ("level", "mask", "count"),
    [
        ("token", [[[1, 1], [1, 1]], [[1, 1], [0, 0]]], 6),
        ("action", [[1, 1], [1, 0]], 3),
        ("chunk", [1, 1], 2),
    ],
)
def test_rows_count_where_something_was_executed(level: LogProbLevel, mask: Any, count: int) -> None:
    policy, batch = batch_by_hand()
    rows = compare(batch, policy.out, level)
    assert rows.mask is not None
    assert rows.mask.int().tolist() == mask
    assert rows.log_prob.shape == rows.old_log_prob.shape == rows.mask.shape
    assert torch.equal(rows.advantage.flatten(), batch["advantage"])
    batch["valid"] = flags([1, 1])
    assert count_rows(batch, level) == count
    batch["valid"] = flags([1, 0])  # the second decision does not count, in any way
    rows = compare(batch, policy.out, level)
    assert rows.mask is not None
    assert count_rows(batch, level) == rows.mask.sum()
    assert not rows.mask[1].any()


@pytest.mark.parametrize(
    ("level", "objectives"),
    [
        # clip 0.2: of A = 1 min(r, clip r): 1.2, 0.5, 1, 1.1; of A = -1: min(-0.5, -0.8) twice
        ("token", [1.2, 0.5, 1.0, 1.1, -0.8, -0.8]),
        # ratios 2 * 0.5 = 1, 1.1; 0.25 -> -0.8
        ("action", [1.0, 1.1, -0.8]),
        # 1.1; 0.25 -> -0.8
        ("chunk", [1.1, -0.8]),
    ],
)
def test_ppo_loss_at_each_level_by_hand(level: LogProbLevel, objectives: list[float]) -> None:
    policy, batch = batch_by_hand()
    loss, metrics = PPO(PPOCfg(clip_coef=0.2, logprob_level=level), policy).loss(batch)
    assert loss.item() == pytest.approx(-sum(objectives) / len(objectives))
    # 1 nat a component, 2 components an action, whatever the level
    assert metrics["entropy"].item() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("level", "objectives"),
    [("token", [1.2, 0.5, 1.0, 1.1]), ("action", [1.0, 1.1]), ("chunk", [1.1])],
)
def test_grpo_loss_counts_what_is_valid_and_executed(level: LogProbLevel, objectives: list[float]) -> None:
    policy, batch = batch_by_hand()
    batch["valid"] = flags([1, 0])
    grpo = GRPO(GRPOCfg(clip_coef=0.2, group_size=2, logprob_level=level), policy)
    loss, metrics = grpo.loss(batch)
    assert loss.item() == pytest.approx(-sum(objectives) / len(objectives))
    assert metrics["entropy"].item() == pytest.approx(2.0)


@pytest.mark.parametrize("level", LEVELS)
def test_divergences_are_per_action_at_every_level(level: LogProbLevel) -> None:
    policy, batch = batch_by_hand()
    # of one component, and moved from the mean by 1 and 3 at deviation 1: 1 / 2 and 9 / 2 nats; 99 was not executed
    policy.out["mean"] = torch.tensor([[[1.0], [3.0]], [[1.0], [99.0]]])
    policy.out["log_std"] = torch.zeros(2, 2, 1)
    batch["old"] = TensorDict({"mean": torch.zeros(2, 2, 1), "log_std": torch.zeros(2, 2, 1)}, batch_size=2)
    ppo = PPO(PPOCfg(logprob_level=level, lr_schedule="adaptive"), policy)
    _, metrics = ppo.loss(batch)
    assert metrics["kl"].item() == pytest.approx((0.5 + 4.5 + 0.5) / 3)
    # ratios of the actions that were executed: 2 * 0.5 = 1, 1.1, and 0.5 * 0.5 = 0.25; k3 = r - 1 - log r
    k3s = [0.0, 0.1 - math.log(1.1), -0.75 - math.log(0.25)]
    assert metrics["approx_kl"].item() == pytest.approx(sum(k3s) / 3)
    batch["valid"] = flags([1, 0])
    _, metrics = GRPO(GRPOCfg(group_size=2, logprob_level=level), policy).loss(batch)
    assert metrics["approx_kl"].item() == pytest.approx(sum(k3s[:2]) / 2)


def chunk_rollout(policy: ActorCritic, num_envs: int = 4, num_decisions: int = 5) -> TensorDict:
    """A rollout of H = 3 with episodes that end within chunks."""
    torch.manual_seed(1)
    rollout = TensorDict({"obs": torch.randn(num_envs, num_decisions + 1, 2)}, batch_size=[num_envs, num_decisions + 1])
    policy.get_action(rollout)
    made = torch.randint(1, 4, (num_envs, num_decisions + 1))
    rollout["executed"] = torch.arange(3) < made.unsqueeze(-1)
    rollout["done"] = rollout["terminated"] = made < 3
    rollout["truncated"] = torch.zeros_like(rollout["done"])
    rollout["reward"] = torch.randn(num_envs, num_decisions + 1, 3) * rollout["executed"]
    return rollout


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["ppo", "grpo"])
def test_actions_that_were_not_executed_contribute_no_gradient(name: str, level: LogProbLevel) -> None:
    def updated(garbage: float) -> dict[str, torch.Tensor]:
        policy = linear_policy(chunk_length=3)
        rollout = chunk_rollout(policy)
        masked = ~rollout["executed"].unsqueeze(-1)
        rollout["action"] = torch.where(masked, garbage, rollout["action"])
        rollout["sample_log_prob"] = torch.where(masked, 3 * garbage, rollout["sample_log_prob"])
        rollout["lag"] = torch.ones(rollout.batch_size, dtype=torch.int64)
        shared: dict[str, Any] = {"batch_size": 7, "n_epochs": 2, "ent_coef": 0.01, "logprob_level": level}
        torch.manual_seed(2)
        if name == "ppo":
            PPO(PPOCfg(lr_schedule="adaptive", **shared), policy).update(rollout)
        else:
            settings: dict[str, Any] = {"group_size": 2, "truncate_at_first_done": False, "kl_coef": 0.1}
            GRPO(GRPOCfg(**settings, **shared), policy).update(rollout)
        return policy.state_dict()

    one, two, before = updated(0.0), updated(50.0), linear_policy(chunk_length=3).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["actor.weight"], before["actor.weight"])


@pytest.mark.parametrize("level", LEVELS)
def test_first_ratio_of_an_update_is_one(level: LogProbLevel) -> None:
    policy = linear_policy(chunk_length=3)
    cfg = PPOCfg(batch_size=100, n_epochs=1, logprob_level=level)
    metrics = PPO(cfg, policy).update(chunk_rollout(policy))
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-7)
    assert metrics["clip_fraction"] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_older_samples_are_weighted_at_the_ratios_level(level: LogProbLevel) -> None:
    policy = linear_policy(chunk_length=3)
    rollout = chunk_rollout(policy)
    executed = rollout["executed"][:, :-1]
    # the behaviour's probability of each component was half of what it is now
    rollout["sample_log_prob"] -= torch.tensor(2.0).log()
    rollout["lag"] = torch.ones(rollout.batch_size, dtype=torch.int64)
    cfg = PPOCfg(batch_size=100, n_epochs=1, logprob_level=level, behaviour_weight_cap=100.0)
    weight = PPO(cfg, policy).update(rollout)["behaviour_weight"]
    # one component an action: 2 for each of them, or 2^k for a chunk of k
    expected = (2.0 ** executed.sum(-1)).mean().item() if level == "chunk" else 2.0
    assert weight == pytest.approx(expected, rel=1e-5)


@pytest.mark.e2e
@pytest.mark.learning
@pytest.mark.parametrize(("name", "level"), [("ppo", "token"), ("ppo", "action"), ("ppo", "chunk"), ("grpo", "action")])
def test_best_chunk_is_found(name: str, level: LogProbLevel) -> None:
    torch.manual_seed(0)
    policy = linear_policy(chunk_length=3)
    shared: dict[str, Any] = {"n_epochs": 4, "batch_size": 64, "learning_rate": 0.02, "logprob_level": level}
    ppo, grpo = (
        PPO(PPOCfg(**shared), policy),
        GRPO(GRPOCfg(group_size=8, truncate_at_first_done=False, **shared), policy),
    )
    algorithm = ppo if name == "ppo" else grpo
    for _ in range(40):
        rollout = TensorDict({"obs": torch.ones(64, 3, 2)}, batch_size=[64, 3])
        policy.get_action(rollout)
        rollout["executed"] = flags([1, 1, 0]).expand(64, 3, 3).clone()
        rollout["done"] = rollout["terminated"] = torch.ones(64, 3, dtype=torch.bool)
        rollout["truncated"] = torch.zeros(64, 3, dtype=torch.bool)
        error = rollout["action"].squeeze(-1) - torch.tensor([0.5, -0.5, 9.0])
        rollout["reward"] = -error.square() * rollout["executed"]
        algorithm.update(rollout)
    best = policy.get_action(TensorDict({"obs": torch.ones(1, 2)}, batch_size=[1]), deterministic=True)["action"]
    torch.testing.assert_close(best[0, :2, 0], torch.tensor([0.5, -0.5]), atol=0.15, rtol=0)
    assert best[0, 2, 0] < 3.0  # nobody asked for it
