"""SAC with linear networks whose arithmetic is done by hand.

Legend: N envs, T rollout steps, B batch, E critics.

Networks have no bias: Q = w_s s + w_a a, mean = m s, log-std = l s.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.algo.off_policy import OffPolicyAlgorithm
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import SoftActorCritic
from embodichain.agents.rl.models.squash import TanhSquash
from tests.agents.rl.fakes import assert_same

UNIT = spaces.Box(-1, 1, (1,))
Row = Sequence[float]


def linear(weights: Sequence[Row]) -> nn.Linear:
    """Return a linear layer without bias, of given weights [out][in]."""
    layer = nn.Linear(len(weights[0]), len(weights), bias=False)
    layer.weight.data = torch.tensor(weights)
    return layer


def weight_of(network: nn.Module) -> Tensor:
    """Return the weights of a linear network."""
    (weight,) = network.parameters()
    return weight


def make_sac(
    critics: Sequence[Row] = ((0.5, 0.0), (2.0, 0.0)),
    actor: Sequence[Row] = ((0.3,), (0.2,)),
    action_space: spaces.Box = UNIT,
    **settings: Any,
) -> SAC:
    """Return SAC with gamma 0.5 and parameters that hardly move; ``critics`` [E][w_s, w_a], ``actor`` [[m], [l]]."""
    networks: list[nn.Module] = [linear([row]) for row in critics]
    squash = TanhSquash(action_space)
    policy = SoftActorCritic(1, 1, "cpu", linear(actor), networks, squash, False, 0.0, (-5.0, 2.0))
    default = {"gamma": 0.5, "learning_rate": 1e-30, "learning_starts": 0, "replay_capacity": 100, "batch_size": 1}
    return SAC(SACCfg(**{**default, **settings}), policy)


def make_rollout(num_envs: int = 1, num_steps: int = 1) -> TensorDict:
    """Return a rollout [N, T+1] of random steps without an end."""
    rollout = allocate_rollout(num_envs, num_steps, 1, 1, "cpu", extra_fields=(("raw_action", 1),), has_final=True)
    for name in ("obs", "reward"):
        rollout[name].normal_()
    rollout["action"].uniform_(-1, 1)
    return rollout


def make_batch(
    obs: Row = (1.0,), action: Row = (0.5,), reward: Row = (2.0,), discount: Row = (0.5,), behind: Row = (3.0,)
) -> TensorDict:
    """Return a batch [B] of transitions; ``behind`` are the observations after them."""
    columns = {name: torch.tensor(list(values)) for name, values in locals().items()}
    size = [len(obs)]
    return TensorDict(
        {
            "obs": columns["obs"].unsqueeze(1),
            "action": columns["action"].unsqueeze(1),
            "reward": columns["reward"],
            "discount": columns["discount"],
            "next": TensorDict({"obs": columns["behind"].unsqueeze(1)}, size),
        },
        size,
    )


class SameBatch:
    """Stands for a replay buffer: returns the same batch for each of one, and keeps what it was asked for."""

    def __init__(self, batch: TensorDict) -> None:
        self.batch = batch
        self.num_added = self.num_steps = 10_000
        self.asked: list[tuple[int, int, float]] = []

    def add(self, rollout: TensorDict) -> None:
        """Nothing is stored."""

    def sample(self, batch_size: int, n_steps: int, gamma: float) -> TensorDict:
        self.asked.append((batch_size, n_steps, gamma))
        return TensorDict.cat([self.batch] * batch_size)


def update(sac: SAC, batch: TensorDict | None = None, num_steps: int = 1) -> dict[str, float]:
    """Make as many gradient steps from a batch as a rollout of ``num_steps`` steps asks for."""
    sac.replay = SameBatch(make_batch() if batch is None else batch)  # type: ignore[assignment]
    return sac.update(make_rollout(num_steps=num_steps))


def check_continues(ours: OffPolicyAlgorithm, theirs: OffPolicyAlgorithm) -> None:
    """Assert that another algorithm with the state after two updates makes the third one to the last bit."""
    rollouts = [make_rollout(2, 5) for _ in range(3)]
    for rollout in rollouts[:2]:
        ours.update(rollout)
    theirs.policy.load_state_dict(copy.deepcopy(ours.policy.state_dict()))
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    theirs.replay = copy.deepcopy(ours.replay)
    for each in (ours, theirs):
        torch.manual_seed(1)
        each.update(rollouts[2])
    assert_same(dict(theirs.policy.state_dict()), dict(ours.policy.state_dict()))
    assert_same(theirs.state_dict(), ours.state_dict())
