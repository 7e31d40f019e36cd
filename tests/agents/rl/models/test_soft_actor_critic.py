"""Legend: N envs, O flattened observation size, A action size, E critics."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.distributions.transforms import AffineTransform

from embodichain.agents.rl.models import SoftActorCritic, build_policy
from embodichain.agents.rl.models.squash import TanhSquash
from embodichain.utils import ConfigError
from tests.agents.rl.algo.linear_sac import linear, weight_of
from tests.agents.rl.algo.test_sac import ENCODER
from tests.agents.rl.algo.test_sac import MLP_BLOCK as MLP

# Centres 0 and 3, half-ranges 1 and 3.
ACTION = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 6], np.float32))
CNN: dict[str, Any] = {
    "type": "cnn",
    "keys": ["camera"],
    "network_cfg": {"channels": [2], "kernel_sizes": [2], "strides": [2], "hidden_sizes": [3]},
}
# The flat observation: a (2 numbers), b (1), in this order; the image is none of it.
OBSERVATION = spaces.Dict(
    {
        "a": spaces.Box(-1, 1, (2,)),
        "b": spaces.Box(-1, 1, (1,)),
        "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    }
)


def make_policy(
    actor: list[list[float]],
    critics: list[list[float]] | None = None,
    action_space: spaces.Box = ACTION,
    init_log_std: float = 0.0,
    log_std_range: tuple[float, float] = (-5.0, 2.0),
) -> SoftActorCritic:
    """Return a policy of linear networks: actor [2 A][O], critics [E][O + A]."""
    action_dim = action_space.shape[0]
    networks: list[nn.Module] = [linear([row]) for row in critics or [[0.0] * (len(actor[0]) + action_dim)]]
    return SoftActorCritic(
        len(actor[0]),
        action_dim,
        "cpu",
        linear(actor),
        networks,
        TanhSquash(action_space),
        normalize_obs=False,
        init_log_std=init_log_std,
        log_std_range=log_std_range,
    )


def built(observation_space: spaces.Dict | None = None, **block: Any) -> SoftActorCritic:
    torch.manual_seed(0)
    default = {"name": "soft_actor_critic", "actor": MLP, "critic": MLP}
    policy = build_policy({**default, **block}, 3, ACTION, "cpu", observation_space=observation_space)
    assert isinstance(policy, SoftActorCritic)
    return policy


def td_of(obs: Tensor, **fields: Any) -> TensorDict:
    return TensorDict({"obs": obs, **fields}, batch_size=obs.shape[:-1])


# The means are o and -o, the log-stds o / 2 and o - 1.
STATE_DEPENDENT = [[1.0], [-1.0], [0.5], [1.0]]
STATE_DEPENDENT_OBS = torch.tensor([[-1.0], [0.0], [0.5], [1.0]])


def reference_distribution() -> TransformedDistribution:
    o = STATE_DEPENDENT_OBS
    mean, log_std = torch.cat((o, -o), 1), torch.cat((o / 2, o - 1), 1)
    squash = [TanhTransform(), AffineTransform(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 3.0]))]
    normal = Normal(mean, log_std.exp())
    return TransformedDistribution(Independent(normal, 1), squash)


def offset_policy() -> SoftActorCritic:
    """The policy of ``reference_distribution``, whose second log-std is less by 1."""
    policy = make_policy(STATE_DEPENDENT)
    policy.actor = nn.Sequential(policy.actor, Offset(torch.tensor([0.0, 0.0, 0.0, -1.0])))
    return policy


class Offset(nn.Module):
    """Adds numbers."""

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, x: Tensor) -> Tensor:
        return x + self.numbers


def test_log_prob_equals_torchs_with_a_std_by_state() -> None:
    torch.manual_seed(0)
    td = offset_policy().get_action(td_of(STATE_DEPENDENT_OBS))
    torch.testing.assert_close(td["sample_log_prob"], reference_distribution().log_prob(td["action"]))


def test_sampled_log_prob_is_of_the_action_scaled_to_one() -> None:
    torch.manual_seed(0)
    policy = offset_policy()
    scaled, log_prob = policy.sample(td_of(STATE_DEPENDENT_OBS))
    # The scaled action's density is half-range times as high: log 1 + log 3 more.
    expected = reference_distribution().log_prob(policy.squash.centre + policy.squash.half_range * scaled) + math.log(3)
    torch.testing.assert_close(log_prob, expected)


def test_sample_has_the_gradient_of_the_reparameterisation() -> None:
    policy = make_policy([[0.3], [0.2]], action_space=spaces.Box(-1, 1, (1,)))
    obs = torch.ones(1, 1)
    torch.manual_seed(0)
    action, _ = policy.sample(td_of(obs))
    torch.manual_seed(0)
    noise = torch.randn(1, 1)
    action.sum().backward()
    # a = tanh(m + exp(s) e): da/dm = 1 - a^2, da/ds = (1 - a^2) exp(s) e
    slope = 1 - action.item() ** 2
    expected = [[slope], [slope * math.exp(0.2) * noise.item()]]
    assert weight_of(policy.actor).grad is not None
    torch.testing.assert_close(weight_of(policy.actor).grad, torch.tensor(expected))


@pytest.mark.parametrize(("slope_floor", "gradient"), [(0.0, [2.0, -2.0]), (1e-6, [0.0, 0.0])])
def test_entropy_pulls_back_from_bounds_without_a_slope_floor(slope_floor: float, gradient: list[float]) -> None:
    # Actions of u = 10 and u = -10, nearly without noise: the gradient of log pi by u is 2 tanh(u), 2 and -2. With the
    # floor it is 2 (1 - a^2) / (1 - a^2 + 1e-6), and in float32 (tanh rounds to 1) 0.
    linear_actor = {"type": "mlp", "network_cfg": {"hidden_sizes": []}}
    policy = built(actor=linear_actor, log_std_range=[-20.0, 2.0], slope_floor=slope_floor)
    (weight, bias) = policy.actor.parameters()
    with torch.no_grad():
        weight.zero_()
        bias.copy_(torch.tensor([10.0, -10.0, -8.0, -8.0]))
    _, log_prob = policy.sample(td_of(torch.zeros(1, 3)))
    log_prob.sum().backward()
    assert bias.grad is not None
    assert bias.grad[:2].tolist() == gradient


def test_log_std_begins_at_its_initial_value_and_is_bounded() -> None:
    # Outputs of 0, 10 and -10 beside an initial log-std of -1, in the range [-2, 1].
    policy = make_policy([[0.0], [10.0]], action_space=spaces.Box(-1, 1, (1,)), init_log_std=-1, log_std_range=(-2, 1))
    obs = torch.tensor([[0.0], [1.0], [-1.0]])
    out = policy.evaluate_actions(td_of(obs, raw_action=torch.zeros(3, 1)))
    assert out["log_std"].flatten().tolist() == [-1, 1, -2]
    # At the upper bound the gradient lives where descent leads back inside.
    out["log_std"].sum().backward()
    # d log_std / dw is o: 0 + 1, and of the lower bound nothing, where descent leads further out.
    gradient = weight_of(policy.actor).grad
    assert gradient is not None
    assert gradient.flatten().tolist() == [0, 1]


@pytest.mark.parametrize("batch_size", [(4,), (4, 5)])
def test_evaluation_agrees_with_the_choice(batch_size: tuple[int, ...]) -> None:
    policy = built(normalize_obs=True)
    obs = torch.randn(*batch_size, 3)
    policy.update_normalizer(3 * obs + 1)
    td = policy.get_action(td_of(obs))
    assert td["action"].shape == td["raw_action"].shape == (*batch_size, 2)
    assert policy.extra_fields == (("raw_action", 2),)
    assert not td["value"].any()
    out = policy.evaluate_actions(td)
    torch.testing.assert_close(out["sample_log_prob"], td["sample_log_prob"])
    assert out["entropy"].shape == batch_size
    assert set(out.keys()) & set(policy.evaluates) == {"entropy"}  # the log-probability has its longer name
    assert "value" not in out.keys()  # noqa: SIM118


def test_critics_read_the_observation_and_the_scaled_action() -> None:
    policy = make_policy([[0.0], [0.0], [0.0], [0.0]], [[1.0, 10.0, 100.0], [2.0, 0.0, 0.0]])
    # Actions 0.5 and 4.5 are 0.5 and (4.5 - 3) / 3 = 0.5 of their half-ranges.
    scaled = policy.scaled(torch.tensor([[0.5, 4.5]]))
    values = policy.action_values(td_of(torch.tensor([[3.0]])), scaled)
    assert values.tolist() == [[3 + 5 + 50], [6]]  # [E, 1]
    others = nn.ModuleList([linear([[0.0, 1.0, 0.0]])])
    assert policy.action_values(td_of(torch.tensor([[3.0]])), scaled, others).tolist() == [[0.5]]


def inputs_that_matter(value: Tensor, *inputs: Tensor) -> list[list[bool]]:
    gradients = torch.autograd.grad(value.sum(), inputs, allow_unused=True)
    return [[] if g is None else (g.abs().sum(0) > 0).tolist() for g in gradients]


def test_each_network_reads_its_group_and_critics_the_action() -> None:
    policy = built(OBSERVATION, obs_groups={"actor": ["a"], "critic": ["b"]})
    obs, action = torch.randn(16, 3, requires_grad=True), torch.rand(16, 2, requires_grad=True)
    values = policy.action_values(td_of(obs), action)
    assert inputs_that_matter(values, obs, action) == [[False, False, True], [True, True]]
    chosen = policy.forward(td_of(obs), deterministic=True)["action"]
    assert inputs_that_matter(chosen, obs) == [[True, True, False]]


def test_critics_of_images_read_the_action_too() -> None:
    policy = built(OBSERVATION, critic=CNN)
    assert policy.obs_keys == ("camera",)
    obs, action = torch.randn(8, 3, requires_grad=True), torch.rand(8, 2, requires_grad=True)
    image = torch.randint(256, (8, 4, 4, 3), dtype=torch.uint8)
    entries = TensorDict({"camera": image}, batch_size=[8])
    values = policy.action_values(td_of(obs, entries=entries), action)
    assert values.shape == (2, 8)
    assert inputs_that_matter(values, obs, action) == [[True] * 3, [True] * 2]
    other = TensorDict({"camera": 255 - image}, batch_size=[8])
    assert not torch.allclose(policy.action_values(td_of(obs, entries=other), action), values)


def td_with_images(*batch_size: int) -> TensorDict:
    images = torch.randint(256, (*batch_size, 4, 4, 3), dtype=torch.uint8)
    entries = TensorDict({"camera": images}, batch_size=batch_size)
    return td_of(torch.randn(*batch_size, 3), entries=entries)


@pytest.mark.parametrize("batch_size", [(4,), (4, 5)])
def test_actor_and_critics_share_the_features_of_an_encoder(batch_size: tuple[int, ...]) -> None:
    policy = built(OBSERVATION, encoder=ENCODER, obs_groups={"actor": ["b"]}, normalize_obs=True)
    policy.update_normalizer(3 * torch.randn(50, 3) + 1)
    assert policy.obs_keys == ("camera",)
    td = policy.encode(td_with_images(*batch_size))
    assert td["encoded"].shape == (*batch_size, 3 + 3)
    torch.testing.assert_close(td["encoded"][..., :3], policy.normalizer(td["obs"]))
    # The actor reads b and the 3 features; critics all, and 2 actions.
    assert next(policy.actor.parameters()).shape == (5, 1 + 3)
    assert next(policy.critics.parameters()).shape == (2, 3 + 3 + 2, 5)
    action = torch.rand(*batch_size, 2)
    plain = td.exclude("encoded")
    assert torch.equal(policy.action_values(td, action), policy.action_values(plain, action))
    chosen, mean = policy.get_action(plain.clone(), True)["action"], policy.get_action(td.clone(), True)["action"]
    assert torch.equal(chosen, mean)
    assert chosen.shape == (*batch_size, 2)
    plain["entries", "camera"] = 255 - plain["entries", "camera"]
    assert not torch.allclose(policy.action_values(plain, action), policy.action_values(td, action))
    assert not torch.allclose(policy.get_action(plain, True)["action"], chosen)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"keys": ["camra"]}, "policy.encoder.keys: unknown image 'camra'"),
        ({"network_cfg": {}}, "image 'camera' [4, 4, 3] is too small for convolutions"),
    ],
)
def test_wrong_encoder_is_one_line(encoder: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        built(OBSERVATION, encoder={**ENCODER, **encoder})
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_it_is_built_around_an_actor_of_the_users() -> None:
    actor = nn.Linear(3, 4)
    policy = build_policy({"name": "soft_actor_critic", "critic": MLP}, 3, ACTION, "cpu", actor=actor)
    assert isinstance(policy, SoftActorCritic)
    assert policy.actor is actor
    with pytest.raises(ConfigError, match="builds several critics from its block"):
        build_policy({"name": "soft_actor_critic", "actor": MLP}, 3, ACTION, "cpu", critic=nn.Linear(5, 1))


BOUNDLESS = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, np.inf, (2,)), "finite bounds, each low below its high, got Box"),
        (spaces.Box(-BOUNDLESS, BOUNDLESS, (2,)), "each low below its high, got Box"),
        (spaces.Box(np.array([-1, 1], np.float32), np.array([1, 1], np.float32)), "each low below its high, got Box"),
        (2, "finite bounds, got 2"),
    ],
)
def test_actions_without_bounds_are_refused(space: Any, words: str) -> None:
    block = {"name": "soft_actor_critic", "actor": MLP, "critic": MLP}
    with pytest.raises(ConfigError, match=r"^policy.name: soft_actor_critic: needs an action space with ") as error:
        build_policy(block, 3, space, "cpu")
    assert words in str(error.value)
