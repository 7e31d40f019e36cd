"""Checks of algorithms that compare environments within groups (``group_size`` in their config), such as GRPO.

Legend: N envs, T rollout steps. Groups are consecutive environments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.tools.doctor.actor_checks import NEGLIGIBLE
from embodichain.tools.doctor.patient import GROUP_SIZE, Patient
from embodichain.tools.doctor.probes import alternating, bandit, gradients, one_hot, play, table_policy
from embodichain.tools.doctor.report import expect

__all__ = ["equal_group_returns_move_nothing", "groups_are_apart", "nothing_after_first_done"]


def equal_group_returns_move_nothing(patient: Patient) -> None:
    """Members of a group with equal returns give no gradient, however the groups differ, and no NaN."""
    patient.require("group_size")
    up = torch.ones(2 * GROUP_SIZE)  # one and the same action: nothing cancels out
    levels = torch.tensor([1.0, 5.0]).repeat_interleave(GROUP_SIZE)
    equal = _group_gradient(patient, levels, up)
    reference = _group_gradient(patient, alternating(2 * GROUP_SIZE), alternating(2 * GROUP_SIZE))
    expect(
        equal.isfinite().all() and (equal.abs() <= NEGLIGIBLE * reference.abs()).all(),
        "no gradient of groups whose members all have the same return",
        f"{equal.abs().max():.3g} (where they differ: {reference.abs().max():.3g})",
        "a group's zero spread divides its advantages, or returns are compared over all groups",
    )


def groups_are_apart(patient: Patient) -> None:
    """The returns of one group do not matter to another."""
    patient.require("group_size")
    action = alternating(GROUP_SIZE).repeat_interleave(2)  # ++--: of a group of every second one, too, half are +
    other = torch.arange(2 * GROUP_SIZE) >= GROUP_SIZE
    plain, shifted = (_group_gradient(patient, action + bonus * other, action)[0] for bonus in (0.0, 100.0))
    expect(
        (plain - shifted).abs() <= NEGLIGIBLE * plain.abs(),
        "the same gradient of a group, whatever the returns of the others are",
        f"{float(plain):.3g}, but {float(shifted):.3g} with 100 more for the other group",
        "mean and deviation are taken over all environments, or groups are not consecutive environments",
    )


def nothing_after_first_done(patient: Patient) -> None:
    """With ``truncate_at_first_done`` the steps after an environment's first done give no gradient."""
    patient.require("truncate_at_first_done")
    policy = table_policy(3)
    action = alternating(2 * GROUP_SIZE)
    is_first = torch.arange(2 * GROUP_SIZE) < GROUP_SIZE  # this group is done at once; the other goes on
    states = torch.where(is_first[:, None], torch.tensor([0, 1, 0]), torch.tensor([0, 2, 0]))
    rollout = play(
        policy,
        one_hot(states, 3),
        torch.stack((torch.zeros_like(action), action), dim=1),
        torch.stack((is_first, torch.ones_like(is_first)), dim=1),
        action=torch.stack((action, action), dim=1)[..., None],
    )
    with gradients(policy) as sums:
        patient.build(policy, rollout, truncate_at_first_done=True).update(rollout)
    _, masked, living = sums["actor.weight"][0].abs().tolist()
    expect(
        living != 0,
        "a gradient of the steps before the first done",
        "none",
        "the mask begins too early: the step that is done is still part of the episode",
    )
    expect(
        masked <= NEGLIGIBLE * living,
        "no gradient of the steps after the first done",
        f"{masked:.3g} (of the steps before it: {living:.3g})",
        "steps after the first done are not left out of the loss",
    )


def _group_gradient(patient: Patient, reward: Tensor, action: Tensor) -> Tensor:
    """Return the gradients of two groups' mean actions, each in a state of its own: [2]."""
    policy = table_policy(2)
    states = torch.arange(2).repeat_interleave(GROUP_SIZE)
    rollout = bandit(policy, states, 2, reward, action)
    with gradients(policy) as sums:
        patient.build(policy, rollout).update(rollout)
    return sums["actor.weight"][0]
