"""GRPO's maths, as pure functions of tensors.

Legend: N envs, T rollout steps, G groups, K members of a group (N = G K; group g has the envs g K ... g K + K - 1);
... any shape, of samples.
"""

from __future__ import annotations

import torch

from embodichain.agents.rl.algo.common import k3

__all__ = ["alive_mask", "discounted_returns", "group_advantages", "reference_kl"]

# A deviation below this share of the returns' size is rounding: the members did equally well.
_RELATIVE_SPREAD = 1e-6


@torch.no_grad()
def discounted_returns(reward: torch.Tensor, done: torch.Tensor, gamma: float | torch.Tensor) -> torch.Tensor:
    """Return R_t = r_t + gamma R_{t+1}, cut where an episode ended and at the rollout's end: [N, T].

    Nothing stands in for what would have followed: there is no critic. Both kinds of ends cut alike, and so does the
    rollout's end. The members of a group have the same number of steps left, so that they lose alike.

    Args:
        reward: [N, T].
        done: [N, T] bool, terminated or truncated.
        gamma: discount of what follows a step; where steps differ, [N, T].
    """
    returns = torch.empty_like(reward.t())
    following = torch.zeros_like(reward[:, 0])
    for t in range(reward.shape[1] - 1, -1, -1):
        # Filled, not multiplied by 0: what is not finite in one episode must not reach the one before.
        kept = following.masked_fill(done[:, t], 0.0)
        if isinstance(gamma, torch.Tensor):
            following = torch.addcmul(reward[:, t], kept, gamma[:, t], out=returns[t])
        else:
            following = torch.add(reward[:, t], kept, alpha=gamma, out=returns[t])
    return returns.t()


def alive_mask(done: torch.Tensor) -> torch.Tensor:
    """Return which steps belong to each environment's first episode of the rollout, the last one included: [N, T].

    Args:
        done: [N, T] bool.
    """
    ended = done.cumsum(dim=1)
    return ended - done.to(ended.dtype) == 0


@torch.no_grad()
def group_advantages(returns: torch.Tensor, valid: torch.Tensor, group_size: int, eps: float) -> torch.Tensor:
    """Return (R - mean) / (deviation + eps) over the members of a group that are alive at the same step: [N, T].

    The group's mean takes the critic's place: Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning
    in Open Language Models", 2024. The deviation is the unbiased one. The advantage is 0 where fewer than two members
    are alive, where all did equally well, and where ``valid`` is False. A return that is not finite makes the
    advantages of its group so, at its step: it does not pass for one that is equal to the others.

    Args:
        returns: R, [N, T].
        valid: [N, T] bool, the member is alive.
        group_size: K.
        eps: added to the deviation.
    """
    shape = (-1, group_size, returns.shape[1])
    returns_, alive = returns.reshape(shape), valid.reshape(shape)  # [G, K, T]
    count = alive.sum(dim=1, keepdim=True)  # [G, 1, T]
    mean = torch.where(alive, returns_, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    offset = torch.where(alive, returns_ - mean, 0.0)
    deviation = (offset.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    size = torch.where(alive, returns_.abs(), 0.0).amax(dim=1, keepdim=True)
    informative = alive & (count >= 2) & ~(deviation <= _RELATIVE_SPREAD * size)
    return torch.where(informative, offset / (deviation + eps), 0.0).reshape(returns.shape)


def reference_kl(log_prob: torch.Tensor, old_log_prob: torch.Tensor, reference_log_prob: torch.Tensor) -> torch.Tensor:
    """Return, for each sample of the old policy, an estimate of KL(pi || ref) whose gradient is right too: [...].

    With rho = pi/old and r = ref/pi it is rho (r - 1 - log r). The weight rho turns the mean over samples of old into
    that over pi: E_old[rho (r - 1 - log r)] = E_pi[r - 1 - log r] = KL(pi || ref), since E_pi[r] = 1. This holds for
    every pi, so the derivatives agree:

        grad rho (r - 1 - log r) = rho grad log pi [(r - 1 - log r) + (1 - r)] = rho grad log pi log(pi / ref),

    whose mean is the gradient of KL(pi || ref). Without rho, or with rho held constant, as is often seen, the middle
    term (1 - r) grad log pi is left alone, and its mean is the gradient of KL(ref || pi), a different divergence.

    Args:
        log_prob: log pi(a|s), with gradients, [...].
        old_log_prob: log old(a|s), [...].
        reference_log_prob: log ref(a|s), [...].
    """
    return (log_prob - old_log_prob).exp() * k3(reference_log_prob - log_prob)
