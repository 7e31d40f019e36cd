"""Legend: N environments, B sequences, L steps of a sequence, S state size."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import ActorCriticRecurrent

S = 4


def make_policy(sequence_length: int | None = None) -> ActorCriticRecurrent:
    torch.manual_seed(0)
    memory, actor, critic = nn.GRUCell(2, S), nn.Linear(S + 2, 1), nn.Linear(S + 2, 1)
    return ActorCriticRecurrent(2, 1, "cpu", memory, actor, critic, sequence_length)


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


def test_evaluating_sequences_gives_the_log_probs_and_values_of_collection() -> None:
    policy = make_policy()
    taken = run(policy, torch.randn(3, 6, 2), make_done())
    for batch in (taken, taken.reshape(6, 3)):  # L = 6, and L = 3 from stored states
        out = policy.evaluate_actions(batch)
        torch.testing.assert_close(out["sample_log_prob"], batch["sample_log_prob"], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(out["value"], batch["value"], atol=1e-6, rtol=1e-6)
        assert out["mean"].shape == out["log_std"].shape == (*batch.batch_size, 1)


def test_memory_makes_a_difference() -> None:
    policy = make_policy()
    td = TensorDict({"obs": torch.zeros(1, 2), "state": torch.zeros(1, S)}, batch_size=[1])
    fresh = policy.get_value(td)["value"].clone()
    td["state"] = torch.ones(1, S)
    assert not torch.equal(policy.get_value(td)["value"], fresh)


def test_gradient_does_not_flow_across_the_end_of_an_episode() -> None:
    policy = make_policy()
    obs = torch.randn(1, 4, 2)
    batch = run(policy, obs, torch.tensor([[False, True, False, False]]))
    batch["obs"] = obs.requires_grad_()
    policy.evaluate_actions(batch)["value"][0, 3].backward()
    assert obs.grad is not None
    assert obs.grad[0].abs().sum(-1).gt(0).tolist() == [False, False, True, True]


def test_value_is_that_of_forward_and_leaves_the_state_alone() -> None:
    policy = make_policy()
    td = TensorDict({"obs": torch.randn(3, 2), "state": torch.randn(3, S)}, batch_size=[3])
    value = policy.get_value(td.clone())["value"]
    assert torch.equal(value, policy(td)["value"])
    assert sorted(policy.get_value(td.select("obs", "state")).keys()) == ["obs", "state", "value"]


def test_memory_begins_orthogonal_with_zero_biases() -> None:
    memory = make_policy().memory
    weight = memory.weight_hh  # [3 S, S]: orthogonal columns
    torch.testing.assert_close(weight.T @ weight, torch.eye(S))
    assert not memory.bias_ih.any()
    assert not memory.bias_hh.any()
