"""Checks of critics that value actions: their learning, from a replay buffer, of processes with a closed form.

Legend: N envs, T rollout steps, S states, E critics. gamma is 0.5 throughout, and the policy has no entropy unless a
check says so. The processes are as in ``value_checks.py`` where the names are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.models import Policy, SoftActorCritic
from embodichain.ext.doctor.probes import Patient, expect, one_hot, play
from embodichain.ext.doctor.soft_policy import action_values, entropy, soft_table_policy
from embodichain.ext.doctor.value_checks import TOLERANCE, judge

GAMMA = 0.5  # the probes' default
NEVER = 10**9  # gradient steps
_LEARNING_RATE = 0.1
_STILL, _STILL_UPDATES = 0.005, 4  # changes below it for this many updates: the values have converged
_MOST_UPDATES = 150
_ROWS, _STEPS = 8, 4
_FROZEN = 1e-6  # of tau: target networks stay where they are


def q_at_termination(patient: Patient) -> None:
    """One step, reward 1, terminated: Q = 1 by each critic."""
    states = torch.zeros(_ROWS, _STEPS + 1, dtype=torch.int64)
    always = torch.ones(_ROWS, _STEPS, dtype=torch.bool)
    found = _settled(patient, 1, lambda policy: play(policy, one_hot(states, 1), torch.ones(_ROWS, _STEPS), always))
    first, second = found.flatten().tolist()
    judge(
        {"Q of the first critic": (first, 1.0), "Q of the second": (second, 1.0)},
        [
            (
                {"Q of the first critic": 1 / (1 - GAMMA), "Q of the second": 1 / (1 - GAMMA)},
                "it bootstraps at termination: what follows a terminated step is worth 0",
            ),
            (
                {"Q of the first critic": 1.0, "Q of the second": 0.0},
                "only one critic learns: sum the losses of all, and give the optimizer the parameters of all",
            ),
            (
                {"Q of the first critic": 0.0, "Q of the second": 0.0},
                "the critics do not learn: is their optimizer stepped, and are its parameters policy.critics'?",
            ),
        ],
        "the critics' target is not the reward",
    )


def q_of_observation(patient: Patient) -> None:
    """Reward 1 in one state and -1 in the other: Q is 1 and -1."""
    states = (torch.rand(_ROWS, _STEPS + 1) < 0.5).long()
    reward = 1.0 - 2.0 * states[:, :-1]
    always = torch.ones(_ROWS, _STEPS, dtype=torch.bool)
    first, second = _mean(_settled(patient, 2, lambda policy: play(policy, one_hot(states, 2), reward, always)))
    judge(
        {"Q(s0)": (first, 1.0), "Q(s1)": (second, -1.0)},
        [],
        "rewards and observations are joined in different orders ([N, T] against [T, N], or shuffled apart)",
    )


def q_of_action(patient: Patient) -> None:
    """The reward is the action: Q(a) = a."""
    states = torch.zeros(_ROWS, _STEPS + 1, dtype=torch.int64)
    always = torch.ones(_ROWS, _STEPS, dtype=torch.bool)

    def collect(policy: Policy) -> TensorDict:
        return play(policy, one_hot(states, 1), lambda action: action.squeeze(-1), always)

    policy = _train(patient, 1, collect)
    (low,), (high,) = (_mean(action_values(policy, 1, action)) for action in (-0.5, 0.5))
    judge(
        {"Q(-0.5)": (low, -0.5), "Q(0.5)": (high, 0.5)},
        [({"Q(-0.5)": 0.5, "Q(0.5)": -0.5}, "the critics see the action with the wrong sign")],
        "the critics' actions are not those that were rewarded: they are of other transitions, or of the new policy",
    )


def targets_move_by_tau(patient: Patient) -> None:
    """With the reward 1 for ever, Q is 1 + gamma Q_target: 1 where ``tau`` keeps the target networks at 0, else 2.

    The second need not be exact: how rewards are discounted is for ``q_discounts``.
    """
    patient.require("tau")
    (kept,), (moved,) = (_mean(_settled(patient, 1, _endless, tau=tau)) for tau in (_FROZEN, 1.0))
    is_kept, has_moved = abs(kept - 1.0) < TOLERANCE, moved > 1.0 + 2 * TOLERANCE
    causes = {
        (False, True): "it bootstraps from the critics themselves, not from target networks that move by tau",
        (True, False): "the target networks never move",
        (False, False): "tau is the share of the target networks' old parameters: it should be that of the critics'",
    }
    expect(
        is_kept and has_moved,
        "Q = 1 with tau = 0 and 2 with tau = 1, for the reward 1 for ever",
        f"{kept:.2f} and {moved:.2f}",
        causes.get((is_kept, has_moved), ""),
    )


def q_discounts(patient: Patient) -> None:
    """Reward 1 at the end of two steps: Q is gamma, then 1."""
    first, second = _mean(_settled(patient, 2, _two_steps))
    judge(
        {"Q(first)": (first, GAMMA), "Q(second)": (second, 1.0)},
        [
            (
                {"Q(first)": 0.0},
                "rewards do not flow back to the step before: is the next observation that of slot t+1?",
            ),
            ({"Q(first)": 1.0}, "gamma is not applied to what follows a step"),
            ({"Q(first)": GAMMA**2}, "gamma is applied twice a step"),
        ],
        "the critics' target is not reward + gamma Q'",
    )


def q_at_truncation(patient: Patient) -> None:
    """A time limit bootstraps from the value of the episode's last observation, in ``final``."""
    constant = 1 / (1 - GAMMA)
    at_cut, _, reward_1 = _mean(_settled(patient, 3, _cut_episodes))
    name = "Q of the constant reward 1, 1/(1-gamma)"
    judge(
        {"Q at the cut": (at_cut, GAMMA * constant), name: (reward_1, constant)},
        [
            (
                {"Q at the cut": 0.0, name: 1.0},
                "it treats a time limit as termination: bootstrap from rollout['final'] where truncated",
            ),
            (
                {"Q at the cut": -2 / 3},
                "it bootstraps from the new episode's observation (slot t+1): take rollout['final'] where truncated",
            ),
            (
                {"Q at the cut": 0.0, name: constant},
                "it bootstraps from the observation before the last: take rollout['final'] where truncated",
            ),
        ],
        "the critics' target is not reward + gamma Q of the final observation",
    )


def q_at_rollout_end(patient: Patient) -> None:
    """The observation after a rollout's last step is that of slot T.

    A: reward 2, then B: reward -1, then A again, for ever: Q(A) = 2 + gamma Q(B) = 2, Q(B) = -1 + gamma Q(A) = 0.
    Rollouts are A B A and B A B in turn, so that each state is the last one in some.
    """
    turn = count()
    a, b = _mean(_settled(patient, 2, lambda policy: _alternating(policy, next(turn) % 2)))
    judge(
        {"Q(A)": (a, 2.0), "Q(B)": (b, 0.0)},
        [({"Q(B)": -0.375}, "what follows the rollout's last step counts as 0: its observation is in slot T")],
        "what follows the rollout's last step is not the observation of slot T",
    )


def q_after_reset(patient: Patient) -> None:
    """The observation of slot T follows the last step also if the next rollout begins with a new episode.

    The process of ``q_at_rollout_end``; every rollout is A B A, with B in slot T.
    """
    a, b = _mean(_settled(patient, 2, lambda policy: _alternating(policy, 0)))
    judge(
        {"Q(A)": (a, 2.0), "Q(B)": (b, 0.0)},
        [],
        "what follows the rollout's last step is taken from the next rollout, which may begin with other episodes",
    )


def q_of_n_steps(patient: Patient) -> None:
    """With ``n_steps`` the values are the same, since nothing depends on the actions."""
    patient.require("n_steps")
    for_ever = one_hot(torch.zeros(_ROWS, _STEPS + 1, dtype=torch.int64), 1)
    never = torch.zeros(_ROWS, _STEPS, dtype=torch.bool)
    (constant,) = _mean(
        _settled(patient, 1, lambda policy: play(policy, for_ever, torch.ones(_ROWS, _STEPS), never), n_steps=3)
    )
    judge(
        {"Q of the constant reward 1, 1/(1-gamma)": (constant, 2.0)},
        [],
        "the target is not r + gamma r' + ... + gamma^n Q: rewards or the value behind them have another discount",
    )
    first, second = _mean(_settled(patient, 2, _two_steps, n_steps=3))
    judge(
        {"Q(first)": (first, GAMMA), "Q(second)": (second, 1.0)},
        [],
        "the sum of n rewards runs on into the next episode: it ends with a terminated step",
    )
    at_cut, _, reward_1 = _mean(_settled(patient, 3, _cut_episodes, n_steps=3))
    judge(
        {"Q at the cut": (at_cut, 1.0), "Q of the constant reward 1, 1/(1-gamma)": (reward_1, 2.0)},
        [],
        "the sum of n rewards runs on into the next episode: it ends with a truncated step, and Q of its final obs",
    )


def targets_reduce_the_critics(patient: Patient) -> None:
    """Targets have the lowest critic's value, or the mean of all, with target networks that are kept at 0 and 4."""
    patient.require("tau")
    patient.require("critic_reduction")

    def apart(policy: SoftActorCritic) -> None:
        with torch.no_grad():
            constant, *_ = policy.critics[1].parameters()
            constant[0] += 4.0

    for reduction, expected in (("min", 1.0), ("mean", 2.0)):
        settings: dict[str, Any] = {"tau": _FROZEN, "critic_reduction": reduction}
        first, second = _settled(patient, 1, _endless, apart, **settings).flatten().tolist()
        judge(
            {"Q of the first critic": (first, expected), "Q of the second": (second, expected)},
            [
                (
                    {"Q of the first critic": 1.0, "Q of the second": 3.0},
                    "each critic has a target of its own: all have the same, from the values of all",
                ),
                (
                    {"Q of the first critic": 3.0, "Q of the second": 3.0},
                    "targets have the highest value of the critics, which overestimates",
                ),
            ],
            f"targets do not have the {reduction} of the critics' values, 1 + gamma * {2 * (expected - 1):g}",
        )


def q_has_the_entropy(patient: Patient) -> None:
    """With ``entropy_in_targets`` and no reward, Q = gamma (Q + alpha H) = H for a temperature alpha of 1."""
    for setting in ("entropy_in_targets", "initial_temperature", "policy_delay"):
        patient.require(setting)
    settings: dict[str, Any] = {"entropy_in_targets": True, "initial_temperature": 1.0, "policy_delay": NEVER}

    def collect(policy: Policy) -> TensorDict:
        return _endless(policy, 0.0)

    policy = _train(patient, 1, collect, learning_rate=0.01, **settings)
    (q,), expected = _mean(action_values(policy, 1)), entropy(policy)
    judge(
        {"Q": (q, expected)},
        [
            ({"Q": 0.0}, "the entropy of the next action is not in the targets"),
            ({"Q": -expected}, "the entropy has the wrong sign in the targets: it is -alpha log pi(a'|s')"),
        ],
        "the entropy in the targets is not -alpha log pi(a'|s'), a' scaled to [-1, 1]",
        2 * TOLERANCE,
    )


# --- rollouts, and training on them ---


def _two_steps(policy: Policy) -> TensorDict:
    """Return episodes of two steps, with a reward of 1 at their end."""
    states = torch.arange(_STEPS + 1).remainder(2).expand(_ROWS, -1)
    at_end = states[:, :-1] == 1
    return play(policy, one_hot(states, 2), at_end.float(), at_end)


def _cut_episodes(policy: Policy) -> TensorDict:
    """Return the episodes of ``value_at_truncation``; the states are A, B, C."""
    a, b, c = range(3)
    states = torch.tensor([[b, a] * (_STEPS // 2) + [b], [c] * (_STEPS + 1)]).repeat(_ROWS // 2, 1)
    reward = torch.tensor([0.0, -1.0, 1.0])[states[:, :-1]]
    truncated = states[:, :-1] != b
    final_obs = one_hot(torch.full((_ROWS, _STEPS), c), 3)
    return play(policy, one_hot(states, 3), reward, torch.zeros_like(truncated), truncated, final_obs)


def _alternating(policy: Policy, first: int) -> TensorDict:
    """Return three steps in the states A and B in turn, from ``first``, with rewards 2 and -1."""
    states = (first + torch.arange(4)).remainder(2).expand(_ROWS, -1)
    never = torch.zeros(_ROWS, 3, dtype=torch.bool)
    return play(policy, one_hot(states, 2), 2.0 - 3.0 * states[:, :-1], never)


def _endless(policy: Policy, reward: float = 1.0) -> TensorDict:
    """Return steps in one state, with the same reward for ever."""
    states = one_hot(torch.zeros(_ROWS, _STEPS + 1, dtype=torch.int64), 1)
    never = torch.zeros(_ROWS, _STEPS, dtype=torch.bool)
    return play(policy, states, torch.full((_ROWS, _STEPS), reward), never)


def _settled(
    patient: Patient,
    num_states: int,
    collect: Callable[[Policy], TensorDict],
    prepare: Callable[[SoftActorCritic], None] = lambda policy: None,
    **settings: Any,
) -> Tensor:
    """Return the converged value of each critic in each state, [E, S]; ``_train``'s arguments."""
    return action_values(_train(patient, num_states, collect, prepare, **settings), num_states)


def _train(
    patient: Patient,
    num_states: int,
    collect: Callable[[Policy], TensorDict],
    prepare: Callable[[SoftActorCritic], None] = lambda policy: None,
    **settings: Any,
) -> SoftActorCritic:
    """Return a table policy after updates until its values have converged.

    Args:
        prepare: function that changes the policy before the algorithm is made.
    """
    policy = soft_table_policy(num_states)
    prepare(policy)
    # The actor stays as it is: nothing depends on it, and half the time is saved.
    settings = {"learning_rate": _LEARNING_RATE, "policy_delay": NEVER} | settings
    found, still = action_values(policy, num_states), 0
    for _ in islice(patient.train(policy, lambda: collect(policy), **settings), _MOST_UPDATES):
        before, found = found, action_values(policy, num_states)
        still = still + 1 if (found - before).abs().max() < _STILL else 0
        if still == _STILL_UPDATES:
            break
    return policy


def _mean(values: Tensor) -> list[float]:
    """Return the mean of the critics [E, S] in each state."""
    means: list[float] = values.mean(0).tolist()
    return means
