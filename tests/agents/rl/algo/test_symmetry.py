"""Legend: N envs, T rollout steps, B minibatch."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import PPO, PPOCfg, SymmetryCfg
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import MLP, ActorCritic, Policy
from embodichain.utils import ConfigError
from embodichain.utils.observations import Mirror, MirrorMap
from tests.agents.rl.fakes import StubPolicy

FLIP = Mirror.of([1, 0], [-1, -1], "test")  # of the states and actions here
MAP = MirrorMap(FLIP, FLIP)


def make_policy(normalize_obs: bool = False) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(2, 2, "cpu", MLP(2, 2, [16]), MLP(2, 1, [16]), normalize_obs=normalize_obs)


def make_ppo(policy: Policy, symmetry: dict[str, Any] | None, **cfg: Any) -> PPO:
    algorithm = PPO(PPOCfg(symmetry=symmetry, **cfg), policy)  # type: ignore[arg-type] # pydantic converts
    if symmetry is not None:
        algorithm.use_mirror_map(MAP)
    return algorithm


def make_rollout(policy: Policy, N: int = 64, T: int = 4) -> TensorDict:
    """Episodes of one step, in states of the positive quadrant alone; the best action is the state itself."""
    rollout = allocate_rollout(N, T, 2, 2, "cpu")
    rollout["obs"].uniform_(0.2, 1.0)
    policy.update_normalizer(rollout["obs"])
    chosen = policy.get_action(TensorDict({"obs": rollout["obs"]}, batch_size=[N, T + 1]))
    for name in ("action", "sample_log_prob", "value"):
        rollout[name].copy_(chosen[name])
    rollout["reward"].copy_(-(rollout["action"] - rollout["obs"]).square().sum(-1))
    rollout["terminated"][:] = True
    rollout["done"][:] = True
    return rollout


def two_samples() -> TensorDict:
    return TensorDict(
        {
            "obs": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
            "action": torch.tensor([[0.5, -0.5], [0.0, 1.0]]),
            "raw_action": torch.tensor([[5.0, -5.0], [0.0, 10.0]]),  # before tanh
            "sample_log_prob": torch.tensor([-2.0, -3.0]),
            "advantage": torch.tensor([1.0, -1.0]),
            "return": torch.tensor([5.0, 6.0]),
            "old_value": torch.tensor([7.0, 8.0]),
        },
        batch_size=[2],
    )


def test_mirror_images_follow_the_samples() -> None:
    batch = TensorDict.cat([two_samples(), two_samples()])
    symmetry = make_ppo(make_policy(), {"augmentation": True}).symmetry
    assert symmetry is not None
    half = symmetry.samples(batch)
    assert symmetry.kept(batch) == 2
    assert half.batch_size == (4,)
    assert (half[:2] == batch[:2]).all()
    assert half["obs"][2:].tolist() == [[-2.0, -1.0], [-4.0, -3.0]]
    assert half["action"][2:].tolist() == [[0.5, -0.5], [-1.0, 0.0]]
    assert torch.equal(half["raw_action"], 10 * half["action"])
    for name in ("sample_log_prob", "advantage", "return", "old_value"):
        assert torch.equal(half[name], batch[name])
    assert batch["obs"].tolist() == [[1.0, 2.0], [3.0, 4.0]] * 2


class LinearPolicy(StubPolicy):
    """The mean is ``weight * obs``, the std 1, the value the sum of the observation."""

    def __init__(self, weight: tuple[float, float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        mean = self.weight * td["obs"]
        out = {
            "log_prob": torch.distributions.Normal(mean, 1.0).log_prob(td["action"]).sum(-1),
            "entropy": torch.zeros(len(td)),
            "value": td["obs"].sum(-1),
            "mean": mean,
            "log_std": torch.zeros_like(mean),
        }
        return TensorDict(out, batch_size=td.batch_size)


def same_samples(count: int) -> TensorDict:
    """Of the state (1, 2) and the action (1, 1), collected with the density of the normal at distance 1."""
    old = -0.5 - math.log(2 * math.pi)
    fields = {"obs": [1.0, 2.0], "action": [1.0, 1.0], "sample_log_prob": old, "advantage": 1.0, "return": 4.0}
    return TensorDict({name: torch.tensor([value] * count) for name, value in fields.items()}, batch_size=[count])


def test_augmented_loss_by_hand() -> None:
    # Mean (1, 0) in the state (1, 2): squared distance 1 of (1, 1), so r = 1. The mirrored state is (-2, -1), its mean
    # (-2, 0), the mirrored action (-1, -1): squared distance 2, so r = exp((1 - 2) / 2).
    algorithm = make_ppo(LinearPolicy((1.0, 0.0)), {"augmentation": True, "mirror_loss_coef": 3.0}, vf_coef=0.5)
    loss, metrics = algorithm.loss(same_samples(2))
    r = math.exp(-0.5)
    expected = {
        "policy_loss": -(1 + r) / 2,
        "value_loss": 0.5 * ((3 - 4) ** 2 + (-3 - 4) ** 2) / 2,
        "entropy": 0.0,
        "mirror_loss": 2.5,  # the mirrored mean (1, 0) is (0, -1), in the mirrored state it is (-2, 0): (4 + 1) / 2
        "approx_kl": 0.0,  # of the sample alone
        "clip_fraction": 0.0,
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, abs=1e-6)
    assert loss.item() == pytest.approx(expected["policy_loss"] + 0.5 * expected["value_loss"] + 3.0 * 2.5)


def test_mirror_loss_alone_leaves_the_samples_as_they_are() -> None:
    policy = LinearPolicy((1.0, 0.0))
    loss, metrics = make_ppo(policy, {"augmentation": False, "mirror_loss_coef": 3.0}).loss(same_samples(1))
    plain, own = make_ppo(policy, None).loss(same_samples(1))
    assert {**own, "mirror_loss": torch.tensor(2.5)} == metrics
    assert loss.item() == pytest.approx(plain.item() + 3.0 * 2.5)
    (gradient,) = torch.autograd.grad(loss - plain, [policy.weight])
    # d/dw of 3 ((-2 w0 + 2 w1)^2 + (-w1 + w0)^2) / 2 at (1, 0): both means move
    assert gradient.tolist() == pytest.approx([3 * (4 + 1), -3 * (4 + 1)])


@pytest.mark.parametrize("lr_schedule", ["constant", "adaptive"])
def test_first_ratio_of_collected_samples_is_one(lr_schedule: str) -> None:
    policy = make_policy()
    cfg = {"n_epochs": 1, "batch_size": 256, "lr_schedule": lr_schedule}
    metrics = make_ppo(policy, {"augmentation": True, "mirror_loss_coef": 1.0}, **cfg).update(make_rollout(policy))
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-7)
    assert metrics["clip_fraction"] == 0
    assert metrics.get("kl", 0.0) == pytest.approx(0, abs=1e-7)
    assert metrics["mirror_loss"] > 0.01  # the mirror images have other ratios, as the policy is not symmetric
    assert abs(metrics["policy_loss"]) > 1e-3


def asymmetry(symmetry: dict[str, Any] | None, normalize_obs: bool) -> float:
    """Train in one quadrant; return the mean difference between mirrored and mirror image of the mean action."""
    policy = make_policy(normalize_obs)
    algorithm = make_ppo(policy, symmetry, n_epochs=4, batch_size=256, learning_rate=1e-2)
    torch.manual_seed(1)
    for _ in range(15):
        algorithm.update(make_rollout(policy))
    states = torch.rand(200, 2) * 0.8 + 0.2

    def mean(obs: torch.Tensor) -> torch.Tensor:
        return policy.get_action(TensorDict({"obs": obs}, batch_size=[len(obs)]), deterministic=True)["action"]

    return float((mean(FLIP(states)) - FLIP(mean(states))).abs().mean())


@pytest.mark.parametrize("normalize_obs", [False, True])  # by statistics of the one quadrant
@pytest.mark.parametrize(
    "symmetry", [{"augmentation": True}, {"augmentation": False, "mirror_loss_coef": 1.0}], ids=["samples", "loss"]
)
def test_policy_becomes_symmetric_where_it_never_was(symmetry: dict[str, Any], normalize_obs: bool) -> None:
    assert asymmetry(symmetry, normalize_obs) < 0.15


@pytest.mark.parametrize("normalize_obs", [False, True])
def test_without_symmetry_it_does_not(normalize_obs: bool) -> None:
    assert asymmetry(None, normalize_obs) > 0.25


def test_symmetry_needs_a_mirror_map() -> None:
    policy = make_policy()
    algorithm = PPO(PPOCfg(symmetry=SymmetryCfg()), policy)
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.symmetry: needs algorithm\.use_mirror_map"):
        algorithm.update(make_rollout(policy))


@pytest.mark.parametrize(
    "change",
    [
        {"obs_keys": ("sensor/cam/color",)},
        {"state_size": 4},
        {"chunk_length": 3},
        {"choices": (3,)},
        {"extra_fields": (("raw_action", 1), ("before_tanh", 1))},
    ],
)
def test_policy_whose_samples_have_no_mirror_images_is_refused(change: dict[str, Any]) -> None:
    policy = make_policy()
    vars(policy).update(change)
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.symmetry: samples of ActorCritic have no mirror images"):
        make_ppo(policy, {})
