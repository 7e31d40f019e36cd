import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import GRPO, PPO, AlgorithmCfg, GRPOCfg, PPOCfg, build_algo, clipped_surrogate
from embodichain.agents.rl.algo.on_policy import k3, reference_kl
from embodichain.agents.rl.algo.ppo import value_error
from embodichain.agents.rl.models import MLP, ActorCritic, action_log_prob
from embodichain.agents.rl.models.distributions import gaussian_kl
from tests.agents.rl.algo.test_ppo import make_policy, make_rollout
from tests.agents.rl.fakes import assert_same


def test_minibatch_larger_than_the_rollout_is_noticed() -> None:
    cfg = AlgorithmCfg(batch_size=8)
    assert cfg.notices(8, 80) == []
    assert cfg.notices(7, 70) == [
        "algorithm.cfg.batch_size: 8 is more than the 7 transitions of a rollout (trainer.num_envs x "
        "trainer.buffer_size), which is one minibatch"
    ]
    assert AlgorithmCfg().notices(7, 70) == []  # the default is an upper limit


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "gradient"),
    [
        (1.1, 2.0, 2.2, 2.0),  # inside the range: r A
        (1.5, 2.0, 2.4, 0.0),  # already made likelier than the range allows: nothing more to gain
        (0.5, -2.0, -1.6, 0.0),  # already made unlikelier
        (0.5, 2.0, 1.0, 2.0),  # moved the wrong way: pulled back
        (1.5, -2.0, -3.0, -2.0),
    ],
)
def test_surrogate_and_its_gradient_on_each_side_of_the_clip(
    ratio: float, advantage: float, objective: float, gradient: float
) -> None:
    r = torch.tensor([ratio], requires_grad=True)
    out = clipped_surrogate(r, torch.tensor([advantage]), clip_coef=0.2)
    assert out.item() == pytest.approx(objective)
    out.sum().backward()
    assert r.grad is not None
    assert r.grad.item() == pytest.approx(gradient)


def test_k3_by_hand() -> None:
    # r = 2 and 1/2: (2 - 1) - log 2 and (1/2 - 1) + log 2
    expected = [1 - math.log(2), math.log(2) - 0.5]
    assert k3(torch.tensor([2.0, 0.5]).log()).tolist() == pytest.approx(expected)
    assert k3(torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("value", "error", "gradient"),
    [
        # the old value is 1, the return 3, the bound 0.5
        (1.2, 3.24, -3.6),  # (1.2 - 3)^2: inside the bound
        (2.0, 2.25, 0.0),  # (1.5 - 3)^2: moved towards the return further than the bound: nothing more to gain
        (0.0, 9.0, -6.0),  # (0 - 3)^2: moved away from it: pulled back, from beyond the bound too
        (9.0, 36.0, 12.0),  # (9 - 3)^2: far past it
    ],
)
def test_clipped_value_error_and_its_gradient(value: float, error: float, gradient: float) -> None:
    v = torch.tensor([value], requires_grad=True)
    out = value_error(v, torch.tensor([3.0]), old_value=torch.tensor([1.0]), clip_coef=0.5)
    assert out.item() == pytest.approx(error)
    out.sum().backward()
    assert v.grad is not None
    assert v.grad.item() == pytest.approx(gradient)


def test_gaussian_kl_by_hand_and_as_torch_has_it() -> None:
    # KL(N(0, 1) || N(1, e^2)) = 1 + (1 + 1) / (2 e^2) - 1/2, once for each of two components
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    assert gaussian_kl(zero, zero, one, one).item() == pytest.approx(2 * (0.5 + math.exp(-2)))
    assert gaussian_kl(one, one, one, one).item() == 0
    torch.manual_seed(0)
    p, q = (torch.distributions.Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.1) for _ in range(2))
    ours = gaussian_kl(p.mean, p.stddev.log(), q.mean, q.stddev.log())
    torch.testing.assert_close(ours, torch.distributions.kl_divergence(p, q).sum(-1))


def test_reference_kl_by_hand() -> None:
    # pi/old = 2, ref/pi = 3: 2 (3 - 1 - log 3)
    out = reference_kl(torch.tensor([2.0]).log(), torch.tensor([1.0]).log(), torch.tensor([6.0]).log())
    assert out.item() == pytest.approx(2 * (2 - math.log(3)))
    assert reference_kl(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item() == 0


def log_prob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Normal(mean, log_std.exp()).log_prob(action)


def test_estimate_and_gradient_are_of_kl_to_the_reference() -> None:
    # old N(0, 1), pi N(0.3, 0.9^2), ref N(-0.2, 1.2^2)
    torch.manual_seed(0)
    sample = torch.randn(200_000, dtype=torch.float64)
    zero, ref_mean, ref_log_std = torch.zeros(2, 1, dtype=torch.float64), torch.tensor(-0.2), torch.tensor(1.2).log()
    params = torch.tensor([0.3, math.log(0.9)], dtype=torch.float64, requires_grad=True)

    pi = log_prob(sample, *params)
    estimate = reference_kl(pi, log_prob(sample, *zero), log_prob(sample, ref_mean, ref_log_std)).mean()
    (gradient,) = torch.autograd.grad(estimate, params)

    mean, log_std = params[:1], params[1:]
    exact = gaussian_kl(mean, log_std, ref_mean[None].double(), ref_log_std[None].double())
    (exact_gradient,) = torch.autograd.grad(exact, params)
    wrong = gaussian_kl(ref_mean[None].double(), ref_log_std[None].double(), mean, log_std)
    (wrong_gradient,) = torch.autograd.grad(wrong, params)
    # a sample's gradient has a deviation of about 1: the mean's is 0.002
    torch.testing.assert_close(estimate, exact, atol=0.004, rtol=0)
    torch.testing.assert_close(gradient, exact_gradient, atol=0.01, rtol=0)
    assert (gradient - wrong_gradient).abs().max() > 0.1


def ppo(policy: ActorCritic, kl_coef: float = 0.0, n_epochs: int = 10) -> PPO:
    return PPO(PPOCfg(kl_coef=kl_coef, learning_rate=0.01, n_epochs=n_epochs), policy)


def grpo(policy: ActorCritic, kl_coef: float = 0.0, n_epochs: int = 10) -> GRPO:
    return GRPO(GRPOCfg(kl_coef=kl_coef, learning_rate=0.01, n_epochs=n_epochs, group_size=2), policy)


Algorithm = Callable[..., PPO | GRPO]
algorithms = pytest.mark.parametrize("make", [ppo, grpo])


@algorithms
def test_divergence_pulls_back_to_the_trainings_beginning(make: Algorithm) -> None:
    policy = make_policy()
    algo = make(policy, kl_coef=1.0, n_epochs=5)
    with torch.no_grad():
        policy.log_std.add_(0.5)  # the reference's is 0
    rollout = make_rollout(policy, N=64, T=16)
    rollout["reward"].zero_()
    rollout["value"].zero_()
    assert algo.update(rollout)["reference_kl"] > 0.1
    assert 0.3 < policy.log_std.item() < 0.47  # five of Adam's steps of 0.01


@algorithms
def test_reference_comes_back_from_the_state(make: Algorithm) -> None:
    policy = make_policy()
    algo = make(policy, kl_coef=0.5)
    rollout = make_rollout(policy)
    algo.update(rollout)
    other_policy = copy.deepcopy(policy)
    other = make(other_policy, kl_coef=0.5)  # its reference is the policy as it is now
    other.load_state_dict(copy.deepcopy(algo.state_dict()))
    for each in (algo, other):
        torch.manual_seed(1)
        each.update(rollout)
    assert all(torch.equal(value, other_policy.state_dict()[name]) for name, value in policy.state_dict().items())


@algorithms
def test_only_a_weight_keeps_a_reference(make: Algorithm) -> None:
    algo = make(make_policy())
    assert algo.reference is None
    assert set(algo.state_dict()) == {"optimizer"}


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


@pytest.mark.parametrize(
    ("algorithm", "dropout", "warns"), [("ppo", 0.1, True), ("grpo", 0.1, True), ("ppo", 0.0, False)]
)
def test_dropout_is_warned_of(algorithm: str, dropout: float, warns: bool, capsys: pytest.CaptureFixture[str]) -> None:
    policy = ActorCritic(2, 1, "cpu", MLP(2, 1, [8], dropout=dropout), MLP(2, 1, [8]))
    build_algo(algorithm, {}, policy, "cpu")
    assert ("with dropout each drops other units" in capsys.readouterr().err) == warns
