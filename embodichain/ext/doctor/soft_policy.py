"""Small soft actor-critics, and their values.

Legend: S states, A action size, E critics.
"""

from __future__ import annotations

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.models import SoftActorCritic, TanhSquash

_LOG_STD_RANGE = (-5.0, 2.0)
_NUM_SAMPLES = 4096


class ActionTable(nn.Module):
    """Q(s, a) = c_0(s) + c_1(s) a + c_2(s) a^2 for each of S states, all 0 at first: [..., S + 1] -> [..., 1]."""

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(3, num_states))

    def forward(self, x: Tensor) -> Tensor:
        """Return the values of observations, one-hot, with an action behind them."""
        state, action = x[..., :-1], x[..., -1:]
        powers = torch.cat((torch.ones_like(action), action, action.square()), dim=-1)
        return ((state @ self.coefficients.T) * powers).sum(-1, keepdim=True)


def soft_table_policy(num_states: int, init_log_std: float = 0.0) -> SoftActorCritic:
    """Return a tabular policy of an action in [-1, 1]: mean 0 and an own log-std in each state, twin critics of 0."""
    actor = nn.Linear(num_states, 2, bias=False)
    nn.init.zeros_(actor.weight)
    return _policy(num_states, 1, actor, [ActionTable(num_states), ActionTable(num_states)], init_log_std)


def random_soft_policy(obs_dim: int, action_dim: int) -> SoftActorCritic:
    """Return a policy of random linear networks with an input normaliser."""
    critics: list[nn.Module] = [nn.Linear(obs_dim + action_dim, 1) for _ in range(2)]
    return _policy(obs_dim, action_dim, nn.Linear(obs_dim, 2 * action_dim), critics, normalize_obs=True)


def _policy(
    obs_dim: int,
    action_dim: int,
    actor: nn.Module,
    critics: list[nn.Module],
    init_log_std: float = 0.0,
    normalize_obs: bool = False,
) -> SoftActorCritic:
    squash = TanhSquash(spaces.Box(-1, 1, (action_dim,)))
    return SoftActorCritic(
        obs_dim, action_dim, "cpu", actor, critics, squash, normalize_obs, init_log_std, _LOG_STD_RANGE
    )


@torch.no_grad()
def action_values(policy: SoftActorCritic, num_states: int, action: float = 0.0) -> Tensor:
    """Return each critic's value of an action in each state, [E, S]."""
    return policy.action_values(_states(num_states), torch.full((num_states, 1), action))


@torch.no_grad()
def entropy(policy: SoftActorCritic) -> float:
    """Return the entropy of the action in the first state, nats, estimated from samples."""
    obs = _states(policy.obs_dim)["obs"][:1].expand(_NUM_SAMPLES, -1)
    _, log_prob = policy.sample(TensorDict({"obs": obs}, batch_size=[_NUM_SAMPLES]))
    return -float(log_prob.mean())


def _states(num_states: int) -> TensorDict:
    return TensorDict({"obs": torch.eye(num_states)}, batch_size=[num_states])
