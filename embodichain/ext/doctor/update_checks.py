"""Checks of the update as a whole, and of the critic.

Legend: N envs, T rollout steps, O observation size, A action size, M evaluated rows.
"""

import math
from collections.abc import Callable, Mapping
from itertools import islice

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.ext.doctor import probes
from embodichain.ext.doctor.probes import GROUP_SIZE, CheckFailedError, CheckSkippedError, Patient, alternating, expect

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
    return probes.play(policy, obs, torch.randn(GROUP_SIZE, _STEPS), ends[0], ends[1] & ~ends[0], obs[:, 1:] + 1.0)


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
        f"{int((~same_obs.any(1)).sum())} of {len(same_obs)} observations belong to no transition",
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
        "the sample_log_prob of the evaluated actions is not the one stored with them",
        "the batch joins fields of different slots or environments",
    )


def gradient_norm_is_cut(patient: Patient) -> None:
    """No optimizer steps with a gradient norm beyond ``max_grad_norm``."""
    patient.require("max_grad_norm")
    policy = probes.table_policy(1)
    action = 0.5 * alternating(2 * GROUP_SIZE)
    rollout = probes.bandit(policy, torch.zeros(len(action), dtype=torch.int64), 1, 200.0 * action, action)
    limit = 1e-3
    with probes.step_norms() as norms:
        patient.build(policy, rollout, max_grad_norm=limit).update(rollout)
    if not norms:
        raise CheckSkippedError("the algorithm steps no torch.optim.Optimizer")
    expect(
        max(norms) <= 1.01 * limit,
        f"a gradient norm of at most max_grad_norm = {limit}",
        f"a step with {max(norms):.3g}",
        "nn.utils.clip_grad_norm_(parameters, max_grad_norm) is missing between backward() and step()",
    )


# --- the critic: the values that it learns of processes with a closed form; gamma is 0.5 throughout ---
#
# ``value_at_termination``, ``value_of_observation`` and ``value_discounts`` are rungs 1 to 3 of the ladder of probe
# environments in Jones, "Debugging RL, Without the Agonizing Pain", 2021 (andyljones.com/posts/rl-debugging.html); 4
# and 5 are in ``actor_checks.py``.

_GAMMA = 0.5  # the probes' default
_TOLERANCE = 0.1
_STILL, _STILL_UPDATES = 0.002, 8  # changes below it for this many updates: the values have converged
_MOST_UPDATES = 200  # for algorithms with one small step per update
_ROWS, _LENGTH = 8, 4


def value_at_termination(patient: Patient) -> None:
    """One step, reward 1, terminated: V = 1."""
    states = torch.zeros(_ROWS, _LENGTH + 1, dtype=torch.int64)
    always = torch.ones(_ROWS, _LENGTH, dtype=torch.bool)
    found = _settled(
        patient, 1, lambda policy: probes.play(policy, probes.one_hot(states, 1), torch.ones(_ROWS, _LENGTH), always)
    )
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
    states = torch.tensor([[b, a] * (_LENGTH // 2) + [b], [c] * (_LENGTH + 1)]).repeat(_ROWS // 2, 1)
    reward = torch.tensor([0.0, -1.0, 1.0])[states[:, :-1]]
    truncated = states[:, :-1] != b
    final_obs = probes.one_hot(torch.full((_ROWS, _LENGTH), c), 3)
    nowhere = torch.zeros_like(truncated)
    found = _settled(
        patient, 3, lambda policy: probes.play(policy, probes.one_hot(states, 3), reward, nowhere, truncated, final_obs)
    )
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
    states = (torch.rand(_ROWS, _LENGTH + 1) < 0.5).long()
    reward = 1.0 - 2.0 * states[:, :-1]
    always = torch.ones(_ROWS, _LENGTH, dtype=torch.bool)
    found = _settled(patient, 2, lambda policy: probes.play(policy, probes.one_hot(states, 2), reward, always))
    _judge(
        {"V(s0)": (found[0], 1.0), "V(s1)": (found[1], -1.0)},
        [],
        "returns and observations are joined in different orders ([N, T] against [T, N], or shuffled apart)",
    )


def value_discounts(patient: Patient) -> None:
    """Reward 1 at the end of two steps: V is gamma, then 1."""
    states = torch.arange(_LENGTH + 1).remainder(2).expand(_ROWS, -1)
    at_end = states[:, :-1] == 1
    found = _settled(patient, 2, lambda policy: probes.play(policy, probes.one_hot(states, 2), at_end.float(), at_end))
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
    states = torch.arange(_LENGTH + 1).remainder(2).expand(_ROWS, -1)
    reward = 2.0 - 3.0 * states[:, :-1]
    nowhere = torch.zeros(_ROWS, _LENGTH, dtype=torch.bool)
    found = _settled(patient, 2, lambda policy: probes.play(policy, probes.one_hot(states, 2), reward, nowhere))
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
    policy = probes.table_policy(num_states)
    found, still = probes.values(policy, num_states), 0
    with probes.gradients(policy) as sums:
        training = patient.train(policy, lambda: collect(policy), learning_rate=0.1, n_epochs=4, gae_lambda=0.95)
        for _ in islice(training, _MOST_UPDATES):
            before, found = found, probes.values(policy, num_states)
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
