"""Returns and advantages, as pure functions of tensors.

Legend: N envs, T rollout steps, G groups, K members of a group (N = G K; group g has the envs g K ... g K + K - 1);
... any shape, of samples. A time-major tensor, [T, N], has t first.
"""

from __future__ import annotations

from functools import cache

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.macro_steps import chunk_rewards
from embodichain.agents.rl.distributed import get_process_group, merged_moments, moments
from embodichain.utils import logger

EPS = 1e-8  # added to a std before dividing by it
# A std below this share of the returns' size is rounding: the returns count as equal.
_RELATIVE_SPREAD = 1e-6


class ReturnScale(nn.Module):
    """Running mean and std of the discounted returns: the units in which a critic learns.

    With V = mean + std v, the critic's v has the same Bellman equation as V, of the rewards

        r' = (r - (1 - discount) mean) / std,

    where the discount of the next value is 0 after a termination. Neither the rewards' scale nor their offset
    matters then, and what is optimal stays so. The returns behind the statistics end with their rollout or truncated
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
        self.std.copy_(torch.where(variance > _RELATIVE_SPREAD**2 * rr / count, variance.sqrt(), 1.0))


@torch.no_grad()
def compute_gae(
    rollout: TensorDict, gamma: float, gae_lambda: float, scale: ReturnScale | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute generalised advantages (Schulman et al., "High-Dimensional Continuous Control Using GAE", ICLR 2016).

    delta_t = r_t + gamma V' - V(s_t),  A_t = delta_t + gamma lambda (1 - done_t) A_{t+1},  return_t = A_t + V(s_t)

    V' is the value of the state that followed s_t: 0 where the episode terminated, ``final_value`` where it was
    truncated (slot t+1 already belongs to the next episode), else ``value`` of slot t+1. A step that is both terminated
    and truncated counts as terminated. Both cut the lambda-chain. Of chunks of k executed actions, r_t is their
    discounted sum, and gamma^k takes the place of gamma; see ``chunk_rewards``.

    Args:
        rollout: batch size [N, T+1]; has ``reward``, ``value``, ``terminated``, ``truncated``, ``final_value`` if
            any step is truncated, and ``executed`` with chunks. Of slot T only ``value`` is read.
        gamma: discount per control step.
        gae_lambda: weight of longer returns.
        scale: units of the values; None: the rewards'.

    Returns:
        Advantages and returns in the values' units, float32 [N, T] each.

    Raises:
        ValueError: a step is truncated and there is no ``final_value``.
    """
    reward, discount = chunk_rewards(rollout, gamma)
    terminated, truncated = rollout["terminated"][:, :-1], rollout["truncated"][:, :-1]
    value, next_value = rollout["value"][:, :-1], rollout["value"][:, 1:]
    final_value = rollout.get("final_value", None)
    if final_value is not None:
        next_value = torch.where(truncated, final_value[:, :-1], next_value)
    elif truncated.any():
        raise ValueError(
            "the rollout has truncated steps but no 'final_value' [N, T+1], the values of the final observations: "
            "without them a time limit cannot be told from a failure"
        )
    if scale is not None:
        reward = scale(reward, discount * ~terminated)
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    advantages = discounted_returns(delta, terminated | truncated, discount * gae_lambda)
    return advantages, advantages + value


@torch.no_grad()
def discounted_returns(reward: torch.Tensor, done: torch.Tensor, gamma: float | torch.Tensor) -> torch.Tensor:
    """Return R_t = r_t + gamma R_{t+1}, cut where an episode ended and at the rollout's end: [N, T].

    Terminated and truncated steps cut alike; there is no bootstrap.

    Args:
        reward: [N, T].
        done: [N, T] bool, terminated or truncated.
        gamma: discount of the next step; [N, T] if steps differ.
    """
    returns = torch.empty_like(reward.t())
    following = torch.zeros_like(reward[:, 0])
    decays = gamma.unbind(1) if isinstance(gamma, torch.Tensor) else [gamma] * reward.shape[1]
    steps = list(zip(reward.unbind(1), done.unbind(1), returns, decays, strict=True))
    for reward_t, done_t, out, decay in reversed(steps):
        # Filled, not multiplied by 0: a NaN of one episode must not reach the one before.
        kept = following.masked_fill(done_t, 0.0)
        if isinstance(decay, torch.Tensor):
            following = torch.addcmul(reward_t, kept, decay, out=out)
        else:  # saves one multiplication
            following = torch.add(reward_t, kept, alpha=decay, out=out)
    return returns.t()


def normalize_advantages(advantages: torch.Tensor) -> torch.Tensor:
    """Shift and scale advantages [...] to mean 0 and std 1 over all their samples, of all processes.

    A single sample stays as it is: it would be 0, and nothing would be learned.
    """
    process_group = get_process_group()
    if process_group.world_size == 1:
        if advantages.numel() == 1:
            _warn_of_one_sample()
            return advantages
        std, mean = torch.std_mean(advantages, correction=0)
    else:
        count, mean, m2 = merged_moments(process_group.gather(moments(advantages.reshape(-1, 1).double())))
        std, mean = (m2 / count).sqrt().squeeze().float(), mean.squeeze().float()
    return (advantages - mean) / (std + EPS)


@cache
def _warn_of_one_sample() -> None:
    logger.log_warning("an advantage is not normalised where it is the only one: see algorithm.cfg.batch_size")


def explained_variance(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return 1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 as good as a constant, below 0 worse than one.

    It is 0 if the target does not vary. ``prediction`` and ``target`` have the same shape.
    """
    variance = target.var(correction=0)
    return torch.where(variance == 0, 0.0, 1 - (target - prediction).var(correction=0) / variance)


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
        returns: R, [N, T].
        valid: [N, T] bool, the member is alive.
        group_size: K.
        eps: added to the std.
    """
    shape = (-1, group_size, returns.shape[1])
    returns_, alive = returns.reshape(shape), valid.reshape(shape)  # [G, K, T]
    count = alive.sum(dim=1, keepdim=True)  # [G, 1, T]
    mean = torch.where(alive, returns_, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    offset = torch.where(alive, returns_ - mean, 0.0)
    std = (offset.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    size = torch.where(alive, returns_.abs(), 0.0).amax(dim=1, keepdim=True)
    informative = alive & (count >= 2) & ~(std <= _RELATIVE_SPREAD * size)
    return torch.where(informative, offset / (std + eps), 0.0).reshape(returns.shape)
