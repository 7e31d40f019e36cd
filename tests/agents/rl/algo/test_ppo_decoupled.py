"""PPO on what older policies collected. Legend: N envs, T rollout steps, B minibatch."""

import copy
import math

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import PPO, PPOCfg
from embodichain.agents.rl.models import ActorCritic
from embodichain.agents.rl.trainer.trainer import update_precision
from tests.agents.rl.algo.test_ppo import FixedPolicy, make_policy, make_rollout


def test_decoupled_loss_by_hand() -> None:
    policy = FixedPolicy(
        log_prob=torch.tensor([0.6, 0.1]).log(), value=torch.tensor([0.0, 0.0]), entropy=torch.tensor([0.0, 0.0])
    )
    batch = TensorDict(
        {
            "sample_log_prob": torch.tensor([0.4, 0.2]).log(),  # the proximal policy's
            "importance_weight": torch.tensor([2.0, 0.5]),
            "advantage": torch.tensor([1.0, -1.0]),
            "return": torch.tensor([0.0, 0.0]),
        },
        batch_size=[2],
    )
    loss, metrics = PPO(PPOCfg(clip_coef=0.2, behaviour_weight_cap=2.0), policy).loss(batch)
    # ratios to the proximal policy: 1.5 and 0.5; clipped objectives: min(1.5, 1.2) = 1.2 and min(-0.5, -0.8) = -0.8;
    # weighted: 2.4 and -0.4; the loss is the mean's negative
    assert loss.item() == pytest.approx(-(2.4 - 0.4) / 2)
    assert metrics["behaviour_weight"].item() == pytest.approx(1.25)
    assert metrics["capped_fraction"].item() == 0.5
    assert metrics["approx_kl"].item() == pytest.approx((0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2)


def lagging(rollout: TensorDict, lag: int) -> TensorDict:
    out = rollout.clone()
    out["lag"] = torch.full(rollout.batch_size, lag)
    return out


def one_step_behind() -> tuple[TensorDict, ActorCritic]:
    """Return a rollout of which each environment's first step is an older policy's, and the policy of today."""
    old = make_policy()
    rollout = lagging(make_rollout(old), 0)
    rollout["lag"][:, 0] = 1
    new = copy.deepcopy(old)
    with torch.no_grad():
        new.log_std.add_(0.3)
    return rollout, new


def update(rollout: TensorDict, decoupled: bool = True) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    policy = make_policy()
    torch.manual_seed(3)
    metrics = PPO(PPOCfg(batch_size=8, n_epochs=2, learning_rate=0.01, decoupled=decoupled), policy).update(rollout)
    return policy.state_dict(), metrics


def test_without_lag_the_update_is_plain_ppo_bit_for_bit() -> None:
    rollout = make_rollout(make_policy())
    (plain, before), (decoupled, after) = update(rollout), update(lagging(rollout, 0))
    assert before == after
    assert all(torch.equal(plain[name], decoupled[name]) for name in plain)


def test_current_steps_keep_their_log_probability_and_weigh_one() -> None:
    rollout, new = one_step_behind()
    batch, _ = PPO(PPOCfg(batch_size=8), new)._prepare(rollout)
    is_behind = batch["lag"] > 0
    stored = rollout["sample_log_prob"][:, :-1].reshape(-1)
    assert torch.equal(batch["sample_log_prob"][~is_behind], stored[~is_behind])
    assert torch.equal(batch["importance_weight"][~is_behind], torch.ones(16))
    now = new.evaluate_actions(batch)["sample_log_prob"]
    torch.testing.assert_close(batch["sample_log_prob"][is_behind], now[is_behind])
    expected = (now - stored).exp().clamp(max=5.0)
    torch.testing.assert_close(batch["importance_weight"][is_behind], expected[is_behind])


@pytest.mark.parametrize("decoupled", [True, False])
def test_rounding_to_bfloat16_is_no_age(decoupled: bool) -> None:
    rollout, new = one_step_behind()
    ppo = PPO(PPOCfg(batch_size=8, decoupled=decoupled), new)
    batch, _ = ppo._prepare(rollout)
    with update_precision("bf16", torch.device("cpu")):
        rounded, _ = ppo._prepare(rollout)
        now = new.evaluate_actions(rounded)["sample_log_prob"]
    is_behind = batch["lag"] > 0
    assert not torch.equal(now, new.evaluate_actions(batch)["sample_log_prob"])
    assert torch.equal(rounded["sample_log_prob"][~is_behind], now[~is_behind])
    if decoupled:  # the ratio is that to the policy before the update, and the weight as without rounding
        assert torch.equal(rounded["sample_log_prob"][is_behind], now[is_behind])
        assert torch.equal(rounded["importance_weight"], batch["importance_weight"])
    else:  # the ratio is that to the older policy, whose parameters are gone
        assert torch.equal(rounded["sample_log_prob"][is_behind], batch["sample_log_prob"][is_behind])


def test_correction_can_be_switched_off() -> None:
    old = make_policy()
    with torch.no_grad():
        old.log_std.sub_(0.5)
    rollout = make_rollout(old)
    (plain, _), (off, metrics) = update(rollout), update(lagging(rollout, 2), decoupled=False)
    assert all(torch.equal(plain[name], off[name]) for name in plain)
    assert "behaviour_weight" not in metrics
    on, metrics = update(lagging(rollout, 2))
    assert not torch.equal(on["log_std"], off["log_std"])
    assert metrics["behaviour_weight"] > 0


def test_first_gradient_is_that_of_importance_sampling() -> None:
    old = make_policy()
    rollout = lagging(make_rollout(old), 1)
    new = copy.deepcopy(old)
    with torch.no_grad():
        new.log_std.add_(0.1)
    ppo = PPO(PPOCfg(batch_size=100, vf_coef=0.0, behaviour_weight_cap=100.0), new)
    batch, _ = ppo._prepare(rollout)
    ppo.loss(batch)[0].backward()
    (gradient,) = [p.grad.clone() for p in [new.log_std] if p.grad is not None]
    # at the proximal policy r = 1 and dr = dlog pi, so that the gradient is that of - mean (pi / pi_behav) A
    new.zero_grad()
    ratio = (new.evaluate_actions(batch)["sample_log_prob"] - rollout["sample_log_prob"][:, :-1].reshape(-1)).exp()
    (-(ratio * batch["advantage"]).mean()).backward()
    assert new.log_std.grad is not None
    torch.testing.assert_close(gradient, new.log_std.grad)
