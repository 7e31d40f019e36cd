"""SAC into which mistakes are planted by name. Legend: N envs, T rollout steps, E critics."""

from __future__ import annotations

from typing import ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.algo.sac import soft_target
from embodichain.agents.rl.buffer import ReplayBuffer
from embodichain.agents.rl.models import Policy, SoftActorCritic


class SickSAC(SAC):
    """SAC with the mistakes in ``bugs``; without any it is sound."""

    bugs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, cfg: SACCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        bugs = self.bugs
        if "one critic's parameters" in bugs:
            rate = cfg.learning_rate
            self.critic_optimizer = self.make_optimizer(list(self.policy.critics[0].parameters()), rate=rate)
        if "no target networks" in bugs:
            self.target_critics = self.policy.critics

    def prepare(self, rollout: TensorDict) -> None:
        self.replay = _SickReplay(self.cfg.replay_capacity, rollout, self.bugs)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        bugs = self.bugs
        seen = rollout.clone()
        step = seen[:, :-1]
        if "rewards scaled in place" in bugs:
            rollout["reward"].mul_(0.5)
        if "final observation changed in place" in bugs:
            rollout["final"]["obs"].add_(1.0)
        if "bootstrap at termination" in bugs:
            seen["terminated"][:] = False
        if "truncation as termination" in bugs:
            seen["terminated"] |= seen["truncated"]
        if "new episode at truncation" in bugs:
            seen["truncated"][:] = False
        if "observation before the last at truncation" in bugs:
            seen["final"]["obs"][:] = seen["obs"]
        if "end of the rollout as termination" in bugs:
            seen["terminated"][:, -2] = True
        if "rewards transposed" in bugs:
            reward = step["reward"]
            seen["reward"][:, :-1] = reward.t().reshape(reward.shape).clone()
        if "actions of other transitions" in bugs:
            seen["action"][:, :-1] = step["action"].roll(1, 0)
        if "n steps run on" in bugs and self.cfg.n_steps > 1:
            seen["terminated"][:] = False
        if "n steps run on after truncation" in bugs and self.cfg.n_steps > 1:
            seen["truncated"][:] = False
        metrics = super().update(seen)
        if "loss is NaN" in bugs:
            return metrics | {"critic_loss": float("nan")}
        return metrics

    def _target(self, batch: TensorDict) -> Tensor:
        if not self.bugs & {"no entropy in targets", "entropy sign in targets", "target of each critic"}:
            return super()._target(batch)
        with torch.no_grad():
            action, log_prob = self.policy.sample(batch["next"])
            values = self.policy.action_values(batch["next"], action, self.target_critics)
            sign = {"no entropy in targets": 0.0, "entropy sign in targets": 1.0}
            weights = [sign[bug] for bug in self.bugs if bug in sign] or [-1.0]
            bonus = self.cfg.entropy_in_targets * weights[0] * self.temperature() * log_prob
            reduced = values if "target of each critic" in self.bugs else self._reduce(values)
            return soft_target(batch["reward"], batch["discount"], reduced, bonus)

    def _improve_actor(self, batch: TensorDict) -> dict[str, Tensor]:
        bugs, policy, plain = self.bugs, self.policy, self.policy.sample
        if bugs & {"actor sign", "actor detached", "no entropy for the actor", "entropy sign for the actor"}:
            policy.sample = lambda td: self._sick_sample(*plain(td))  # type: ignore[method-assign]
        if "actor at other observations" in bugs:
            valued = policy.action_values
            rolled = TensorDict({"obs": batch["obs"].flip(-1)}, batch.batch_size)
            policy.action_values = lambda td, a, critics=None: valued(rolled, a)  # type: ignore
        if bugs & {"temperature sign", "temperature kept"}:
            self.temperature.log.register_hook(lambda g: -g if "temperature sign" in bugs else 0 * g)
        try:
            return super()._improve_actor(batch)
        finally:
            for name in ("sample", "action_values"):
                vars(policy).pop(name, None)

    def _sick_sample(self, action: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        if "actor detached" in self.bugs:
            action = action.detach()
        if "actor sign" in self.bugs:
            action = action.detach() - (action - action.detach())
        if "no entropy for the actor" in self.bugs:
            log_prob = log_prob.detach()
        if "entropy sign for the actor" in self.bugs:
            log_prob = log_prob.detach() - (log_prob - log_prob.detach())
        return action, log_prob

    def _step(self, optimizer: torch.optim.Adam, loss: Tensor) -> Tensor:
        if "no optimizer step" in self.bugs:
            return loss.detach()
        if "critics have no step" in self.bugs and optimizer is self.critic_optimizer:
            return loss.detach()
        if "no gradient clipping" in self.bugs:
            self.cfg.max_grad_norm = None
        return super()._step(optimizer, loss)

    def _reduce(self, values: Tensor) -> Tensor:
        if "highest critic" in self.bugs:
            return values.max(0).values
        return values.mean(0) if "always the mean" in self.bugs else super()._reduce(values)

    def _move_targets(self) -> None:
        tau = self.cfg.tau
        if "tau of the old" in self.bugs:
            self.cfg.tau = 1 - tau
        if "targets never move" in self.bugs:
            self.cfg.tau = 0.0
        super()._move_targets()
        self.cfg.tau = tau


class _SickReplay(ReplayBuffer):
    """Samples with the mistakes in ``bugs``."""

    def __init__(self, capacity: int, rollout: TensorDict, bugs: frozenset[str]) -> None:
        super().__init__(capacity, rollout)
        self._bugs = bugs

    def _begins_elsewhere(self, rollout: TensorDict) -> Tensor:
        differs = super()._begins_elsewhere(rollout)
        return torch.zeros_like(differs) if "next rollout behind the last step" in self._bugs else differs

    def sample(self, batch_size: int, n_steps: int, gamma: float) -> TensorDict:
        bugs = self._bugs
        batch = super().sample(batch_size, n_steps, 1.0 if "no discount" in bugs else gamma)
        if "discount twice" in bugs:
            batch["discount"] = batch["discount"] * gamma
        if "one discount for n steps" in bugs:
            batch["discount"] = torch.where(batch["discount"] > 0, gamma, 0.0)
        return batch


def with_sac_bugs(*bugs: str) -> type[SickSAC]:
    """Return the class with some mistakes planted."""
    return type("SickSAC", (SickSAC,), {"bugs": frozenset(bugs)})


class OwnPolicy(SoftActorCritic):
    """A policy that the checks do not have."""


class Particular(SAC):
    """Improves policies that the checks do not have."""

    policy_class = OwnPolicy
