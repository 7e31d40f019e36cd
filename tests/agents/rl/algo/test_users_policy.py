"""Policies whose ``evaluate_actions`` names the log-probability ``log_prob``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import GRPO, PPO, GRPOCfg, PPOCfg
from embodichain.agents.rl.models import MLP, ActorCritic, action_log_prob
from tests.agents.rl.algo.test_ppo import make_rollout
from tests.agents.rl.fakes import assert_same


class Renaming(ActorCritic):
    """Writes into a copy of the batch, which keeps the rollout's ``sample_log_prob``."""

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        evaluated = super().evaluate_actions(td)
        evaluated["log_prob"] = evaluated.pop("sample_log_prob")
        return td.clone().update(evaluated)


def make(policy_class: type[ActorCritic]) -> ActorCritic:
    torch.manual_seed(0)
    return policy_class(2, 1, "cpu", MLP(2, 1, [8]), MLP(2, 1, [8]))


def test_log_prob_is_the_policys_own_where_both_names_are_there() -> None:
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert action_log_prob(TensorDict({"sample_log_prob": one}, batch_size=[1])) is one
    assert action_log_prob(TensorDict({"log_prob": two}, batch_size=[1])) is two
    assert action_log_prob(TensorDict({"sample_log_prob": one, "log_prob": two}, batch_size=[1])) is two


@pytest.mark.e2e
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("lag", [None, 2])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ppo", {}),
        ("ppo", {"lr_schedule": "adaptive"}),
        ("grpo", {"group_size": 2, "kl_coef": 0.5}),
    ],
)
def test_update_is_the_same_under_either_name_to_the_last_bit(
    name: str, settings: dict[str, Any], lag: int | None, precision: str
) -> None:
    def updated(policy_class: type[ActorCritic]) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        policy = make(policy_class)
        rollout = make_rollout(policy)
        rollout["sample_log_prob"] -= 0.1  # as an older policy would have had it
        if lag is not None:
            rollout["lag"] = torch.full(rollout.batch_size, lag)
        shared: dict[str, Any] = {"n_epochs": 2, "batch_size": 8, "learning_rate": 0.01, **settings}
        algorithm = PPO(PPOCfg(**shared), policy) if name == "ppo" else GRPO(GRPOCfg(**shared), policy)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            figures = algorithm.update(rollout)
        return policy.state_dict(), figures

    (ours, figures), (theirs, same) = updated(ActorCritic), updated(Renaming)
    assert_same(ours, theirs)
    assert figures == same
    assert not torch.equal(ours["log_std"], make(ActorCritic).log_std)


def test_batch_is_evaluated_in_pieces_under_either_name() -> None:
    policy = make(Renaming)
    batch = make_rollout(policy)[:, :-1].reshape(-1)
    log_prob = action_log_prob(PPO(PPOCfg(batch_size=7), policy).evaluate(batch))
    torch.testing.assert_close(log_prob, batch["sample_log_prob"])
