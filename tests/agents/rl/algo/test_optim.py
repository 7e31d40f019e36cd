"""Gradient steps that are made, and those that are skipped."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from embodichain.agents.rl.algo import PPO, MetricMeans, PPOCfg, gradient_step
from embodichain.agents.rl.algo.optim import FusedAdam, adapted_learning_rate, take_step_counts
from tests.agents.rl.algo.test_ppo import make_policy, make_rollout
from tests.no_sync import no_wait_for_the_gpu

NAN, INF = float("nan"), float("inf")

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "fused adam": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.1), fused=True),
    "our adam": lambda parameters: FusedAdam(parameters, torch.tensor(0.1), eps=1e-8, fused=True),
    "sgd with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


def finite(weight: nn.Parameter) -> torch.Tensor:
    return (weight - 1).square().sum()


BAD: dict[str, Callable[[nn.Parameter], torch.Tensor]] = {
    "the loss is not-a-number": lambda weight: finite(weight) * NAN,
    "the loss is not finite, its gradient is": lambda weight: finite(weight) + INF,
    "the gradient is not-a-number, the loss is 0": lambda weight: (0 * weight).square().sum().sqrt(),
    "one part of the gradient is infinite": lambda weight: (
        (weight * torch.tensor([1.0, INF]).to(weight)).clamp(-1, 1).sum() + weight[0] * 0
    ),
    "the norm is too large for its type": lambda weight: (weight * 3e38).sum(),
}


def state_of(weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    tensors = [value for name, value in sorted(optimizer.state[weight].items()) if value is not None]
    return [weight.detach().clone(), *(value.clone() for value in tensors)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bad", BAD)
def test_step_that_is_not_finite_leaves_everything_as_it_was(name: str, bad: str) -> None:
    weight = nn.Parameter(torch.tensor([0.5, -0.5]))
    optimizer = OPTIMIZERS[name]([weight])
    for _ in range(2):
        gradient_step(optimizer, [weight], finite(weight), 1.0)
    before = state_of(weight, optimizer)
    assert len(before) > 1
    assert not gradient_step(optimizer, [weight], BAD[bad](weight), 1.0).isfinite()
    after = state_of(weight, optimizer)
    assert [a.numpy().tobytes() for a in before] == [b.numpy().tobytes() for b in after]
    assert gradient_step(optimizer, [weight], finite(weight), 1.0).isfinite()
    assert not torch.equal(weight, before[0])
    assert take_step_counts([optimizer]) == [(4, 1)]
    assert take_step_counts([optimizer]) == []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_step_of_all_may_be_skipped(name: str) -> None:
    weights = [nn.Parameter(torch.tensor([0.5, -0.5])) for _ in range(2)]
    optimizers = [OPTIMIZERS[name]([weight]) for weight in weights]
    gradient_step(optimizers[0], [weights[0]], finite(weights[0]) * NAN, 1.0)
    for weight, optimizer in zip(weights, optimizers, strict=True):
        gradient_step(optimizer, [weight], finite(weight), 1.0)
    ours, theirs = (state_of(*pair) for pair in zip(weights, optimizers, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_finite_steps_are_the_bare_optimizers_bit_for_bit(name: str) -> None:
    torch.manual_seed(0)
    start = torch.randn(50)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer, bare = OPTIMIZERS[name]([ours]), OPTIMIZERS[name]([theirs])
    for _ in range(5):
        gradient_step(optimizer, [ours], finite(ours), 0.5)
        bare.zero_grad()
        finite(theirs).backward()
        nn.utils.clip_grad_norm_([theirs], 0.5)
        bare.step()
    assert all(torch.equal(a, b) for a, b in zip(state_of(ours, optimizer), state_of(theirs, bare), strict=True))


def test_parameters_without_a_gradient_have_norm_0() -> None:
    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    assert gradient_step(torch.optim.SGD([weight], lr=1.0), [other], weight.sum(), 1.0).item() == 0
    assert weight.tolist() == [0, 0]


def test_infinite_loss_shows_in_averaged_gradients() -> None:
    """One of two processes has a loss of infinity with a finite gradient: both must skip."""
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    gradients: list[torch.Tensor] = []
    for weight, offset in zip(weights, (0.0, INF), strict=True):
        weight.register_hook(lambda grad: gradients.append(grad.clone()))
        gradient_step(torch.optim.SGD([weight], lr=1.0), [weight], finite(weight) + weight.sum() + offset, 10.0)
    assert gradients[0].tolist() == [1, 1]
    assert not (sum(gradients) / 2).norm().isfinite()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rate", "kl", "initial", "expected"),
    [
        (3e-4, 0.021, 1e-3, 2e-4),  # more than twice the desired one: / 1.5
        (3e-4, 0.004, 1e-3, 4.5e-4),  # less than half: * 1.5
        (3e-4, 0.019, 1e-3, 3e-4),  # between
        (3e-4, 0.006, 1e-3, 3e-4),
        (1.2e-5, 1.0, 1e-3, 1e-5),  # within its bounds
        (9e-3, 0.0, 1e-3, 1e-2),
        (1e-6, 1.0, 1e-6, 1e-6),  # which the first rate widens
        (0.03, 0.015, 0.03, 0.03),
    ],
)
def test_learning_rate_follows_the_kl_divergence(rate: float, kl: float, initial: float, expected: float) -> None:
    out = adapted_learning_rate(torch.tensor(rate), torch.tensor(kl), 0.01, initial)
    assert out.item() == pytest.approx(expected)


def test_means_are_of_the_steps_that_were_made() -> None:
    means = MetricMeans()
    for loss, norm in ((1.0, 0.1), (NAN, NAN), (5.0, INF), (3.0, 0.3)):
        means.add({"loss": torch.tensor(loss), "grad_norm": torch.tensor(norm)})
    read = means.read(other=torch.tensor(7.0))
    assert read == pytest.approx({"loss": 2.0, "grad_norm": 0.2, "other": 7.0})


def test_fused_optimizer_loads_an_unfused_ones_checkpoint() -> None:
    """As when a run of the CPU goes on on a GPU: without this, the fused form would not skip."""
    old = PPO(PPOCfg(n_epochs=1, batch_size=20), make_policy())
    old.update(make_rollout(old.policy))
    new = PPO(PPOCfg(n_epochs=1, batch_size=20, lr_schedule="adaptive"), copy.deepcopy(old.policy))
    new.load_state_dict(old.state_dict())
    assert new.optimizer.param_groups[0]["fused"] is True
    assert all(state["step"].item() == 1 for state in new.optimizer.state.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bad", BAD)
def test_fused_optimizer_skips_on_the_device_and_nobody_waits(bad: str) -> None:
    weight = nn.Parameter(torch.tensor([0.5, -0.5], device="cuda"))
    algo_optimizer = PPO(PPOCfg(device="cuda"), make_policy().to("cuda")).optimizer
    optimizer = torch.optim.Adam([weight], lr=0.1, fused=algo_optimizer.defaults["fused"])
    for _ in range(2):
        gradient_step(optimizer, [weight], (weight - 1).square().sum(), 1.0)
    before = state_of(weight, optimizer)
    loss = BAD[bad](weight)
    with no_wait_for_the_gpu():
        norm = gradient_step(optimizer, [weight], loss, 1.0)
    assert not norm.isfinite()
    assert all(torch.equal(a, b) for a, b in zip(before, state_of(weight, optimizer), strict=True))
