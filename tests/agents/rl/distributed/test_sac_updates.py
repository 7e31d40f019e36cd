"""SAC in W processes: equal networks after every update, and the gradient of one process with the batches of all.

Legend: N envs, T rollout steps, B batch of a process.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import SAC, build_algo
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.distributed.process_group import TorchProcessGroup
from embodichain.agents.rl.models import MLP, SoftActorCritic
from embodichain.agents.rl.models.squash import TanhSquash
from tests.agents.rl.distributed.processes import run_ranks

N, T, OBS, A, B = 2, 4, 3, 2, 8
WORLD = 2
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.003,
    "batch_size": B,
    "learning_starts": N * T,
    "updates_per_step": 0.25,  # 2 gradient steps an update
    "replay_capacity": 4 * N,
    "max_grad_norm": 1.0,
    "gamma": 0.9,
}
NUM_UPDATES = 3


def make_sac(distributed: bool, seed: int, **settings: Any) -> SAC:
    torch.manual_seed(seed)
    critics: list[nn.Module] = [MLP(OBS + A, 1, [8], "tanh") for _ in range(2)]
    squash = TanhSquash(spaces.Box(-1, 1, (A,)))
    policy = SoftActorCritic(OBS, A, "cpu", MLP(OBS, 2 * A, [8], "tanh"), critics, squash, False, 0.0, (-5.0, 2.0))
    algorithm = build_algo("sac", SETTINGS | settings, policy, "cpu", distributed=distributed)
    assert isinstance(algorithm, SAC)
    return algorithm


def make_rollout(number: int, rank: int) -> TensorDict:
    """Return a rollout of a process's own; in rank 1 every step is truncated, so that it stores half as many."""
    torch.manual_seed(100 * number + rank)
    rollout = allocate_rollout(N, T, OBS, A, "cpu", extra_fields=(("raw_action", A),), has_final=True)
    for name in ("obs", "reward"):
        rollout[name].normal_()
    rollout["action"].uniform_(-1, 1)
    rollout["final"]["obs"].normal_()
    rollout["truncated"][:, :-1] = rank == 1
    return rollout


def networks(sac: SAC) -> dict[str, Tensor]:
    """Return copies of everything that all processes have in common."""
    modules = {"policy": sac.policy, "targets": sac.target_critics, "temperature": sac.temperature}
    return {
        f"{place}.{name}": value.clone() for place, part in modules.items() for name, value in part.state_dict().items()
    }


def learn_from_own_rollouts(process_group: TorchProcessGroup) -> list[tuple[dict[str, Tensor], dict[str, float]]]:
    sac = make_sac(distributed=True, seed=process_group.rank)
    results = []
    for number in range(NUM_UPDATES):
        metrics = sac.update(make_rollout(number, process_group.rank))
        results.append((networks(sac), metrics))
    return results


@pytest.mark.e2e
def test_networks_are_bit_equal_though_each_rank_has_a_buffer() -> None:
    first, second = run_ranks(WORLD, learn_from_own_rollouts)
    for (own, own_metrics), (other, other_metrics) in zip(first, second, strict=True):
        assert own.keys() == other.keys()
        assert all(torch.equal(own[name], other[name]) for name in own)
        assert own_metrics.keys() == other_metrics.keys()
    # The last 4 slots of each environment are 4 steps, or 2 with their final observations.
    assert [metrics["replay_steps"] for _, metrics in first] == [8, 8, 8]
    assert [metrics["replay_steps"] for _, metrics in second] == [4, 4, 4]
    assert first[0][1]["critic_loss"] != second[0][1]["critic_loss"]
    assert not all(torch.equal(first[0][0][name], first[1][0][name]) for name in first[0][0])


class Batches:
    """Stands for a replay buffer with the batches of some processes, one behind the other."""

    num_added = num_steps = 1000

    def __init__(self, ranks: range) -> None:
        self._ranks = ranks
        self._number = itertools.count()

    def add(self, rollout: TensorDict) -> None:
        """Nothing is stored."""

    def sample(self, batch_size: int, n_steps: int, gamma: float) -> TensorDict:
        numbers = [next(self._number) for _ in range(batch_size // (B * len(self._ranks)))]
        return TensorDict.cat([_batch(number, rank) for number in numbers for rank in self._ranks])


def _batch(number: int, rank: int) -> TensorDict:
    generator = torch.Generator().manual_seed(1000 + 10 * number + rank)

    def normal(*shape: int) -> Tensor:
        return torch.randn(B, *shape, generator=generator)

    fields: dict[str, Any] = {
        "obs": normal(OBS),
        "action": normal(A).tanh(),
        "reward": normal(),
        "discount": 0.9 * (normal() > -1),
        "next": TensorDict({"obs": normal(OBS)}, [B]),
    }
    return TensorDict(fields, [B])


def noise_of(ranks: range) -> Callable[[Tensor], Tensor]:
    """Return what stands for ``torch.randn_like``: each process's own numbers, one behind the other."""
    calls: Iterator[int] = itertools.count()

    def noise(like: Tensor) -> Tensor:
        call = next(calls)
        return torch.cat(
            [torch.randn(B, A, generator=torch.Generator().manual_seed(10 * call + rank)) for rank in ranks]
        )

    return noise


def learn_from_batches(ranks: range, distributed: bool) -> dict[str, Tensor]:
    sac = make_sac(distributed, seed=0, batch_size=B * len(ranks))
    sac.replay = Batches(ranks)  # type: ignore[assignment]
    for _ in range(NUM_UPDATES):
        sac.update(make_rollout(0, 0))
    return networks(sac)


def learn_as_rank(process_group: TorchProcessGroup) -> dict[str, Tensor]:
    ranks = range(process_group.rank, process_group.rank + 1)
    torch.randn_like = noise_of(ranks)  # type: ignore[assignment]
    return learn_from_batches(ranks, distributed=True)


def test_update_is_that_of_one_process_with_the_batches_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run_ranks(WORLD, learn_as_rank)
    monkeypatch.setattr(torch, "randn_like", noise_of(range(WORLD)))
    alone = learn_from_batches(range(WORLD), distributed=False)
    for name, value in alone.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-5)
