"""Returns and advantages, as pure functions of tensors.

Legend: N envs, T rollout steps; ... any shape, of samples. A time-major tensor, [T, N], has t first.
"""

from collections.abc import Callable

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo.chunks import chunk_rewards
from embodichain.agents.rl.distributed.process_group import get_process_group, merged_moments, moments

EPS = 1e-8  # added to a std before dividing by it
# A std below this share of the returns' size is rounding: the returns count as equal.
RELATIVE_SPREAD = 1e-6


@torch.no_grad()
def compute_gae(
    rollout: TensorDict, gamma: float, gae_lambda: float, scale: Callable[..., torch.Tensor] | None = None
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
        scale: from rewards and discounts to rewards in the values' units, such as ``ReturnScale``; None: the same.

    Returns:
        Advantages and returns in the values' units, float32 [N, T] each.
    """
    reward, discount = chunk_rewards(rollout, gamma)
    terminated, truncated = rollout["terminated"][:, :-1], rollout["truncated"][:, :-1]
    value, next_value = rollout["value"][:, :-1], rollout["value"][:, 1:]
    final_value = rollout.get("final_value", None)
    if final_value is not None:
        next_value = torch.where(truncated, final_value[:, :-1], next_value)
    elif truncated.any():
        raise ValueError("the rollout has truncated steps but no 'final_value' [N, T+1] of their final observations")
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
            return advantages
        std, mean = torch.std_mean(advantages, correction=0)
    else:
        count, mean, m2 = merged_moments(process_group.gather(moments(advantages.reshape(-1, 1).double())))
        std, mean = (m2 / count).sqrt().squeeze().float(), mean.squeeze().float()
    return (advantages - mean) / (std + EPS)


def explained_variance(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return 1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 as good as a constant, below 0 worse than one.

    It is 0 if the target does not vary. ``prediction`` and ``target`` have the same shape.
    """
    variance = target.var(correction=0)
    return torch.where(variance == 0, 0.0, 1 - (target - prediction).var(correction=0) / variance)
