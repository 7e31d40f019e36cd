"""Group relative policy optimization.

Legend: N envs, T rollout steps, G groups, K members of a group (N = G K; group g has the envs g K ... g K + K - 1),
B minibatch, L sequence length.
"""

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from tensordict import TensorDict

from embodichain.agents.rl.algo import older_policies, on_policy, optim
from embodichain.agents.rl.algo.advantages import RELATIVE_SPREAD, discounted_returns
from embodichain.agents.rl.algo.chunks import chunk_rewards, count_rows
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.buffer.rollout_buffer import check_rollout, iterate_minibatches, learning_batch
from embodichain.agents.rl.models import Policy
from embodichain.utils import configclass, raise_problems
from embodichain.utils.profiling import section


@configclass
class GRPOCfg(on_policy.AlgorithmCfg):
    """Hyperparameters of GRPO."""

    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Unused without a critic; accepted so that a config can change its algorithm by name."""
    clip_coef: PositiveFloat = 0.2
    """How far the probability ratio may leave 1 before a sample stops pushing it further."""
    ent_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the policy at the start of the training; 0: no reference policy is stored."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Environments that are compared with each other; ``trainer.num_envs`` must be a multiple of it."""
    eps: PositiveFloat = 1e-8
    """Added to a group's std before dividing by it."""
    reset_every_rollout: bool = True
    """Begin every rollout with new episodes, so that the members of a group start alike."""
    truncate_at_first_done: bool = True
    """Learn from each environment's first episode of a rollout only: later ones do not begin at the same step."""

    def problems(self, num_envs: int) -> list[str]:
        """Return the errors of these hyperparameters; see ``BaseAlgorithmCfg.problems``."""
        if num_envs % self.group_size == 0:
            return []
        return [
            f"algorithm.cfg.group_size: {num_envs} environments (trainer.num_envs) cannot be divided into groups of "
            f"{self.group_size}"
        ]


def alive_mask(done: torch.Tensor) -> torch.Tensor:
    """Return the mask of the steps up to each environment's first done one, inclusive: [N, T], like ``done``."""
    ended = done.cumsum(dim=1)
    return ended - done.to(ended.dtype) == 0


@torch.no_grad()
def group_advantages(returns: torch.Tensor, valid: torch.Tensor, group_size: int, eps: float) -> torch.Tensor:
    """Return (R - mean) / (std + eps) over the members of a group that are alive at the same step: [N, T].

    The group's mean takes the critic's place: Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning
    in Open Language Models", 2024. The std is unbiased. The advantage is 0 if fewer than two members are alive, if all
    have equal returns, and where ``valid`` is False. A return that is not finite makes the advantages of its group not
    finite at its step.

    Args:
        valid: [N, T] bool, the member is alive.
    """
    shape = (-1, group_size, returns.shape[1])
    returns_, alive = returns.reshape(shape), valid.reshape(shape)  # [G, K, T]
    count = alive.sum(dim=1, keepdim=True)  # [G, 1, T]
    mean = torch.where(alive, returns_, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    offset = torch.where(alive, returns_ - mean, 0.0)
    std = (offset.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    size = torch.where(alive, returns_.abs(), 0.0).amax(dim=1, keepdim=True)
    informative = alive & (count >= 2) & ~(std <= RELATIVE_SPREAD * size)
    return torch.where(informative, offset / (std + eps), 0.0).reshape(returns.shape)


@register_algo("grpo")
class GRPO(on_policy.OnPolicyAlgorithm):
    """PPO's surrogate with advantages from comparing the members of a group: no critic.

    After Shao et al., "DeepSeekMath", 2024, step by step instead of answer by answer. Consecutive
    environments, K at a time, begin the same episode with the same random draws. At each step t the advantage of a
    member is its discounted return from t on, less the mean of the members still alive, over their std; see
    ``group_advantages``. Returns are cut at the rollout's end: its steps must see the consequences that matter.

    Each update makes ``n_epochs`` passes over the rollout in shuffled minibatches, and descends

        - mean min(r A, clip(r) A)  -  ent_coef * mean entropy  +  kl_coef * mean KL(policy || reference)

    with Adam (eps 1e-5), the means being over valid steps. The reference, with ``kl_coef`` > 0, has the policy's
    parameters at the construction of this object, and the policy's current input statistics (see
    ``Policy.reference``). With chunks of actions a step is a decision, and ``logprob_level`` is the level of the ratio.
    """

    cfg_class = GRPOCfg
    reads_evaluated = ("log_prob", "entropy")
    cfg: GRPOCfg

    def __init__(self, cfg: GRPOCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.optimizer = self.make_optimizer(self.parameters)
        if cfg.kl_coef > 0:
            self.reference = policy.reference()

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy; see ``BaseAlgorithm.update``.

        Returns:
            Means over the minibatches without a skipped step of ``policy_loss``, ``entropy`` and ``approx_kl`` (nats an
            action), ``clip_fraction`` (share of samples whose ratio left the clip range), ``grad_norm`` (before
            clipping) and, with a reference, ``reference_kl`` (nats, per ratio); ``valid_fraction``, the share of valid
            steps, and ``informative_fraction``, the share of them with an advantage other than 0; ``learning_rate``;
            and the policy's diagnostics after the update.
        """
        cfg = self.cfg
        check_rollout(rollout)
        raise_problems(cfg.problems(rollout.batch_size[0]))
        rollout = rollout.to(self.device)
        done = rollout["done"][:, :-1]
        valid = alive_mask(done) if cfg.truncate_at_first_done else torch.ones_like(done)
        reward, discount = chunk_rewards(rollout, cfg.gamma)
        returns = discounted_returns(reward, done, discount)
        advantage = group_advantages(returns, valid, cfg.group_size, cfg.eps)
        columns = {"lag": rollout["lag"][:, :-1]} if "lag" in rollout.keys() else {}  # noqa: SIM118
        batch = learning_batch(rollout, self.policy, advantage=advantage, valid=valid, **columns)
        # Rows without a valid step are dropped; the invalid steps of other sequences are masked in the loss.
        batch = batch[batch["valid"].flatten(1).any(dim=1)] if batch.batch_dims > 1 else batch[batch["valid"]]
        if older_policies.is_rounded(self):
            batch["sample_log_prob"] = older_policies.rounded_log_prob(batch, self.evaluate(batch))
        self.add_reference(batch)

        means = optim.MetricMeans()
        for _ in range(cfg.n_epochs):
            for minibatch in iterate_minibatches(batch, cfg.batch_size, self.device):
                loss, metrics = self.loss(minibatch)
                count = count_rows(minibatch, cfg.logprob_level)
                norm = optim.gradient_step(self.optimizer, self.parameters, loss, cfg.max_grad_norm, count)
                metrics["grad_norm"] = norm
                means.add(metrics)
        scalars = means.read(
            valid_fraction=valid.float().mean(),
            informative_fraction=(advantage != 0).sum() / valid.sum(),
            **self.policy.diagnostics(),
        )
        return scalars | {"learning_rate": self.optimizer.param_groups[0]["lr"]}

    @section("loss")
    def loss(self, batch: TensorDict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to descend and, detached, the scalars to log.

        Args:
            batch: [B], or [B, L] sequences: from ``learning_batch``, with ``advantage``, ``valid`` (bool) and, with a
                reference, ``reference_log_prob``.
        """
        cfg = self.cfg
        rows = on_policy.compare(batch, self.policy.evaluate_actions(batch), cfg.logprob_level)
        ratio = (rows.log_prob - rows.old_log_prob).exp()
        objective = on_policy.clipped_surrogate(ratio, rows.advantage, cfg.clip_coef)
        policy_loss = -on_policy.masked_mean(objective, rows.mask)
        entropy = on_policy.masked_mean(rows.entropy, rows.action_mask)
        loss = policy_loss
        if cfg.ent_coef:  # 0 times an entropy that a policy does not know (NaN) would be NaN
            loss = loss - cfg.ent_coef * entropy
        metrics = {"policy_loss": policy_loss.detach(), "entropy": entropy.detach()}
        if rows.reference_log_prob is not None:
            kl = on_policy.mean_reference_kl(rows)
            loss = loss + cfg.kl_coef * kl
            metrics["reference_kl"] = kl.detach()
        with torch.no_grad():
            metrics["approx_kl"] = on_policy.masked_mean(on_policy.k3(rows.action_log_ratio), rows.action_mask)
            metrics["clip_fraction"] = on_policy.masked_mean(((ratio - 1).abs() > cfg.clip_coef).float(), rows.mask)
        return loss, metrics
