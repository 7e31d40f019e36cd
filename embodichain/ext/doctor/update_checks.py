"""Checks of the update as a whole.

Legend: N envs, T rollout steps, O observation size, A action size, M evaluated rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.models import ActorCritic
from embodichain.ext.doctor.probes import (
    GROUP_SIZE,
    CheckFailedError,
    CheckSkippedError,
    Patient,
    alternating,
    bandit,
    expect,
    play,
    step_norms,
    table_policy,
)

_STEPS, _OBS, _ACTION = 8, 3, 2


class _Spy(ActorCritic):
    """Records input and log-probabilities of the first ``evaluate_actions``."""

    def __init__(self) -> None:
        super().__init__(_OBS, _ACTION, "cpu", nn.Linear(_OBS, _ACTION), nn.Linear(_OBS, 1), normalize_obs=True)
        self.first: tuple[TensorDict, Tensor] | None = None

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        out = super().evaluate_actions(td)
        if self.first is None:
            self.first = td.detach().clone(), out["sample_log_prob"].detach().clone()
        return out


def _random_rollout(policy: ActorCritic) -> TensorDict:
    """Return a random rollout: distinct observations, both kinds of episode ends, actions beyond 1."""
    obs = 5.0 + 3.0 * torch.randn(GROUP_SIZE, _STEPS + 1, _OBS)
    policy.update_normalizer(torch.randn(64, _OBS))  # statistics that differ from this rollout's
    ends = torch.rand(2, GROUP_SIZE, _STEPS) < 0.2
    return play(policy, obs, torch.randn(GROUP_SIZE, _STEPS), ends[0], ends[1] & ~ends[0], obs[:, 1:] + 1.0)


def losses_are_finite(patient: Patient) -> None:
    """``update`` returns finite floats by name."""
    policy = _Spy()
    rollout = _random_rollout(policy)
    losses = patient.build(policy, rollout).update(rollout)
    found: object = losses
    expect(isinstance(found, Mapping), "a dictionary of finite floats", f"{found!r}", "update returns something else")
    wrong = {name: loss for name, loss in losses.items() if not (isinstance(loss, float) and math.isfinite(loss))}
    expect(
        not wrong,
        "a dictionary of finite floats",
        ", ".join(f"{name}: {loss!r}" for name, loss in wrong.items()),
        "a division by zero or a logarithm of zero in the loss"
        if all(isinstance(loss, float) for loss in wrong.values())
        else "a tensor or an int is returned where float(...) of it should be",
    )


def parameters_change(patient: Patient) -> None:
    """``update`` changes the policy's parameters, which stay finite."""
    policy = _Spy()
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    rollout = _random_rollout(policy)
    patient.build(policy, rollout).update(rollout)
    after = dict(policy.named_parameters())
    broken = [name for name, parameter in after.items() if not parameter.isfinite().all()]
    expect(not broken, "finite parameters", f"not finite: {', '.join(broken)}", "a gradient that is NaN or infinite")
    expect(
        not all(torch.equal(before[name], parameter) for name, parameter in after.items()),
        "parameters that differ after an update",
        "the same parameters",
        "no optimizer step, or an optimizer over other parameters than policy.parameters()",
    )


def rollout_stays_as_it_is(patient: Patient) -> None:
    """``update`` does not write to the rollout, the collector's storage."""
    policy = _Spy()
    rollout = _random_rollout(policy)
    before = rollout.clone().flatten_keys(".")
    patient.build(policy, rollout).update(rollout)
    after = rollout.flatten_keys(".")
    fields = set(map(str, before.keys()))
    changed = [name for name in sorted(fields) if not torch.equal(after[name], before[name])]
    changed += [f"{name} (new)" for name in sorted(set(map(str, after.keys())) - fields)]
    expect(
        not changed,
        "the rollout as it was",
        f"changed: {', '.join(changed)}",
        "an operation in place (x += y, x[...] = y, x.mul_(y)) on one of its fields, or a new key: take a copy first",
    )


def first_ratio_is_one(patient: Patient) -> None:
    """Before the first step, the log-probabilities of the rollout's actions equal the stored ones."""
    policy = _Spy()
    rollout = _random_rollout(policy)
    patient.build(policy, rollout).update(rollout)
    if policy.first is None:
        raise CheckSkippedError("the algorithm never calls policy.evaluate_actions")
    td, log_prob = policy.first
    obs, action, log_prob = td["obs"].reshape(-1, _OBS), td["action"].reshape(-1, _ACTION), log_prob.reshape(-1)
    slots = _STEPS + 1
    # All observations and actions are distinct, so evaluated rows can be matched: [M, N*(T+1)].
    same_obs, same_action = (
        (rows[:, None] == rollout[name].reshape(1, -1, rows.shape[-1])).all(-1)
        for name, rows in (("obs", obs), ("action", action))
    )
    is_padding = same_obs.any(1) & (same_obs.int().argmax(1) % slots == _STEPS)  # slot T, evaluated but masked later
    same_obs, same_action, log_prob = same_obs[~is_padding], same_action[~is_padding], log_prob[~is_padding]
    expected = "the first evaluate_actions sees the observations and actions of the rollout, and ratio 1"
    expect(
        same_obs.any(1).all(),
        expected,
        f"{int((~same_obs.any(1)).sum())} of {len(same_obs)} observations are not those of any transition",
        "observations are changed (normalised, say) before the policy sees them: that belongs into the policy",
    )
    if not (same_obs & same_action).any(1).all():
        wrong = ~(same_obs & same_action).any(1)
        shifted = same_action[wrong].any(1).all()
        raise CheckFailedError(
            expected,
            f"{int(wrong.sum())} of {len(wrong)} actions are not those taken at their observation",
            "observations and actions are of different slots: use the slots 0 to T-1 of both, in the same order"
            if shifted
            else "actions are changed (clipped?) before they are evaluated: only the environment clips",
        )
    stored = rollout["sample_log_prob"].reshape(-1)[same_obs.int().argmax(1)]
    ratio = (log_prob - stored).exp()
    worst = float(ratio[(ratio - 1).abs().argmax()])
    expect(
        abs(worst - 1) <= 1e-3,
        expected,
        f"a ratio of {worst:.3f} before any step",
        "the policy changes before its first evaluation: its normaliser is updated within update(), or a parameter",
    )
    given = td.get("sample_log_prob", None)
    expect(
        not (given is not None and not torch.allclose(given.reshape(-1)[~is_padding], stored)),
        expected,
        "the sample_log_prob beside the evaluated actions is not the one stored with them",
        "the batch joins fields of different slots or environments",
    )


def gradient_norm_is_cut(patient: Patient) -> None:
    """No optimizer steps with a gradient norm beyond ``max_grad_norm``."""
    patient.require("max_grad_norm")
    policy = table_policy(1)
    action = 0.5 * alternating(2 * GROUP_SIZE)
    rollout = bandit(policy, torch.zeros(len(action), dtype=torch.int64), 1, 200.0 * action, action)
    limit = 1e-3
    with step_norms() as norms:
        patient.build(policy, rollout, max_grad_norm=limit).update(rollout)
    if not norms:
        raise CheckSkippedError("the algorithm steps no torch.optim.Optimizer")
    expect(
        max(norms) <= 1.01 * limit,
        f"a gradient norm of at most max_grad_norm = {limit}",
        f"a step with {max(norms):.3g}",
        "nn.utils.clip_grad_norm_(parameters, max_grad_norm) is missing between backward() and step()",
    )
