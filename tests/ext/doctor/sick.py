"""A short PPO of our own, into which mistakes are planted by name. Legend: N envs, T rollout steps, B minibatch."""

from typing import ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import BaseAlgorithm, PPOCfg
from embodichain.agents.rl.models import Policy


class SickPPO(BaseAlgorithm):
    """PPO with the mistakes in ``bugs``; without any it is sound."""

    cfg_class = PPOCfg
    bugs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, cfg: PPOCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.cfg = cfg
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.learning_rate, eps=1e-5)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        bugs = self.bugs
        if "normaliser updated early" in bugs:
            self.policy.update_normalizer(rollout["obs"][:, :-1])
        advantages, returns = self.gae(rollout)
        if "returns transposed" in bugs:
            returns = returns.t().reshape(returns.shape)
        deviation = advantages.std(correction=0)
        if "std of each environment" in bugs:
            deviation = advantages.std(1, keepdim=True)
        advantages = (advantages - advantages.mean()) / (deviation if "no eps" in bugs else deviation + 1e-8)
        if "advantages transposed" in bugs:
            advantages = advantages.t().reshape(advantages.shape)
        if "advantage sign" in bugs:
            advantages = -advantages
        obs = rollout["obs"][:, 1:] if "obs shifted by one" in bugs else rollout["obs"][:, :-1]
        if "obs normalised" in bugs:
            obs = obs / 2.0
        action = rollout["action"][:, :-1]
        if "indices clipped" in bugs and self.policy.choices:
            action = action.clamp(-1, 1)
        batch = TensorDict(
            {
                "obs": obs,
                "action": action.clamp(-1, 1) if "actions clipped" in bugs else action,
                "sample_log_prob": rollout["sample_log_prob"][:, :-1],
                "advantage": advantages,
                "return": returns,
            },
            batch_size=advantages.shape,
        ).reshape(-1)
        if "log-probs of other samples" in bugs:
            batch["sample_log_prob"] = batch["sample_log_prob"].roll(1)
        for _ in range(self.cfg.n_epochs):
            loss = self.loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            if "no gradient clipping" not in bugs:
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.cfg.max_grad_norm)
            if "no optimizer step" not in bugs:
                self.optimizer.step()
        if "rewards scaled in place" in bugs:
            rollout["reward"].mul_(0.5)
        if "loss is not returned" in bugs:
            return None  # type: ignore[return-value]
        return {"loss": float("nan") if "loss is NaN" in bugs else float(loss.detach())}

    def loss(self, batch: TensorDict) -> Tensor:
        cfg, bugs = self.cfg, self.bugs
        new = self.policy.evaluate_actions(batch)
        ratio = (new["sample_log_prob"] - batch["sample_log_prob"]).exp()
        advantage = batch["advantage"]
        clipped = ratio.clamp(1 - cfg.clip_coef, 1 + cfg.clip_coef) * advantage
        surrogate = torch.min(ratio * advantage, clipped)
        if "reads the mean" in bugs:
            surrogate = surrogate - 0.0 * new["mean"].sum(-1)
        if "no ratio clipping" in bugs:
            surrogate = ratio * advantage
        if "ratio always clipped" in bugs:
            surrogate = clipped
        if "actor detached" in bugs:
            surrogate = surrogate.detach()
        value_loss = 0.5 * (new["value"] - batch["return"]).square().mean()
        entropy = cfg.ent_coef * new["entropy"].mean()
        if "no value loss" in bugs:
            value_loss = 0.0 * value_loss
        if "no entropy" in bugs:
            entropy = 0.0 * entropy
        return -surrogate.mean() + cfg.vf_coef * value_loss + (entropy if "entropy sign" in bugs else -entropy)

    def gae(self, rollout: TensorDict) -> tuple[Tensor, Tensor]:
        bugs, gamma = self.bugs, self.cfg.gamma
        value, following, final = rollout["value"][:, :-1], rollout["value"][:, 1:], rollout["final_value"][:, :-1]
        terminated, truncated = rollout["terminated"][:, :-1], rollout["truncated"][:, :-1]
        if "no bootstrap at the rollout's end" in bugs:
            following = torch.cat((following[:, :-1], torch.zeros_like(following[:, :1])), dim=1)
        if "bootstrap from slot T-1 at the rollout's end" in bugs:
            following = torch.cat((following[:, :-1], value[:, -1:]), dim=1)
        if "value before the last at truncation" in bugs:
            final = value
        if "value of the new episode at truncation" not in bugs:
            following = torch.where(truncated, final, following)
        if "bootstrap at termination" not in bugs:
            following = following * ~terminated
        if "truncation as termination" in bugs:
            following = following * ~truncated
        if "no discount" in bugs:
            gamma = 1.0
        delta = rollout["reward"][:, :-1] + gamma * following - value
        cut = terminated | truncated
        if "chain not cut" in bugs:
            cut = torch.zeros_like(cut)
        if "chain not cut at truncation" in bugs:
            cut = terminated
        advantages = torch.zeros_like(delta)
        last = torch.zeros_like(delta[:, 0])
        for t in reversed(range(delta.shape[1])):
            last = delta[:, t] + gamma * self.cfg.gae_lambda * ~cut[:, t] * last
            advantages[:, t] = last
        return advantages, advantages + value


def with_bugs(*bugs: str) -> type[SickPPO]:
    """Return the class with some mistakes planted."""
    return type("Sick", (SickPPO,), {"bugs": frozenset(bugs)})
