"""Legend: N envs, O flattened observation size, A action size."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import ActorCritic, ActorCriticRecurrent, ActorOnly, RunningNormalizer, build_policy
from embodichain.agents.rl.models.squash import TanhSquash
from embodichain.utils import ConfigError
from embodichain.utils.choices import Choices


def make_policy(**settings) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(3, 2, "cpu", nn.Linear(3, 2), nn.Linear(3, 1), **settings)


def make_td(*batch_size: int) -> TensorDict:
    return TensorDict({"obs": torch.randn(*batch_size, 3)}, batch_size=list(batch_size))


def test_samples_have_the_mean_and_deviation_of_the_policy() -> None:
    policy = make_policy(init_log_std=-0.5)
    td = TensorDict({"obs": torch.ones(20_000, 3)}, batch_size=[20_000])
    policy.get_action(td)
    # standard error of the mean: 0.61 / sqrt(20000) = 0.004; five of them
    torch.testing.assert_close(td["action"].mean(0), policy.actor(torch.ones(3)).detach(), atol=0.02, rtol=0)
    torch.testing.assert_close(td["action"].std(0), torch.full((2,), math.exp(-0.5)), atol=0.02, rtol=0)


def test_evaluation_gives_the_sampled_log_prob_and_value() -> None:
    policy, td = make_policy(init_log_std=-1.0), make_td(4)
    policy.get_action(td)
    out = policy.evaluate_actions(td)
    torch.testing.assert_close(out["sample_log_prob"], td["sample_log_prob"])
    torch.testing.assert_close(out["value"], td["value"])
    # A (log std + 1/2 + 1/2 log 2 pi) with log std -1
    torch.testing.assert_close(out["entropy"], torch.full((4,), 2 * (-1 + 0.5 + 0.5 * math.log(2 * math.pi))))
    assert sorted(td.keys()) == ["action", "obs", "sample_log_prob", "value"]


def test_std_outside_its_bounds_is_held_and_comes_back() -> None:
    policy = make_policy(init_log_std=2.5)
    optimizer = torch.optim.SGD([policy.log_std], lr=0.1)
    assert policy.diagnostics()["std"].item() == pytest.approx(math.exp(2.0))
    for _ in range(20):  # descend on the entropy, whose gradient is 1: 2.5 - 20 * 0.1 = 0.5
        td = make_td(1)
        td["action"] = torch.zeros(1, 2)
        optimizer.zero_grad()
        policy.evaluate_actions(td)["entropy"].mean().backward()
        optimizer.step()
    torch.testing.assert_close(policy.log_std.detach(), torch.full((2,), 0.5))


def test_normaliser_scales_the_input_of_both_networks() -> None:
    policy = make_policy(normalize_obs=True)
    policy.update_normalizer(torch.tensor([[[1.0, 1, 1], [3.0, 3, 3]]]))  # mean 2, deviation 1
    td = TensorDict({"obs": torch.full((1, 3), 4.0)}, batch_size=[1])
    policy.get_action(td, deterministic=True)
    torch.testing.assert_close(td["action"], policy.actor(torch.full((1, 3), 2.0)).detach())
    torch.testing.assert_close(td["value"], policy.critic(torch.full((1, 3), 2.0)).detach().squeeze(-1))


S = 4


def make_recurrent() -> ActorCriticRecurrent:
    torch.manual_seed(0)
    memory, actor, critic = nn.GRUCell(2, S), nn.Linear(S + 2, 1), nn.Linear(S + 2, 1)
    return ActorCriticRecurrent(2, 1, "cpu", memory, actor, critic)


def run(policy: ActorCriticRecurrent, obs: torch.Tensor, done: torch.Tensor) -> TensorDict:
    """Act step by step as a collector does; return [B, L] with the state before each step."""
    state = torch.zeros(obs.shape[0], S)
    steps = []
    for obs_t, done_t in zip(obs.unbind(1), done.unbind(1), strict=True):
        step = policy.get_action(TensorDict({"obs": obs_t, "state": state}, batch_size=[obs.shape[0]]))
        steps.append({name: step[name] for name in ("obs", "state", "action", "sample_log_prob", "value")})
        state = step["next_state"].masked_fill(done_t[:, None], 0.0)
    fields = {name: torch.stack([step[name] for step in steps], dim=1) for name in steps[0]}
    return TensorDict(fields | {"done": done}, batch_size=done.shape)


def make_done() -> torch.Tensor:
    # episodes end inside, at the first and at the last step of a sequence of 3
    return torch.tensor([[0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 0, 1]], dtype=torch.bool)


def test_evaluated_sequences_agree_with_collection() -> None:
    policy = make_recurrent()
    taken = run(policy, torch.randn(3, 6, 2), make_done())
    for batch in (taken, taken.reshape(6, 3)):  # L = 6, and L = 3 from stored states
        out = policy.evaluate_actions(batch)
        torch.testing.assert_close(out["sample_log_prob"], batch["sample_log_prob"], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(out["value"], batch["value"], atol=1e-6, rtol=1e-6)
        assert out["mean"].shape == out["log_std"].shape == (*batch.batch_size, 1)


def test_memory_makes_a_difference() -> None:
    policy = make_recurrent()
    td = TensorDict({"obs": torch.zeros(1, 2), "state": torch.zeros(1, S)}, batch_size=[1])
    fresh = policy.get_value(td)["value"].clone()
    td["state"] = torch.ones(1, S)
    assert not torch.equal(policy.get_value(td)["value"], fresh)


def test_gradient_does_not_flow_across_the_end_of_an_episode() -> None:
    policy = make_recurrent()
    obs = torch.randn(1, 4, 2)
    batch = run(policy, obs, torch.tensor([[False, True, False, False]]))
    batch["obs"] = obs.requires_grad_()
    policy.evaluate_actions(batch)["value"][0, 3].backward()
    assert obs.grad is not None
    assert obs.grad[0].abs().sum(-1).gt(0).tolist() == [False, False, True, True]


def test_memory_begins_orthogonal_with_zero_biases() -> None:
    memory = make_recurrent().memory
    weight = memory.weight_hh  # [3 S, S]: orthogonal columns
    torch.testing.assert_close(weight.T @ weight, torch.eye(S))
    assert not memory.bias_ih.any()
    assert not memory.bias_hh.any()


ACTION = spaces.Box(np.array([-1.0, 0.0], dtype=np.float32), np.array([1.0, 4.0], dtype=np.float32))
NET: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [5], "orthogonal_init": True}}


def make_pair(**settings: Any) -> tuple[ActorOnly, ActorCritic]:
    """The policy, and the one with a critic that has the same actor."""
    torch.manual_seed(0)
    actor = nn.Linear(3, 2)
    return ActorOnly(3, 2, "cpu", actor, **settings), ActorCritic(3, 2, "cpu", actor, nn.Linear(3, 1), **settings)


@pytest.mark.parametrize("batch_size", [(4,), (4, 5)])
@pytest.mark.parametrize("squashed", [False, True])
def test_it_equals_an_actor_critic_but_for_the_value(batch_size: tuple[int, ...], squashed: bool) -> None:
    policies = make_pair(init_log_std=-0.5, normalize_obs=True, squash=TanhSquash(ACTION) if squashed else None)
    obs = torch.randn(*batch_size, 3)
    results = []
    for policy in policies:
        policy.update_normalizer(obs)
        torch.manual_seed(1)
        td = policy.get_action(TensorDict({"obs": obs}, batch_size=batch_size))
        results.append((td, policy.evaluate_actions(td)))
    (td, out), (td_with_critic, out_with_critic) = results
    for ours, theirs in ((td, td_with_critic), (out, out_with_critic)):
        assert ours["value"].shape == batch_size
        assert not ours["value"].any()
        assert set(ours.keys()) == set(theirs.keys())
        assert (ours.exclude("value") == theirs.exclude("value")).all()
    torch.testing.assert_close(out["sample_log_prob"], td["sample_log_prob"])
    assert out["mean"].shape == out["log_std"].shape == (*batch_size, 2)


def test_it_is_built_from_its_block_or_around_a_network() -> None:
    block = {"name": "actor_only", "actor": NET, "normalize_obs": True, "init_log_std": -0.5}
    policy = build_policy(block, 3, ACTION, "cpu")
    assert isinstance(policy, ActorOnly)
    assert isinstance(policy.normalizer, RunningNormalizer)
    assert policy.log_std.tolist() == [-0.5, -0.5]
    # a small last layer where the initialisation is orthogonal, as for every actor
    torch.testing.assert_close(list(policy.actor.parameters())[-2].norm(dim=1), torch.full((2,), 0.01))
    actor = nn.Linear(3, 2)
    policy = build_policy({"name": "actor_only"}, 3, ACTION, "cpu", actor=actor)
    assert isinstance(policy, ActorOnly)
    assert policy.actor is actor


def test_block_needs_an_actor_and_takes_no_critic() -> None:
    message = r"^policy: policy 'actor_only' needs an 'actor' network; the block has no 'actor'$"
    with pytest.raises(ConfigError, match=message):
        build_policy({"name": "actor_only"}, 3, ACTION, "cpu")
    with pytest.raises(ConfigError, match=r"^policy.critic: unknown key"):
        build_policy({"name": "actor_only", "actor": NET, "critic": NET}, 3, ACTION, "cpu")


MASKED = spaces.Dict({"action_mask": spaces.Box(0, 1, (5,)), "x": spaces.Box(-1, 1, (3,))})


def test_mask_of_other_choices_is_refused() -> None:
    block = {"name": "actor_only", "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}}}
    with pytest.raises(ConfigError, match=r"entry action_mask: must be \[4\], .*got \[5\]"):
        build_policy(block, 8, Choices((4,)), "cpu", observation_space=MASKED)


@pytest.mark.parametrize("name", ["actor_critic", "actor_only", "actor_critic_recurrent"])
def test_discrete_actions_are_chosen_among_what_the_mask_leaves(name: str) -> None:
    torch.manual_seed(0)
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}}
    critic = {} if name == "actor_only" else {"critic": network}
    block = {"name": name, "actor": network, "normalize_obs": False, **critic}
    policy = build_policy(block, 8, Choices((2, 3)), "cpu", observation_space=MASKED)
    assert "log_std" not in policy.state_dict()
    mask = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 1, 0, 0]]).float().repeat(50, 1)
    td = TensorDict({"obs": torch.randn(100, 8), "entries": {"action_mask": mask}}, batch_size=[100])
    td["state"] = torch.zeros(100, policy.state_size)
    policy.get_action(td)
    assert td["action"][::2].unique(dim=0).tolist() == [[0.0, 1.0], [0.0, 2.0]]
    assert td["action"][1::2].unique(dim=0).tolist() == [[1.0, 0.0]]
    batch = td if name != "actor_critic_recurrent" else td.set("done", torch.zeros(100).bool()).unsqueeze(1)
    out = policy.evaluate_actions(batch).reshape(100)
    torch.testing.assert_close(out["sample_log_prob"], td["sample_log_prob"])
    torch.testing.assert_close(policy.kl_divergence(out, out), torch.zeros(100))


def test_chunks_of_discrete_actions_are_refused() -> None:
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}}
    block = {"name": "actor_critic", "actor": network, "critic": network, "chunk_length": 2}
    with pytest.raises(ConfigError, match=r"policy\.chunk_length: discrete actions are chosen one at a time"):
        build_policy(block, 3, Choices((2,)), "cpu")
