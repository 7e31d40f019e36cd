"""Legend: A action size."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.distributions.transforms import AffineTransform

from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.models.distributions import (
    bounded,
    choice_kl,
    choice_log_probs,
    evaluate_choices,
    evaluate_gaussian,
    gaussian_entropy,
    gaussian_log_prob,
    sample_choices,
    sample_gaussian,
)
from embodichain.agents.rl.models.squash import LinearScale, TanhSquash

BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 6], np.float32))  # centres 0 and 3, half-ranges 1 and 3


def test_log_prob_and_entropy_equal_those_of_torch_distributions() -> None:
    torch.manual_seed(0)
    action, mean, log_std = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([-1.0, 0.0, 0.5])
    normal = Independent(Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(gaussian_log_prob(action, mean, log_std), normal.log_prob(action))
    torch.testing.assert_close(gaussian_entropy(log_std).expand(4), normal.entropy())


@pytest.mark.parametrize(
    ("x", "gradient", "passed"),
    [
        (0.0, 1.0, 1.0),  # inside: untouched
        (0.0, -1.0, -1.0),
        (3.0, 1.0, 1.0),  # above the top, descent lowers: back inside
        (3.0, -1.0, 0.0),  # above the top, descent raises: further out
        (-3.0, -1.0, -1.0),
        (-3.0, 1.0, 0.0),
        (2.0, -1.0, 0.0),  # exactly at a bound
        (2.0, 1.0, 1.0),
        (-2.0, 1.0, 0.0),
        (-2.0, -1.0, -1.0),
    ],
)
def test_gradient_lives_at_a_bound_where_it_pulls_back_inside(x: float, gradient: float, passed: float) -> None:
    leaf = torch.tensor([x], requires_grad=True)
    out = bounded(leaf, -2.0, 2.0)
    assert out.item() == max(-2.0, min(2.0, x))
    out.backward(torch.tensor([gradient]))
    assert leaf.grad is not None
    assert leaf.grad.item() == passed


def test_squashed_action_is_centre_plus_half_range_times_tanh() -> None:
    # atanh(1/2) = log(3) / 2
    raw = torch.tensor([0.0, math.log(3) / 2])
    torch.testing.assert_close(TanhSquash(BOX)(raw), torch.tensor([0.0, 3 + 3 / 2]))


def test_squashed_log_prob_equals_that_of_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, log_std = torch.randn(5, 2), torch.tensor([-0.5, 0.3])
    td = TensorDict({}, batch_size=[5])
    sample_gaussian(td, mean, log_std, TanhSquash(BOX), deterministic=False)
    normal = Normal(mean, log_std.exp())
    to_box = AffineTransform(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 3.0]))
    squashed = TransformedDistribution(normal, [TanhTransform(), to_box])
    torch.testing.assert_close(td["sample_log_prob"], squashed.log_prob(td["action"]).sum(-1), atol=1e-4, rtol=1e-4)
    out = evaluate_gaussian(td, mean, log_std, TanhSquash(BOX))
    assert torch.equal(out["sample_log_prob"], td["sample_log_prob"])


def test_log_det_stays_exact_where_tanh_rounds_to_one() -> None:
    # 1 - tanh(u)^2 -> 4 exp(-2 |u|): log 4 - 2 |u|, plus log half-range 1; float32 tanh is 1 from 9 on
    squash = TanhSquash(spaces.Box(-1, 1, (1,)))
    raw = torch.tensor([[30.0], [-30.0]], requires_grad=True)
    log_det = squash.log_det(raw)
    torch.testing.assert_close(log_det, torch.full((2,), math.log(4) - 60))
    log_det.sum().backward()
    torch.testing.assert_close(raw.grad, torch.tensor([[-2.0], [2.0]]))


def test_a_floor_of_the_slope_bounds_the_density_near_the_bounds() -> None:
    # 1 - tanh(3)^2 = 0.00987 (+ 1e-3 = 0.01087); beyond 9 it is 0 in float32: log 1e-3, whatever u is, and no gradient
    squash = TanhSquash(spaces.Box(-1, 1, (1,)), slope_floor=1e-3)
    raw = torch.tensor([[3.0], [20.0], [-30.0]], requires_grad=True)
    log_det = squash.log_det(raw)
    torch.testing.assert_close(log_det, torch.tensor([math.log(0.010866), math.log(1e-3), math.log(1e-3)]))
    log_det.sum().backward()
    # d/du log(1 - a^2 + f) = -2 a (1 - a^2) / (1 - a^2 + f) = -2 x 0.995055 x 0.009866 / 0.010866
    torch.testing.assert_close(raw.grad, torch.tensor([[-1.806956], [0.0], [0.0]]))
    torch.testing.assert_close(squash.log_slope(raw).squeeze(-1), log_det)


def test_squashed_entropy_is_right_on_average_and_has_a_gradient() -> None:
    torch.manual_seed(0)
    mean = torch.full((100_000, 2), 0.5, requires_grad=True)
    log_std = torch.tensor([-1.0, 0.0], requires_grad=True)
    td = TensorDict({}, batch_size=[100_000])
    sample_gaussian(td, mean.detach(), log_std.detach(), TanhSquash(BOX), deterministic=False)
    out = evaluate_gaussian(td, mean, log_std, TanhSquash(BOX))
    # E[-log p]: the deviation of a sample is about 1, the standard error 0.003
    assert out["entropy"].mean().item() == pytest.approx(-out["sample_log_prob"].mean().item(), abs=0.02)
    out["entropy"].mean().backward()
    assert mean.grad is not None
    assert (mean.grad.sum(0) < 0).all()  # a mean above the centre: more of it lies at the bound, entropy falls


def test_scaled_action_spans_finite_bounds_and_leaves_others() -> None:
    space = spaces.Box(np.array([10, 0, -np.inf], np.float32), np.array([20, np.inf, np.inf], np.float32))
    scale, raw = LinearScale(space), torch.tensor([[-1.0, 0.5, 3.0], [0.2, 0.5, 3.0]])
    assert scale(raw).tolist() == [[10.0, 0.5, 3.0], [16.0, 0.5, 3.0]]  # centre 15, half-range 5
    torch.testing.assert_close(scale.inverse(scale(raw)), raw)
    td = TensorDict({}, batch_size=[1])
    sample_gaussian(td, torch.tensor([[0.4, 0.0, 0.0]]), torch.zeros(3), scale, deterministic=True)
    # a density of 5 times the width is a fifth
    expected = gaussian_log_prob(raw[:1], raw[:1], torch.zeros(3)) - math.log(5)
    torch.testing.assert_close(td["sample_log_prob"], expected)


@pytest.mark.parametrize("space", [spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1, np.inf, (2,)), 2])
def test_squashing_needs_finite_bounds(space: spaces.Box | int) -> None:
    with pytest.raises(ValueError, match=r"policy.squash: needs an action space with finite bounds"):
        TanhSquash(space)


B, OBS, H, A = 5, 3, 4, 2
SPACE = spaces.Box(-2.0, 4.0, (A,))
NETWORK = {"type": "mlp", "network_cfg": {"hidden_sizes": [8]}}


def make(chunk_length: int = H, name: str = "actor_critic", **changes: Any) -> Policy:
    torch.manual_seed(0)
    block = {"name": name, "actor": NETWORK, "chunk_length": chunk_length, "init_log_std": -0.3, **changes}
    if name == "actor_critic":
        block["critic"] = NETWORK
    return build_policy(block, OBS, SPACE, "cpu")


def states() -> TensorDict:
    return TensorDict({"obs": torch.randn(B, OBS, generator=torch.Generator().manual_seed(1))}, batch_size=[B])


@pytest.mark.parametrize("name", ["actor_critic", "actor_only"])
@pytest.mark.parametrize("squash", [False, True])
def test_log_probabilities_of_chunks_stay_apart(name: str, squash: bool) -> None:
    policy = make(name=name, squash=squash)
    assert policy.chunk_length == H
    assert policy.extra_fields == ((("raw_action", H * A),) if squash else ())
    td = policy.get_action(states())
    assert td["action"].shape == td["sample_log_prob"].shape == (B, H, A)
    assert td["value"].shape == (B,)
    again = policy.evaluate_actions(td)
    torch.testing.assert_close(again["sample_log_prob"], td["sample_log_prob"])
    for key in ("entropy", "mean", "log_std"):
        assert again[key].shape == (B, H, A)
    torch.testing.assert_close(again["value"], td["value"])
    if squash:
        assert ((td["action"] > -2) & (td["action"] < 4)).all()


@pytest.mark.parametrize("squash", [False, True])
def test_sum_over_a_chunk_is_one_long_actions_log_prob(squash: bool) -> None:
    chunks, one = make(H, squash=squash), make(1, squash=squash)
    long = build_policy(
        {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "squash": squash},
        OBS,
        spaces.Box(-2.0, 4.0, (H * A,)),
        "cpu",
    )
    long.load_state_dict(chunks.state_dict())
    torch.manual_seed(3)
    ours = chunks.get_action(states())
    torch.manual_seed(3)
    theirs = long.get_action(states())
    torch.testing.assert_close(ours["action"].flatten(1), theirs["action"])
    torch.testing.assert_close(ours["sample_log_prob"].sum((1, 2)), theirs["sample_log_prob"])
    assert one.chunk_length == 1


# Two independent choices, among 2 and 3: (1/4, 3/4) and (1/4, 1/4, 1/2).
LOGITS = torch.tensor([[0.0, math.log(3.0), 0.0, 0.0, math.log(2.0)]])
SIZES = (2, 3)


def test_choices_add_log_probabilities_and_entropies() -> None:
    td = TensorDict({"action": torch.tensor([[1.0, 2.0]])}, batch_size=[1])
    out = evaluate_choices(td, choice_log_probs(LOGITS, SIZES), SIZES)
    assert out["sample_log_prob"].item() == pytest.approx(math.log(3 / 4) + math.log(1 / 2))
    entropy = -(math.log(1 / 4) / 4 + 3 * math.log(3 / 4) / 4) - (2 * math.log(1 / 4) / 4 + math.log(1 / 2) / 2)
    assert out["entropy"].item() == pytest.approx(entropy)


def test_divergence_of_choices_is_p_log_p_over_q() -> None:
    log_probs, uniform = (choice_log_probs(logits, SIZES) for logits in (LOGITS, torch.zeros(1, 5)))
    # sum p log p - sum p log q
    expected = math.log(1 / 4) / 4 + 3 * math.log(3 / 4) / 4 + math.log(2)
    expected += 2 * math.log(1 / 4) / 4 + math.log(1 / 2) / 2 + math.log(3)
    assert choice_kl(log_probs, uniform).item() == pytest.approx(expected)
    assert choice_kl(log_probs, log_probs).item() == 0


def test_choices_are_sampled_by_their_probabilities() -> None:
    torch.manual_seed(0)
    td = TensorDict({}, batch_size=[20_000])
    sample_choices(td, choice_log_probs(LOGITS, SIZES).expand(20_000, -1), SIZES, deterministic=False)
    # standard error of a share: sqrt(p (1 - p) / 20000) <= 0.0035; five of them
    shares = [(td["action"][:, i] == k).float().mean() for i, k in ((0, 1), (1, 0), (1, 2))]
    torch.testing.assert_close(torch.stack(shares), torch.tensor([0.75, 0.25, 0.5]), atol=0.018, rtol=0)
    assert {(i, float(k)) for i in range(2) for k in td["action"][:, i].unique()} == {
        (i, k) for i, n in enumerate(SIZES) for k in range(n)
    }
    sample_choices(td, choice_log_probs(LOGITS, SIZES).expand(20_000, -1), SIZES, deterministic=True)
    assert td["action"].unique(dim=0).tolist() == [[1.0, 2.0]]


def test_masked_possibility_has_no_probability_and_no_gradient() -> None:
    torch.manual_seed(0)
    logits = torch.zeros(1000, 5, requires_grad=True)
    log_probs = choice_log_probs(logits, SIZES, torch.tensor([1, 0, 1, 1, 0]).expand(1000, -1))
    td = TensorDict({}, batch_size=[1000])
    sample_choices(td, log_probs.detach(), SIZES, deterministic=False)
    assert td["action"].unique(dim=0).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    out = evaluate_choices(td, log_probs, SIZES)
    torch.testing.assert_close(out["sample_log_prob"], torch.full((1000,), math.log(1 / 2)))
    torch.testing.assert_close(out["entropy"], torch.full((1000,), math.log(2)))
    (out["sample_log_prob"] + out["entropy"]).sum().backward()
    assert logits.grad is not None
    assert not logits.grad[:, [1, 4]].any()
