"""An update of W processes is that of one process on the same rollout.

N = 8 environments of T = 6 steps; each of W processes has N / W of them. Minibatches of the single process are made of
those of the processes, in their order; everything else is as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.algo import build_algo, grpo, normalize_advantages, ppo
from embodichain.agents.rl.algo.grpo import alive_mask
from embodichain.agents.rl.buffer import rollout_buffer
from embodichain.agents.rl.buffer.rollout_buffer import minibatch_sizes
from embodichain.agents.rl.distributed.process_group import TorchProcessGroup
from embodichain.agents.rl.models import MLP, ActorCritic, ActorOnly, Policy
from embodichain.agents.rl.trainer.trainer import check_in_step
from tests.agents.rl.distributed import users_algorithm
from tests.agents.rl.distributed.processes import RankError, run_ranks

pytestmark = pytest.mark.e2e

N, T, OBS, A, W = 8, 6, 3, 2, 4
NUM_UPDATES = 2

# Of 48 transitions, batches of 20 of a single process leave a remainder of 8.
COMMON: dict[str, Any] = {"n_epochs": 2, "learning_rate": 0.003}
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "ppo": ("ppo", {"ent_coef": 0.01, "clip_value_coef": 0.2}, False),
    "ppo, normaliser": ("ppo", {"n_epochs": 3}, True),
    "ppo, rate and end by divergence": (
        "ppo",
        {"lr_schedule": "adaptive", "desired_kl": 1e-4, "max_kl": 0.003, "n_epochs": 6},
        True,
    ),
    "ppo, advantages by minibatch": ("ppo", {"normalize_advantages": "minibatch"}, False),
    "grpo": ("grpo", {"group_size": 2, "kl_coef": 0.1}, False),
    "grpo, normaliser": ("grpo", {"group_size": 2, "ent_coef": 0.01}, True),
    "user's": ("users_a2c", {}, True),
}


def make_policy(algorithm: str, normalize_obs: bool, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    actor, critic = MLP(OBS, A, [8], "tanh"), MLP(OBS, 1, [8], "tanh")
    if algorithm == "grpo":
        return ActorOnly(OBS, A, "cpu", actor, normalize_obs=normalize_obs)
    return ActorCritic(OBS, A, "cpu", actor, critic, normalize_obs=normalize_obs)


def make_rollout(policy: Policy, number: int, envs: slice) -> TensorDict:
    """Return the rollout of some of the N environments: what it holds does not depend on which others are there."""
    generator = torch.Generator().manual_seed(number)
    obs = 3 + 2 * torch.randn(N, T + 1, OBS, generator=generator)
    action = torch.randn(N, T + 1, A, generator=generator)
    terminated = torch.rand(N, T + 1, generator=generator) < 0.2
    fields: dict[str, Tensor] = {
        "obs": obs,
        "action": action,
        "reward": torch.randn(N, T + 1, generator=generator),
        "done": terminated,
        "terminated": terminated,
        "truncated": torch.zeros_like(terminated),
    }
    rollout = TensorDict(fields, batch_size=[N, T + 1])[envs]
    with torch.no_grad():
        new = policy.evaluate_actions(rollout)
    rollout["sample_log_prob"] = new["sample_log_prob"] + 0.1 * torch.randn(N, T + 1, generator=generator)[envs]
    rollout["value"] = new["value"]
    return rollout


def shuffled(rank: int, epoch: int, count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(1000 * epoch + rank)).argsort()


def learn(name: str, envs: slice, distributed: bool) -> list[dict[str, Tensor]]:
    """Return the policy's state after each update."""
    algorithm, settings, normalises = CASES[name]
    # ProcessGroup begin with different parameters: those of rank 0 count.
    policy = make_policy(algorithm, normalises, seed=envs.start)
    batch_size = 20 // W * (1 if distributed else W)
    learner = build_algo(
        algorithm, COMMON | settings | {"batch_size": batch_size}, policy, "cpu", distributed=distributed
    )
    states = []
    for number in range(NUM_UPDATES):
        rollout = make_rollout(policy, number, envs)
        learner.update(rollout)
        policy.update_normalizer(rollout["obs"][:, :-1])
        states.append({name: value.clone() for name, value in policy.state_dict().items()})
    return states


def in_order(rank: int, epochs: Iterator[int], count: int, device: Any) -> Tensor:
    return shuffled(rank, next(epochs), count)


def learn_as_rank(process_group: TorchProcessGroup) -> dict[str, list[dict[str, Tensor]]]:
    share = N // W
    results = {}
    for name in CASES:
        epochs = iter(range(100))
        rollout_buffer.torch.randperm = partial(in_order, process_group.rank, epochs)  # type: ignore[attr-defined]
        envs = slice(process_group.rank * share, (process_group.rank + 1) * share)
        results[name] = learn(name, envs, distributed=True)
    return results


def learn_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """Learn in this process, in minibatches that hold what those of W processes hold together."""
    epochs = iter(range(100))

    def together(flat: TensorDict, batch_size: int, device: Any) -> Iterator[TensorDict]:
        counts = rows_of_ranks(flat)
        offsets = [sum(counts[:rank]) for rank in range(W)]
        epoch = next(epochs)
        pieces = [
            (shuffled(rank, epoch, count) + offset).split(minibatch_sizes(count, batch_size // W, counts))
            for rank, (count, offset) in enumerate(zip(counts, offsets, strict=True))
        ]
        for rows in zip(*pieces, strict=True):
            yield flat[torch.cat(rows)]

    for module in (ppo, grpo, users_algorithm):
        monkeypatch.setattr(module, "iterate_minibatches", together)
    return learn(name, slice(0, N), distributed=False)


def rows_of_ranks(flat: TensorDict) -> list[int]:
    if len(flat) == N * T:
        return [N * T // W] * W
    # GRPO keeps the steps of first episodes alone.
    rollouts = [make_rollout(make_policy("grpo", False), number, slice(0, N)) for number in range(NUM_UPDATES)]
    valid = [alive_mask(rollout["done"][:, :-1]) for rollout in rollouts]
    (mask,) = (mask for mask in valid if mask.sum() == len(flat))
    return [int(part.sum()) for part in mask.chunk(W)]


@pytest.fixture(scope="module")
def learned() -> list[dict[str, list[dict[str, Tensor]]]]:
    return run_ranks(W, learn_as_rank)


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_have_the_same_bits_after_every_update(name: str, learned: list[Any]) -> None:
    for other in learned[1:]:
        for own_state, state in zip(learned[0][name], other[name], strict=True):
            assert all(torch.equal(own_state[key], state[key]) for key in own_state)
    first, second = learned[0][name]
    assert not all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", CASES)
def test_update_is_that_of_one_process_on_the_same_rollout(
    name: str, learned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, alone in zip(learned[0][name], learn_alone(name, monkeypatch), strict=True):
        for key, value in alone.items():
            torch.testing.assert_close(state[key], value, rtol=1e-4, atol=1e-5)


def be_careless(process_group: TorchProcessGroup) -> None:
    policy = make_policy("ppo", False)
    learner = build_algo("users_careless", {}, policy, "cpu", distributed=True)
    check_in_step(policy, process_group)
    learner.update(make_rollout(policy, 0, slice(4 * process_group.rank, 4 * process_group.rank + 4)))
    check_in_step(policy, process_group)


def test_algorithm_that_averages_nothing_is_found_out() -> None:
    with pytest.raises(RankError, match=r"the processes' policies have parted: .*gradient_step"):
        run_ranks(2, be_careless)


def normalize_parts(process_group: TorchProcessGroup) -> Tensor:
    return normalize_advantages(torch.tensor([[1.0, 2.0], [3.0, 10.0]])[process_group.rank])


def test_advantages_are_normalised_over_all_ranks() -> None:
    # mean 4, squared deviations 9 + 4 + 1 + 36 = 50, deviation sqrt(12.5)
    expected = torch.tensor([-3.0, -2.0, -1.0, 6.0]) / 12.5**0.5
    torch.testing.assert_close(torch.cat(run_ranks(2, normalize_parts)), expected)
