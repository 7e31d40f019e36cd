"""Running mean and std of the discounted returns.

Legend: N envs, T rollout steps; ... any shape, of samples.
"""

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.advantages import RELATIVE_SPREAD, discounted_returns
from embodichain.agents.rl.algo.chunks import chunk_rewards
from embodichain.agents.rl.distributed import get_process_group


class ReturnScale(nn.Module):
    """Running mean and std of the discounted returns: the units in which a critic learns.

    With V = mean + std v, the critic's v has the same Bellman equation as V, of the rewards

        r' = (r - (1 - discount) mean) / std,

    where the discount of the next value is 0 after a termination. Neither the rewards' scale nor their offset
    matters then; the best policy stays the best. The returns behind the statistics end with their rollout or truncated
    episode, and continue with the mean there. Without a spread the std is 1.
    """

    sums: torch.Tensor  # float64 [6], over all steps: 1, R, u, R^2, R u, u^2; the return is R + (1 - u) mean
    mean: torch.Tensor  # float64 []
    std: torch.Tensor  # float64 []

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("std", torch.ones((), dtype=torch.float64))

    def forward(self, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Return r' of rewards r and discounts of the next value, [...] each; a discount is 0 after a termination."""
        return ((reward - (1 - discount.double()) * self.mean) / self.std).float()

    @torch.no_grad()
    def update(self, rollout: TensorDict, gamma: float) -> None:
        """Add the returns of a rollout [N, T+1] of each process, if all are finite."""
        names = ("reward", "terminated", "truncated", "executed")
        rollout = rollout.select(*names, strict=False).to(self.sums.device)
        reward, discount = chunk_rewards(rollout, gamma)
        terminated, truncated = rollout["terminated"][:, :-1], rollout["truncated"][:, :-1]
        cost = 1 - (discount * ~terminated).double()
        r, u = (discounted_returns(x, terminated | truncated, discount) for x in (reward.double(), cost))
        terms = torch.stack([x.sum() for x in (torch.ones_like(r), r, u, r * r, r * u, u * u)])
        terms = get_process_group().sum(terms)
        self.sums += torch.where(terms.isfinite().all(), terms, 0.0)
        count, r_sum, u_sum, rr, ru, uu = self.sums
        mean = torch.where(u_sum > 0, r_sum / u_sum, 0.0)
        variance = (rr - 2 * mean * ru + mean.square() * uu) / count
        self.mean.copy_(mean)
        self.std.copy_(torch.where(variance > RELATIVE_SPREAD**2 * rr / count, variance.sqrt(), 1.0))
