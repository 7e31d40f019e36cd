"""A short GRPO of our own, into which mistakes are planted by name. Legend: N envs, T steps, K groups, G members."""

from typing import ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import AlgorithmCfg, BaseAlgorithm, clipped_surrogate
from embodichain.agents.rl.models import Policy
from embodichain.utils import configclass


@configclass
class GroupCfg(AlgorithmCfg):
    """What the doctor knows of such algorithms by their settings."""

    clip_coef: float = 0.2
    group_size: int = 4
    truncate_at_first_done: bool = True


class SickGroups(BaseAlgorithm):
    """Step-wise group advantages with the mistakes in ``bugs``; without any it is sound."""

    cfg_class = GroupCfg
    bugs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, cfg: GroupCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.cfg = cfg
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.learning_rate)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        steps = rollout[:, :-1]
        done = steps["done"].int()
        before = done.cumsum(1) - done  # how many ends there were before each step
        if "masked from the first done on" in self.bugs:
            before = done.cumsum(1)
        alive = before == 0 if "nothing masked" not in self.bugs else torch.ones_like(before, dtype=torch.bool)
        weights = self.advantages(self.returns(steps), alive) * alive
        for _ in range(self.cfg.n_epochs):
            log_prob = self.policy.evaluate_actions(steps)["sample_log_prob"]
            ratio = (log_prob - steps["sample_log_prob"]).exp()
            loss = -(clipped_surrogate(ratio, weights, self.cfg.clip_coef)).sum() / alive.sum().clamp(min=1)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.cfg.max_grad_norm)
            self.optimizer.step()
        return {"loss": float(loss.detach())}

    def returns(self, steps: TensorDict) -> Tensor:
        out, following = torch.zeros_like(steps["reward"]), torch.zeros_like(steps["reward"][:, 0])
        for t in reversed(range(steps.batch_size[1])):
            going_on = 1.0 if "returns not cut" in self.bugs else (~steps["done"][:, t]).float()
            following = steps["reward"][:, t] + self.cfg.gamma * going_on * following
            out[:, t] = following
        return out

    def advantages(self, returns: Tensor, alive: Tensor) -> Tensor:
        size = len(returns) if "one group of all" in self.bugs else self.cfg.group_size
        grouped, living = returns.reshape(-1, size, returns.shape[1]), alive.reshape(-1, size, returns.shape[1])
        if "groups interleaved" in self.bugs:
            grouped = returns.reshape(size, -1, returns.shape[1]).transpose(0, 1)
        count = living.sum(1, keepdim=True)
        mean = (grouped * living).sum(1, keepdim=True) / count.clamp(min=1)
        deviation = (((grouped - mean) * living).square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
        centred = grouped if "no baseline" in self.bugs else grouped - mean
        advantages = centred / (deviation if "no eps" in self.bugs else deviation + 1e-6)
        if "groups interleaved" in self.bugs:
            return advantages.transpose(0, 1).reshape(returns.shape)
        return advantages.reshape(returns.shape)


def with_group_bugs(*bugs: str) -> type[SickGroups]:
    """Return the class with some mistakes planted."""
    return type("Sick", (SickGroups,), {"bugs": frozenset(bugs)})
