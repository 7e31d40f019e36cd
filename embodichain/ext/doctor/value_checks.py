"""Checks of the critic: the values that it learns of processes with a closed form.

Legend: N envs, T rollout steps. gamma is 0.5 throughout.

``value_at_termination``, ``value_of_observation`` and ``value_discounts`` are rungs 1 to 3 of the ladder of probe
environments in Jones, "Debugging RL, Without the Agonizing Pain" (andyljones.com/posts/rl-debugging.html), 2021; rungs
4 and 5 are in ``actor_checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import torch
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy
from embodichain.ext.doctor.probes import (
    CheckSkippedError,
    Patient,
    expect,
    gradients,
    one_hot,
    play,
    table_policy,
    values,
)

_GAMMA = 0.5  # the probes' default
_TOLERANCE = 0.1
_STILL, _STILL_UPDATES = 0.002, 8  # changes below it for this many updates: the values have converged
_MOST_UPDATES = 200  # for algorithms with one small step per update
_ROWS, _STEPS = 8, 4


def value_at_termination(patient: Patient) -> None:
    """One step, reward 1, terminated: V = 1."""
    states = torch.zeros(_ROWS, _STEPS + 1, dtype=torch.int64)
    always = torch.ones(_ROWS, _STEPS, dtype=torch.bool)
    found = _settled(patient, 1, lambda policy: play(policy, one_hot(states, 1), torch.ones(_ROWS, _STEPS), always))
    (value,) = found
    causes = {
        1 / (1 - _GAMMA): "it bootstraps at termination: what follows a terminated step is worth 0",
        0.0: "the critic does not learn the returns: is the value loss in the loss, and is its optimizer stepped?",
    }
    _judge({"V": (value, 1.0)}, [({"V": wrong}, cause) for wrong, cause in causes.items()])


def value_at_truncation(patient: Patient) -> None:
    """A time limit bootstraps from the value of the episode's last observation.

    C: reward 1, cut off after one step in C: V = 1 / (1 - gamma) = 2. B: reward -1, then A: reward 0, cut off in C;
    then a new episode begins in B. V(A) = gamma V(C) = 1, V(B) = -1 + gamma V(A) = -0.5.
    """
    a, b, c = range(3)
    states = torch.tensor([[b, a] * (_STEPS // 2) + [b], [c] * (_STEPS + 1)]).repeat(_ROWS // 2, 1)
    reward = torch.tensor([0.0, -1.0, 1.0])[states[:, :-1]]
    truncated = states[:, :-1] != b
    final_obs = one_hot(torch.full((_ROWS, _STEPS), c), 3)
    nowhere = torch.zeros_like(truncated)
    found = _settled(patient, 3, lambda policy: play(policy, one_hot(states, 3), reward, nowhere, truncated, final_obs))
    _judge(
        {"V at the cut": (found[a], 1.0), "V of the constant reward 1, 1/(1-gamma)": (found[c], 2.0)},
        [
            (
                {"V at the cut": 0.0, "V of the constant reward 1, 1/(1-gamma)": 1.0},
                "it treats a time limit as termination: bootstrap from rollout['final_value'] where truncated",
            ),
            (
                {"V at the cut": -2 / 3},
                "it bootstraps from the new episode's observation (slot t+1): take rollout['final_value'] instead",
            ),
            (
                {"V at the cut": 0.0, "V of the constant reward 1, 1/(1-gamma)": 2.0},
                "it bootstraps from the observation before the last: take rollout['final_value'] instead",
            ),
        ],
    )


def value_of_observation(patient: Patient) -> None:
    """Reward 1 in one state and -1 in the other: V is 1 and -1."""
    states = (torch.rand(_ROWS, _STEPS + 1) < 0.5).long()
    reward = 1.0 - 2.0 * states[:, :-1]
    always = torch.ones(_ROWS, _STEPS, dtype=torch.bool)
    found = _settled(patient, 2, lambda policy: play(policy, one_hot(states, 2), reward, always))
    _judge(
        {"V(s0)": (found[0], 1.0), "V(s1)": (found[1], -1.0)},
        [],
        "returns and observations are joined in different orders ([N, T] against [T, N], or shuffled apart)",
    )


def value_discounts(patient: Patient) -> None:
    """Reward 1 at the end of two steps: V is gamma, then 1."""
    states = torch.arange(_STEPS + 1).remainder(2).expand(_ROWS, -1)
    at_end = states[:, :-1] == 1
    found = _settled(patient, 2, lambda policy: play(policy, one_hot(states, 2), at_end.float(), at_end))
    _judge(
        {"V(first)": (found[0], _GAMMA), "V(second)": (found[1], 1.0)},
        [
            ({"V(first)": 0.0}, "rewards do not flow back to the step before"),
            ({"V(first)": 1.0}, "gamma is not applied to what follows a step"),
            ({"V(first)": _GAMMA**2}, "gamma is applied twice a step"),
        ],
    )


def value_at_rollout_end(patient: Patient) -> None:
    """A rollout that ends within an episode bootstraps from the value of slot T.

    A: reward 2, then B: reward -1, then A again, for ever: V(A) = 2 + gamma V(B) = 2, V(B) = -1 + gamma V(A) = 0.
    Rollouts are A B A B, with A in slot T, so that the values of the slots T-1 and T differ.
    """
    states = torch.arange(_STEPS + 1).remainder(2).expand(_ROWS, -1)
    reward = 2.0 - 3.0 * states[:, :-1]
    nowhere = torch.zeros(_ROWS, _STEPS, dtype=torch.bool)
    found = _settled(patient, 2, lambda policy: play(policy, one_hot(states, 2), reward, nowhere))
    _judge(
        {"V(A)": (found[0], 2.0), "V(B)": (found[1], 0.0)},
        [
            (
                {"V(B)": -0.625},
                "what follows the rollout's last step counts as 0: bootstrap from rollout['value'] of slot T",
            ),
            (
                {"V(B)": -0.909},
                "it bootstraps from slot T-1, the last step's own value: take rollout['value'] of slot T, [:, -1]",
            ),
        ],
    )


def _settled(patient: Patient, num_states: int, collect: Callable[[Policy], TensorDict]) -> list[float]:
    """Return the converged values of the states; skip the check if the algorithm trains no critic."""
    policy = table_policy(num_states)
    found, still = values(policy, num_states), 0
    with gradients(policy) as sums:
        training = patient.train(policy, lambda: collect(policy), learning_rate=0.1, n_epochs=4, gae_lambda=0.95)
        for _ in islice(training, _MOST_UPDATES):
            before, found = found, values(policy, num_states)
            still = still + 1 if max(abs(b - v) for b, v in zip(before, found, strict=True)) < _STILL else 0
            if still == _STILL_UPDATES:
                break
    if not sums["critic.weight"].any() and not patient.has("vf_coef"):
        raise CheckSkippedError("the algorithm trains no critic, and its config has no vf_coef")
    return found


def _judge(
    found: dict[str, tuple[float, float]],
    known_errors: list[tuple[dict[str, float], str]],
    otherwise: str = "the critic's target is not the return: reward + gamma V' + ...",
) -> None:
    """Compare values, name -> (found, expected), and look up the likely cause among known wrong values."""
    causes = [
        cause
        for wrong, cause in known_errors
        if all(abs(found[name][0] - value) < _TOLERANCE for name, value in wrong.items())
    ]
    expect(
        all(abs(value - expected) < _TOLERANCE for value, expected in found.values()),
        ", ".join(f"{name} = {expected:.2f}" for name, (_, expected) in found.items()),
        ", ".join(f"{name} = {value:.2f}" for name, (value, _) in found.items()),
        causes[0] if causes else otherwise,
    )
