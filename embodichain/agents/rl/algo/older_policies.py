"""Old log-probabilities that are not the rollout's: of older policies, and of updates in lower precision.

For a rollout of older policies (``lag`` > 0, see ``AsyncCollector``) PPO's objective is the decoupled one: r is the
ratio to the policy before the update, and each sample has an importance weight, the ratio of that policy's probability
to the older one's. Without lag the two objectives are the same.

Legend: M transitions or sequences of a batch; ... any shape, of samples.
"""

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo.chunks import LogProbLevel, with_dims_of
from embodichain.agents.rl.algo.on_policy import OnPolicyAlgorithm, Rows, compare, masked_mean
from embodichain.agents.rl.models import action_log_prob


def is_rounded(algorithm: OnPolicyAlgorithm) -> bool:
    """Return whether updates compute in lower precision than the float32 of rollouts.

    The ratio to the rollout's log-probability is then not 1 before the first step, least of all with a small std: an
    update first evaluates its batch again.
    """
    return torch.is_autocast_enabled(algorithm.device.type)


def rounded_log_prob(batch: TensorDict, now: TensorDict) -> torch.Tensor:
    """Return the old log-probabilities of an update that rounds: of ``now``, the policy's evaluation of the batch.

    Samples of an older policy (``lag`` > 0) have the stored ones, as its parameters are gone.
    """
    return _where_behind(batch, batch["sample_log_prob"], action_log_prob(now))


def importance_weight(proximal_log_prob: torch.Tensor, log_prob: torch.Tensor, cap: float) -> torch.Tensor:
    """Return min(pi_prox(a|s) / pi_behav(a|s), cap), the importance weight of an older policy's sample: [...].

    The objective of Hilton, Cobbe and Schulman, "Batch size-invariance for policy optimization", 2022, is the mean of
    pi_prox / pi_behav * min(r A, clip(r) A) with r = pi / pi_prox: it keeps the policy close to the recent pi_prox, not
    to the older one that collected. Fu et al., "AReaL", 2025, take the policy before the update for pi_prox and bound
    the weight; here it is clamped, as in Espeholt et al., "IMPALA", 2018.
    """
    return (proximal_log_prob - log_prob).exp().clamp(max=cap)


def set_proximal(
    algorithm: OnPolicyAlgorithm, batch: TensorDict, old: TensorDict, cap: float | None, level: LogProbLevel
) -> None:
    """Make the policy before the update the proximal one of a batch [M, ...]: its log-probabilities are the old ones.

    Args:
        old: its evaluation of the batch.
        cap: the highest ``importance_weight``, which is set; None: the samples are of this policy, or not corrected.
        level: level of the probability ratio.
    """
    rounded = is_rounded(algorithm)
    if cap is not None:
        with torch.autocast(algorithm.device.type, enabled=False):  # the weight must not contain rounding
            exact = algorithm.evaluate(batch) if rounded else old
        rows = compare(batch, exact, level)
        # Samples of the current parameters keep their log-probability, to the last bit.
        proximal = _where_behind(batch, rows.log_prob, rows.old_log_prob)
        batch["importance_weight"] = importance_weight(proximal, rows.old_log_prob, cap)
        batch["sample_log_prob"] = _where_behind(batch, action_log_prob(exact), batch["sample_log_prob"])
    if rounded:
        batch["sample_log_prob"] = action_log_prob(old) if cap is not None else rounded_log_prob(batch, old)
        if "old_value" in batch.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            batch["old_value"] = old["value"]


def weight_metrics(rows: Rows, cap: float) -> dict[str, torch.Tensor]:
    """Return the mean importance weight and the share of capped ones; nothing if all samples are of one policy."""
    if not isinstance(rows.weight, torch.Tensor):
        return {}
    capped = (rows.weight >= cap).float()
    return {"behaviour_weight": masked_mean(rows.weight, rows.mask), "capped_fraction": masked_mean(capped, rows.mask)}


def _where_behind(batch: TensorDict, behind: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    """Return ``behind`` [M, ...] for samples that an older policy collected (``lag`` > 0), else ``current``."""
    lag = batch.get("lag", None)
    return current if lag is None else torch.where(with_dims_of(current, lag) > 0, behind, current)
