"""Legend: N envs, T rollout steps, B minibatch, L sequence length."""

import copy
import math
from typing import Literal

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import PPO, PPOCfg, compute_gae
from embodichain.agents.rl.algo.symmetry import SymmetryCfg
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import MLP, ActorCritic, ActorCriticRecurrent, Policy
from embodichain.agents.rl.trainer.trainer import update_precision
from embodichain.utils.observations import Mirror, MirrorMap
from tests.agents.rl.fakes import ScriptedEnv, StubPolicy, assert_same


class FixedPolicy(StubPolicy):
    """Evaluates any two actions to what it was given."""

    def __init__(self, log_prob: torch.Tensor, value: torch.Tensor, entropy: torch.Tensor) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))
        self.out = TensorDict({"sample_log_prob": log_prob, "value": value, "entropy": entropy}, batch_size=[2])

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


@pytest.mark.parametrize(("factor", "offset"), [(1e3, 0.0), (1e-4, 0.0), (1.0, -1e3)])
def test_normalised_returns_make_rewards_units_irrelevant(factor: float, offset: float) -> None:
    learned = []
    for a, b in ((1.0, 0.0), (factor, offset)):
        policy = make_policy()
        algo = PPO(PPOCfg(normalize_returns=True, learning_rate=0.01), policy)
        rollout = make_rollout(policy)
        if offset:  # where an episode may end, a bonus for each step is another task
            rollout["terminated"].zero_()
        rollout["reward"].mul_(a).add_(b)
        metrics = algo.update(rollout)
        learned.append((metrics["value_loss"], *policy.state_dict().values()))
    for ours, theirs in zip(*learned, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=2e-3)


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


@pytest.mark.parametrize("std", [0.14, 0.007])
def test_first_ratio_is_one_in_bfloat16(std: float) -> None:
    torch.manual_seed(0)
    policy = ActorCritic(
        2, 1, "cpu", MLP(2, 1, [64, 64]), MLP(2, 1, [64, 64]), normalize_obs=True, init_log_std=math.log(std)
    )
    rollout = make_rollout(policy, N=8, T=16)  # collected in float32
    untouched = rollout.clone()
    cfg = PPOCfg(n_epochs=1, batch_size=50, learning_rate=1e-30, clip_value_coef=0.2)
    with update_precision("bf16", torch.device("cpu")):
        metrics = PPO(cfg, policy).update(rollout)
    assert (metrics["approx_kl"], metrics["clip_fraction"]) == (0, 0)
    assert (rollout == untouched).all()


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
        "epochs",
    }
    assert metrics["epochs"] == 2
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    assert metrics["learning_rate"] == 0.01
    assert metrics["approx_kl"] > 0
    assert not any(torch.equal(value, before[name]) for name, value in policy.named_parameters())
    assert (rollout == untouched).all()
    assert sorted(rollout.keys()) == sorted(untouched.keys())


@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
def test_entropy_bonus_raises_the_std(ent_coef: float) -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    for name in ("reward", "value"):
        rollout[name].zero_()  # no advantages: the bonus alone moves the std
    PPO(PPOCfg(n_epochs=1, ent_coef=ent_coef, learning_rate=0.01), policy).update(rollout)
    # Adam's first step is the learning rate, against the gradient's sign
    assert policy.log_std.item() == pytest.approx(0.01 if ent_coef else 0.0, abs=1e-5)


# --- what is off by default ---


def two_samples(**fields: list[float]) -> tuple[FixedPolicy, TensorDict]:
    """Advantages 3 and 1, both ratios 1; new values 2 and 0 for returns 3 and 3."""
    policy = FixedPolicy(torch.zeros(2), torch.tensor([2.0, 0.0]), torch.zeros(2))
    columns = {"sample_log_prob": [0.0, 0.0], "advantage": [3.0, 1.0], "return": [3.0, 3.0], **fields}
    return policy, TensorDict({name: torch.tensor(x) for name, x in columns.items()}, batch_size=[2])


def test_value_loss_is_clipped_around_the_old_value() -> None:
    policy, batch = two_samples(old_value=[1.0, 1.0])
    _, metrics = PPO(PPOCfg(clip_value_coef=0.5), policy).loss(batch)
    assert metrics["value_loss"].item() == pytest.approx((1.5**2 + 3**2) / 4)  # (1.5 - 3)^2 and (0 - 3)^2, halved


@pytest.mark.parametrize(
    ("over", "policy_loss", "first"),
    # a pair's std is half of its distance; the policy loss of ratios of 1 is minus the mean advantage
    [("none", -2.0, 3.0), ("rollout", -2.0, 3.0), ("minibatch", 0.0, 1.0)],
)
def test_advantages_of_a_minibatch_are_normalised_if_asked(over: str, policy_loss: float, first: float) -> None:
    policy, batch = two_samples()
    policy.out["sample_log_prob"].requires_grad_()
    metrics = PPO(PPOCfg(normalize_advantages=over), policy)._step(batch, adapts=False)  # type: ignore[arg-type]
    assert metrics["policy_loss"].item() == pytest.approx(policy_loss)
    gradient = policy.out["sample_log_prob"].grad
    assert gradient is not None
    assert gradient[0].item() == pytest.approx(-first / 2)


@pytest.mark.parametrize(("over", "mean"), [("none", None), ("minibatch", None), ("rollout", 0.0)])
def test_advantages_of_a_rollout_are_normalised_where_asked(over: str, mean: float | None) -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    batch, _ = PPO(PPOCfg(normalize_advantages=over), policy)._prepare(rollout)  # type: ignore[arg-type]
    raw = compute_gae(rollout, 0.99, 0.95)[0].mean().item()
    assert batch["advantage"].mean().item() == pytest.approx(raw if mean is None else mean, abs=1e-6)


def test_linear_learning_rate_falls_to_nothing() -> None:
    policy = make_policy()
    rollout = make_rollout(policy)
    algo = PPO(PPOCfg(lr_schedule="linear", learning_rate=0.01, n_epochs=1), policy)
    rates = []
    for done in range(4):
        algo.progress = done / 4
        rates.append(algo.update(rollout)["learning_rate"])
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


@pytest.mark.parametrize(("max_kl", "epochs"), [(None, 5), (1e3, 5), (1e-9, 2)])
def test_update_ends_with_the_first_epoch_beyond_max_kl(max_kl: float | None, epochs: int) -> None:
    # One minibatch an epoch: in the first nothing has changed yet, so that its divergence is 0.
    policy = make_policy()
    cfg = PPOCfg(max_kl=max_kl, n_epochs=5, batch_size=20, learning_rate=0.01)
    assert PPO(cfg, policy).update(make_rollout(policy))["epochs"] == epochs


def adaptive(desired_kl: float, policy: ActorCritic, **settings: float) -> PPO:
    cfg = PPOCfg(lr_schedule="adaptive", desired_kl=desired_kl, batch_size=20, **settings)  # type: ignore[arg-type]
    return PPO(cfg, policy)


def test_learning_rate_adapts_before_every_step_but_the_first() -> None:
    policy = make_policy()
    # A divergence that cannot be reached: two of three steps raise the rate.
    metrics = adaptive(1e3, policy, n_epochs=3, learning_rate=1e-3).update(make_rollout(policy))
    assert metrics["learning_rate"] == pytest.approx(1e-3 * 1.5**2)
    # And one that every step exceeds.
    policy = make_policy()
    metrics = adaptive(1e-12, policy, n_epochs=3, learning_rate=1e-3).update(make_rollout(policy))
    assert metrics["learning_rate"] == pytest.approx(1e-3 / 1.5**2)
    assert metrics["kl"] > 0


def test_adapted_learning_rate_comes_back_from_the_state() -> None:
    policy = make_policy()
    algo = adaptive(1e3, policy, n_epochs=3, learning_rate=1e-3)
    rollout = make_rollout(policy)
    algo.update(rollout)
    other_policy = copy.deepcopy(policy)
    other = adaptive(1e3, other_policy, n_epochs=3, learning_rate=1e-3)
    other.load_state_dict(copy.deepcopy(algo.state_dict()))
    rates = []
    for each in (algo, other):
        torch.manual_seed(1)
        rates.append(each.update(rollout)["learning_rate"])
    assert rates == pytest.approx([1e-3 * 1.5**4] * 2)
    assert all(torch.equal(value, other_policy.state_dict()[name]) for name, value in policy.state_dict().items())


class ThreeFields(ActorCritic):
    """A policy of a user who returns what is asked for and no more; with L, in sequences."""

    def __init__(self, L: int | None = None) -> None:
        super().__init__(2, 1, "cpu", MLP(2, 1, [8]), MLP(2, 1, [8]))
        self.sequence_length = L
        self.shapes: list[torch.Size] = []

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        self.shapes.append(td.batch_size)
        return super().evaluate_actions(td).select("sample_log_prob", "entropy", "value")


def test_minimal_policy_and_sequences_learn_what_single_steps_do() -> None:
    extras = {"clip_value_coef": 0.2, "max_kl": 1.0, "normalize_advantages": "minibatch"}
    rollout = make_rollout(make_policy(), N=4, T=6)
    results = []
    for L in (None, 3):
        torch.manual_seed(0)
        policy = ThreeFields(L)
        metrics = PPO(PPOCfg(n_epochs=2, batch_size=24, **extras), policy).update(rollout)  # type: ignore[arg-type]
        results.append((metrics, policy))
    (metrics, single), (metrics_in_sequences, sequences) = results
    assert single.shapes == [(24,)] * 2
    assert sequences.shapes == [(8, 3)] * 2
    assert metrics_in_sequences == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(sequences.state_dict(), single.state_dict(), atol=1e-5, rtol=1e-4)


# --- what is not finite ---


@pytest.mark.parametrize("lr_schedule", ["constant", "adaptive"])
@pytest.mark.parametrize("field", ["reward", "obs", "value"])
def test_update_on_nan_changes_nothing(field: str, lr_schedule: Literal["constant", "adaptive"]) -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(n_epochs=3, batch_size=20, max_kl=0.1, lr_schedule=lr_schedule), policy)
    algo.update(make_rollout(policy))
    before = copy.deepcopy((policy.state_dict(), algo.state_dict()))
    assert algo.take_step_counts() == [(3, 0)]
    rollout = make_rollout(policy)
    rollout[field][1, 2] = float("nan")
    metrics = algo.update(rollout)
    assert algo.take_step_counts() == [(3, 3)]
    assert_same((policy.state_dict(), algo.state_dict()), before)  # the adapted learning rate is in the second
    assert all(math.isnan(metrics[name]) for name in ("policy_loss", "value_loss", "grad_norm"))
    assert metrics["epochs"] == 3


def test_update_of_discrete_actions_by_hand() -> None:
    actor = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(actor.weight)  # two equally likely actions in the one state 1
    policy = ActorCritic(1, 1, "cpu", actor, nn.Linear(1, 1), choices=(2,))
    half = torch.full((3,), 0.5).log()
    fields = {"obs": torch.ones(3, 1), "action": torch.tensor([[1.0], [0.0], [1.0]]), "return": torch.zeros(3)}
    advantage = {"advantage": torch.tensor([1.0, -1.0, 4.0])}
    old = TensorDict({"log_probs": torch.tensor([[0.25, 0.75]]).log().expand(3, -1)}, batch_size=[3])
    batch = TensorDict({**fields, **advantage, "sample_log_prob": half, "old": old}, batch_size=[3])
    ppo = PPO(PPOCfg(vf_coef=0.0, ent_coef=0.5, lr_schedule="adaptive"), policy)
    loss, metrics = ppo.loss(batch)
    assert loss.item() == pytest.approx(-4 / 3 - 0.5 * math.log(2))
    # KL(old || new) = sum p log (p / 0.5)
    assert metrics["kl"].item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    loss.backward()
    # d log p(1) / d logits = (-1/2, 1/2), d log p(0) the other way round; the entropy is at its maximum.
    # minus the mean of A d log p: -((-1/2) 1 + (1/2) (-1) + (-1/2) 4) / 3 = 1
    torch.testing.assert_close(actor.weight.grad, torch.tensor([[1.0], [-1.0]]))


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


def actor_state(policy: ActorCritic) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state_dict().items() if not name.startswith("critic")}


def is_same(state: dict[str, torch.Tensor], policy: ActorCritic) -> bool:
    return all(torch.equal(value, policy.state_dict()[name]) for name, value in state.items())


def policy_of(algo: PPO) -> ActorCritic:
    assert isinstance(algo.policy, ActorCritic)
    return algo.policy


def table_batch(**more: torch.Tensor) -> tuple[FixedPolicy, TensorDict]:
    policy = FixedPolicy(
        log_prob=torch.tensor([2.0, 1.0]).log(), value=torch.tensor([1.0, 2.0]), entropy=torch.tensor([0.5, 1.5])
    )
    columns = {
        "sample_log_prob": torch.zeros(2),
        "advantage": torch.zeros(2),
        "return": torch.tensor([0.0, 4.0]),
        "reference_log_prob": torch.tensor([6.0, 1.0]).log(),
    }
    return policy, TensorDict(columns | more, batch_size=[2])


def test_divergence_from_the_reference_by_hand() -> None:
    policy, batch = table_batch()
    loss, metrics = PPO(PPOCfg(kl_coef=0.4, vf_coef=0.5), policy).loss(batch)
    # pi/old = 2 and ref/pi = 3: 2 (3 - 1 - log 3); nothing from the second
    assert metrics["reference_kl"].item() == pytest.approx(2 - math.log(3))
    assert loss.item() == pytest.approx(0.5 * 1.25 + 0.4 * (2 - math.log(3)))


def test_divergence_of_older_samples_is_weighted() -> None:
    policy, batch = table_batch(importance_weight=torch.tensor([0.5, 3.0]))
    _, metrics = PPO(PPOCfg(kl_coef=0.4), policy).loss(batch)
    assert metrics["reference_kl"].item() == pytest.approx(0.5 * (2 - math.log(3)))


def test_divergence_is_that_of_the_collected_samples() -> None:
    policy = make_policy()
    rollout = make_rollout(policy)[:1, :2].expand(2, -1).clone()  # both halves have the same sample
    found = []
    for symmetry in (None, SymmetryCfg()):
        algo = PPO(PPOCfg(kl_coef=1.0, learning_rate=1e-30, symmetry=symmetry), copy.deepcopy(policy))
        with torch.no_grad():
            policy_of(algo).log_std.add_(0.1)
        if symmetry is not None:
            algo.use_mirror_map(MirrorMap(Mirror.of([0, 1], [1, -1], "test"), Mirror.of([0], [-1], "test")))
        found.append(algo.update(rollout)["reference_kl"])
    assert found[0] == pytest.approx(found[1]) != 0


def test_warm_up_changes_the_critic_alone() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2, learning_rate=0.01, ent_coef=0.1, kl_coef=0.1), policy)
    for _ in range(2):
        before, critic = actor_state(policy), copy.deepcopy(policy.critic.state_dict())
        metrics = algo.update(make_rollout(policy))
        assert is_same(before, policy)
        assert not any(torch.equal(value, critic[name]) for name, value in policy.critic.state_dict().items())
        assert metrics["approx_kl"] == pytest.approx(0, abs=1e-9)
    algo.update(make_rollout(policy))
    assert not is_same(before, policy)


def test_adaptive_rate_waits_for_the_end_of_the_warm_up() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2, lr_schedule="adaptive", learning_rate=3e-4), policy)
    rates = [algo.update(make_rollout(policy))["learning_rate"] for _ in range(3)]
    assert rates[:2] == pytest.approx([3e-4, 3e-4])
    assert rates[2] != pytest.approx(3e-4)


def test_warm_up_trains_no_layer_that_actor_and_critic_share() -> None:
    torch.manual_seed(0)
    memory, actor, critic = nn.GRUCell(2, 4), nn.Linear(6, 1), nn.Linear(6, 1)
    policy = ActorCriticRecurrent(2, 1, "cpu", memory, actor, critic)
    algo = PPO(PPOCfg(critic_warmup=1, learning_rate=0.01), policy)
    collector = SyncCollector(ScriptedEnv(2), policy, "cpu")
    before = copy.deepcopy(policy.state_dict())
    algo.update(collector.collect(6))
    changed = {name for name, value in policy.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"critic.weight", "critic.bias"}
    algo.update(collector.collect(6))
    assert not torch.equal(memory.weight_ih, before["memory.weight_ih"])  # trained again


def test_warm_up_continues_where_a_checkpoint_left_it() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2), policy)
    algo.update(make_rollout(policy))
    other = PPO(PPOCfg(critic_warmup=2), policy)
    other.load_state_dict(copy.deepcopy(algo.state_dict()))
    before = actor_state(policy)
    other.update(make_rollout(policy))
    assert is_same(before, policy)
    other.update(make_rollout(policy))
    assert not is_same(before, policy)
