"""The algorithms' maths, as pure functions of tensors.

Legend: N envs, T rollout steps, A action size; ... any shape, of samples. A time-major tensor, [T, N], has t first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo.chunks import chunk_rewards
from embodichain.agents.rl.distributed import get_ranks, merged_moments, moments

__all__ = [
    "adapted_learning_rate",
    "approx_kl",
    "behaviour_weight",
    "clipped_surrogate",
    "clipped_value_error",
    "compute_gae",
    "explained_variance",
    "gaussian_kl",
    "k3",
    "normalize_advantages",
]

EPS = 1e-8  # added to a deviation before dividing by it
MIN_LEARNING_RATE = 1e-5  # bounds of the adapted learning rate
MAX_LEARNING_RATE = 1e-2


@torch.no_grad()
def compute_gae(rollout: TensorDict, gamma: float, gae_lambda: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute generalised advantages (Schulman et al., "High-Dimensional Continuous Control Using GAE", ICLR 2016).

    delta_t = r_t + gamma V' - V(s_t),  A_t = delta_t + gamma lambda (1 - done_t) A_{t+1},  return_t = A_t + V(s_t)

    V' is the value of the state that followed s_t: 0 where the episode terminated, ``final_value`` where it was
    truncated (slot t+1 already belongs to the next episode), else ``value`` of slot t+1. A step that is both terminated
    and truncated counts as terminated. Both cut the lambda-chain. Of a policy that chooses chunks of actions, a step is
    a decision: r_t is what its k executed actions earn, and gamma^k takes the place of gamma; see ``chunk_rewards``.

    Args:
        rollout: batch size [N, T+1]; has ``reward``, ``value``, ``terminated``, ``truncated``, ``final_value`` if
            any step is truncated, and ``executed`` with chunks. Of slot T only ``value`` is read.
        gamma: discount per step.
        gae_lambda: weight of longer returns.

    Returns:
        Advantages and returns, float32 [N, T] each.

    Raises:
        ValueError: a step is truncated and there is no ``final_value``.
    """
    earned, discount = chunk_rewards(rollout, gamma)
    if isinstance(discount, torch.Tensor):
        discount = discount.transpose(0, 1)
    reward, terminated, truncated = (
        x.transpose(0, 1) for x in (earned, rollout["terminated"][:, :-1], rollout["truncated"][:, :-1])
    )  # [T, N]
    values = rollout["value"].transpose(0, 1)  # [T+1, N]
    value, next_value = values[:-1], values[1:]
    final_value = rollout.get("final_value", None)
    if final_value is not None:
        next_value = torch.where(truncated, final_value[:, :-1].transpose(0, 1), next_value)
    elif truncated.any():
        raise ValueError(
            "the rollout has truncated steps but no 'final_value' [N, T+1], the values of the final observations: "
            "without them a time limit cannot be told from a failure"
        )
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    done = terminated | truncated

    advantages = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])  # A_{t+1}, [N]
    # One multiplication more where steps discount differently; elsewhere it is the addition's own.
    decays = _rows(discount * gae_lambda, len(delta))
    steps = zip(*(reversed(x.unbind(0)) for x in (delta, done, advantages)), reversed(decays), strict=True)
    for delta_t, done_t, out, decay in steps:
        # Filled, not multiplied by 0: what is not finite in one episode must not reach the one before.
        kept = following.masked_fill(done_t, 0.0)
        if isinstance(decay, torch.Tensor):
            following = torch.addcmul(delta_t, kept, decay, out=out)
        else:
            following = torch.add(delta_t, kept, alpha=decay, out=out)
    return advantages.transpose(0, 1), (advantages + value).transpose(0, 1)


def _rows(discount: float | torch.Tensor, count: int) -> Sequence[float | torch.Tensor]:
    return discount.unbind(0) if isinstance(discount, torch.Tensor) else [discount] * count


def normalize_advantages(advantages: torch.Tensor) -> torch.Tensor:
    """Shift and scale advantages [...] to mean 0 and deviation 1 over all their samples, of all processes."""
    ranks = get_ranks()
    if ranks.world_size == 1:
        deviation, mean = torch.std_mean(advantages, correction=0)
    else:
        count, mean, m2 = merged_moments(ranks.gather(moments(advantages.reshape(-1, 1).double())))
        deviation, mean = (m2 / count).sqrt().squeeze().float(), mean.squeeze().float()
    return (advantages - mean) / (deviation + EPS)


def clipped_surrogate(ratio: torch.Tensor, advantages: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return PPO's objective for each sample, to be maximised: min(r A, clip(r, 1 - c, 1 + c) A).

    Equation 7 of Schulman et al., "Proximal Policy Optimization Algorithms", 2017.

    Args:
        ratio: r = pi_new(a|s) / pi_old(a|s), [...].
        advantages: A, [...].
        clip_coef: c.
    """
    return torch.min(ratio * advantages, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages)


def behaviour_weight(proximal_log_prob: torch.Tensor, log_prob: torch.Tensor, cap: float) -> torch.Tensor:
    """Return min(pi_prox(a|s) / pi_behav(a|s), cap): what a sample weighs that an older policy collected, [...].

    The objective of Hilton, Cobbe and Schulman, "Batch size-invariance for policy optimization", 2022, is the mean of
    pi_prox / pi_behav * min(r A, clip(r) A) with r = pi / pi_prox: the policy is kept close to the recent one, pi_prox,
    and not to the older one that collected. Fu et al., "AReaL", 2025, take for pi_prox the policy before the update,
    and bound the weight; here it is cut off at the bound, as in Espeholt et al., "IMPALA", 2018.

    Args:
        proximal_log_prob: log pi_prox(a|s), [...].
        log_prob: log pi_behav(a|s), [...].
        cap: the highest weight.
    """
    return (proximal_log_prob - log_prob).exp().clamp(max=cap)


def clipped_value_error(
    value: torch.Tensor, old_value: torch.Tensor, returns: torch.Tensor, clip_coef: float
) -> torch.Tensor:
    """Return max((V - R)^2, (V_old + clip(V - V_old, -c, c) - R)^2) for each sample, [...].

    A value that has moved further than c from where it was, towards the return, has no gradient any more; one that
    moved away from the return is pulled back. As in OpenAI Baselines' ppo2 (2017) and Berner et al., "Dota 2 with Large
    Scale Deep Reinforcement Learning", 2019. The bound c is in units of the return.

    Args:
        value: V, [...].
        old_value: V_old, of the critic that the rollout was collected with, [...].
        returns: R, [...].
        clip_coef: c.
    """
    clipped = old_value + (value - old_value).clamp(-clip_coef, clip_coef)
    return torch.max((value - returns).square(), (clipped - returns).square())


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return (r - 1) - log r for each sample, [...]: never negative, and 0 where nothing changed.

    Its mean over samples of q is an unbiased estimate of KL(q || p) for r = p/q: the estimator k3 of Schulman,
    "Approximating KL Divergence" (joschu.net/blog/kl-approx.html), 2020.

    Args:
        log_ratio: log r, [...].
    """
    return log_ratio.expm1() - log_ratio


def approx_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Estimate KL(old || new) from samples of the old policy: the mean of ``k3``.

    For logs and for stopping: its gradient is not that of the KL divergence.

    Args:
        log_ratio: log pi_new(a|s) - log pi_old(a|s), [...].
    """
    return k3(log_ratio).mean()


def gaussian_kl(
    mean: torch.Tensor, log_std: torch.Tensor, other_mean: torch.Tensor, other_log_std: torch.Tensor
) -> torch.Tensor:
    """Return KL(p || q) of independent normals p and q, in nats: [...].

    KL = sum_i [log (s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2]. It is the same after an invertible map of
    both, such as tanh.

    Args:
        mean: m_p, [..., A].
        log_std: log s_p, [..., A].
        other_mean: m_q, [..., A].
        other_log_std: log s_q, [..., A].
    """
    log_ratio = log_std - other_log_std
    z = (mean - other_mean) * (-other_log_std).exp()
    return 0.5 * ((2 * log_ratio).expm1() - 2 * log_ratio + z.square()).sum(-1)


def adapted_learning_rate(learning_rate: torch.Tensor, kl: torch.Tensor, desired_kl: float) -> torch.Tensor:
    """Return the learning rate divided by 1.5 where KL > 2 desired, times 1.5 where KL < desired / 2, within bounds.

    The rule of rsl_rl (Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", CoRL 2021), as a tensor, so that nobody waits for the device. The bounds are 1e-5 and 1e-2.

    Args:
        learning_rate: scalar.
        kl: KL(old || new), scalar.
        desired_kl: what it should be.
    """
    rate = torch.where(kl > 2 * desired_kl, learning_rate / 1.5, learning_rate)
    rate = torch.where(kl < desired_kl / 2, learning_rate * 1.5, rate)
    return rate.clamp(MIN_LEARNING_RATE, MAX_LEARNING_RATE)


def explained_variance(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return 1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 as good as a constant, below 0 worse than one.

    Where the target does not vary there is nothing to explain: 0.

    Args:
        prediction: [...].
        target: same shape.
    """
    variance = target.var(correction=0)
    return torch.where(variance == 0, 0.0, 1 - (target - prediction).var(correction=0) / variance)
