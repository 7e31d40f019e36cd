"""Checks of an actor that follows critics of actions, and of its temperature."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.models import SoftActorCritic
from embodichain.ext.doctor.probes import GROUP_SIZE, Patient, bandit, expect, means
from embodichain.ext.doctor.soft_policy import entropy, soft_table_policy

_UPDATES = 12  # of 8 gradient steps with the default updates_per_step
_LEARNING_RATE = 0.1
_TARGET_ENTROPY = -0.5  # that of a std of 0.15
_CLOSE = 0.3  # nats


def better_action(patient: Patient) -> None:
    """The reward is the action: the mean rises."""
    policy = soft_table_policy(1)
    states = torch.zeros(4 * GROUP_SIZE, dtype=torch.int64)
    _train(patient, policy, lambda: bandit(policy, states, 1, lambda a: a))
    (mean,) = means(policy, 1)
    expect(
        mean > 0.3,
        "a mean action well above 0, where the reward is",
        f"{mean:.2f}",
        "the actor's loss has the wrong sign: it is to be minimised, so it is alpha log pi(a|s) - Q(s, a)"
        if mean < -0.1
        else "the critics' values do not reach the actor: a is detached, not reparameterised, or the actor has no step",
    )


def better_action_of_observation(patient: Patient) -> None:
    """The reward is the action in one state and minus the action in the other: the means go apart."""
    policy = soft_table_policy(2)
    states = torch.arange(8).remainder(2).repeat_interleave(GROUP_SIZE // 2)
    sign = 1.0 - 2.0 * states
    _train(patient, policy, lambda: bandit(policy, states, 2, lambda a: a * sign))
    first, second = means(policy, 2)
    expect(
        first > 0.3 and second < -0.3,
        "a mean action above 0 in the first state and below 0 in the second",
        f"{first:.2f} and {second:.2f}",
        "the actor's actions are valued at other observations than theirs",
    )


def entropy_widens(patient: Patient) -> None:
    """With a temperature of 1 and equal rewards, a narrow policy becomes wide."""
    patient.require("initial_temperature")
    policy = soft_table_policy(1, init_log_std=-2.0)
    states = torch.zeros(4 * GROUP_SIZE, dtype=torch.int64)
    before = entropy(policy)
    settings: dict[str, Any] = {
        "initial_temperature": 1.0,
        "target_entropy": before + 1.0,
    }  # so that the temperature does not fall
    _train(patient, policy, lambda: bandit(policy, states, 1, torch.ones_like), **settings)
    change = entropy(policy) - before
    expect(
        change > _CLOSE,
        "an entropy that grows where all rewards are equal",
        f"a change by {change:.2f} nats",
        "alpha log pi(a|s) is not added in the actor's loss: it has the wrong sign, or no gradient",
    )


def temperature_holds_the_entropy(patient: Patient) -> None:
    """The reward -4 a^2 has a peak: the temperature, too high at first, falls until the entropy is the target's."""
    patient.require("target_entropy")
    patient.require("initial_temperature")
    policy = soft_table_policy(1)
    states = torch.zeros(4 * GROUP_SIZE, dtype=torch.int64)
    settings: dict[str, Any] = {"initial_temperature": 1.0, "target_entropy": _TARGET_ENTROPY}
    _train(patient, policy, lambda: bandit(policy, states, 1, lambda a: -4 * a.square()), 3 * _UPDATES, **settings)
    found = entropy(policy)
    expect(
        abs(found - _TARGET_ENTROPY) < _CLOSE,
        f"an entropy near target_entropy = {_TARGET_ENTROPY}",
        f"{found:.2f}",
        "the temperature's loss has the wrong sign, or no step: it is -log alpha (log pi(a|s) + target entropy)"
        if found > _TARGET_ENTROPY
        else "the temperature falls below the target entropy, too: log pi(a|s) is not that of the actor's new actions",
    )


def _train(
    patient: Patient,
    policy: SoftActorCritic,
    collect: Callable[[], TensorDict],
    num_updates: int = _UPDATES,
    **settings: Any,
) -> None:
    settings = {"learning_rate": _LEARNING_RATE} | settings
    for _ in islice(patient.train(policy, collect, **settings), num_updates):
        pass
