"""Checks of the actor: the sign of its gradient, and where it must be zero.

Legend: N envs, T rollout steps, S states.

Most use alternating actions +1 and -1, at mean 0 and std 1: the scores d log p / d mean = +-1 cancel, and those for the
std, a^2 - 1, are 0. So the gradient comes from the advantages alone, without noise.
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.models import ActorCritic
from embodichain.ext.doctor import probes
from embodichain.ext.doctor.probes import GROUP_SIZE, CheckSkippedError, Patient, alternating, expect

NEGLIGIBLE = 1e-3  # of a gradient, against one that should be there
_UPDATES = 20


def advantage_sign(patient: Patient) -> None:
    """Actions above 0 are rewarded: the mean rises (rung 4 of the ladder, see ``update_checks.py``)."""
    policy = probes.table_policy(1)
    states = torch.zeros(8 * GROUP_SIZE, dtype=torch.int64)
    (mean,) = _trained(patient, policy, lambda: probes.bandit(policy, states, 1, lambda a: (a > 0).float()))
    expect(
        mean > 0.3,
        "a mean action well above 0, where the reward is",
        f"{mean:.2f}",
        "the policy loss has the wrong sign: it is to be minimised, so it is minus the surrogate"
        if mean < -0.1
        else "the advantages do not reach the actor: detached log-probabilities, or advantages of other samples",
    )


def discrete_action_is_learned(patient: Patient) -> None:
    """One of three discrete actions is rewarded: it becomes the most likely one."""
    policy = probes.table_policy(1, choices=(3,))
    states = torch.zeros(8 * GROUP_SIZE, dtype=torch.int64)
    try:
        (action,) = _trained(patient, policy, lambda: probes.bandit(policy, states, 1, lambda a: (a == 2).float()))
    except KeyError as error:
        raise CheckSkippedError(f"the algorithm is for normal actions alone: {error.args[0]}") from error
    expect(
        action == 2,
        "2 as the most likely one of the actions 0, 1 and 2, since it is rewarded",
        f"{action:.0f}",
        "the indices of discrete actions are clipped or scaled before the policy evaluates them",
    )


def policy_of_observation(patient: Patient) -> None:
    """The rewarded action depends on the state: the means go apart (rung 5)."""
    policy = probes.table_policy(2)
    states = torch.arange(8).remainder(2).repeat_interleave(GROUP_SIZE)
    sign = 1.0 - 2.0 * states
    first, second = _trained(
        patient, policy, lambda: probes.bandit(policy, states, 2, lambda a: (a * sign > 0).float())
    )
    expect(
        first > 0.3 and second < -0.3,
        "a mean action above 0 in the first state and below 0 in the second",
        f"{first:.2f} and {second:.2f}",
        "advantages and observations are joined in different orders, so that no state has its own advantages",
    )


def advantage_of_transition(patient: Patient) -> None:
    """The only reward goes to the environment and step that earned it.

    Each transition has a state of its own, so that the gradient of a state's mean action is one transition's advantage.
    """
    num, steps, env, step = 2 * GROUP_SIZE, 4, 1, 2
    policy = probes.table_policy(num * steps)
    states = torch.arange(num * steps).reshape(num, steps)
    reward = torch.zeros(num, steps)
    reward[env, step] = 1.0
    rollout = probes.play(
        policy,
        probes.one_hot(torch.cat((states, states[:, -1:]), dim=1), num * steps),
        reward,
        (torch.arange(steps) == steps - 1).expand(num, -1),
        action=alternating(num)[:, None, None].expand(-1, steps, -1),
    )
    strongest = int(_mean_gradient(patient, policy, rollout).abs().argmax())
    got_env, got_step = divmod(strongest, steps)
    expect(
        got_env == env and got_step <= step,
        f"the largest gradient for environment {env}, at its only reward in step {step} or before",
        f"environment {got_env}, step {got_step}",
        "advantages and observations are joined in different orders ([N, T] against [T, N], or shuffled apart)",
    )


def equal_rewards_move_nothing(patient: Patient) -> None:
    """Equal rewards give the mean no gradient, and no NaN where their spread of zero divides."""
    action = alternating(2 * GROUP_SIZE)
    equal, reference = (_bandit_gradient(patient, reward, action) for reward in (torch.ones_like(action), action))
    expect(
        reference.isfinite().all(),
        "a finite gradient of the mean in rollouts of one step, where rewards differ",
        f"{float(reference[0])}",
        "advantages are divided by the std of one sample, which is NaN: take it over all environments and steps "
        "(over one environment's single step it is not defined), or with correction=0",
    )
    expect(
        equal.isfinite().all(),
        "no gradient of the mean where all rewards are equal",
        f"{float(equal[0])}",
        "advantages are divided by their std, which is 0 here: add a small number to it",
    )
    expect(
        equal.abs() <= NEGLIGIBLE * reference.abs(),
        "no gradient of the mean where all rewards are equal",
        f"{float(equal[0]):.3g} (with rewards that differ: {float(reference[0]):.3g})",
        "something besides the advantages moves the mean, or rounding errors are divided by a spread of nearly 0",
    )


def clipped_samples_give_no_gradient(patient: Patient) -> None:
    """A ratio beyond the clip range gives no gradient in the direction of the advantage, and only there."""
    patient.require("clip_coef")
    clip = 0.2
    policy = probes.table_policy(3)
    states = torch.arange(3).repeat_interleave(2 * GROUP_SIZE)
    action = alternating(len(states))
    # The reward is +-1 as the action: advantages of the action's sign.
    rollout = probes.bandit(policy, states, 3, action, action)
    beyond = torch.where(action > 0, 2 * (1 + clip), (1 - clip) / 2)  # already further than the clip allows
    back = torch.where(action > 0, (1 - clip) / 2, 2 * (1 + clip))  # on the other side: to be corrected
    ratio = torch.where(states == 0, beyond, torch.where(states == 1, back, 1.0))
    rollout["sample_log_prob"][:, 0] -= ratio.log()
    lost, returning, plain = _mean_gradient(patient, policy, rollout, clip_coef=clip).abs().tolist()
    expect(
        lost <= NEGLIGIBLE * plain,
        "no gradient of samples whose ratio left the clip range in the direction of their advantage",
        f"{lost:.3g} (at ratio 1: {plain:.3g})",
        "the surrogate is not clipped, or the ratio is not exp(new - stored log-probability)",
    )
    expect(
        returning > NEGLIGIBLE * plain,
        "a gradient of samples whose ratio left the clip range against the direction of their advantage",
        f"{returning:.3g} (at ratio 1: {plain:.3g})",
        "the clipped ratio is taken everywhere: the objective is min(r A, clip(r) A)",
    )


def entropy_bonus_widens(patient: Patient) -> None:
    """With ``ent_coef`` and equal rewards the std grows."""
    patient.require("ent_coef")
    policy = probes.table_policy(1)
    action = alternating(2 * GROUP_SIZE)
    rollout = probes.bandit(policy, torch.zeros(len(action), dtype=torch.int64), 1, torch.ones_like(action), action)
    patient.build(policy, rollout, ent_coef=1.0).update(rollout)
    log_std = float(policy.log_std.detach())
    expect(
        log_std > 1e-4,
        "a log_std that grows from 0",
        f"{log_std:.3g}",
        "the entropy bonus has the wrong sign: subtract ent_coef * entropy from the loss"
        if log_std < -1e-4
        else "the entropy bonus is not in the loss, or its entropy has no gradient",
    )


def credit_stops_at_episode_end(patient: Patient) -> None:
    """A reward does not reach the actions of the episode before.

    The second step's reward is the first step's action. The first action gets credit for it only within one episode.
    """
    plain, terminated, truncated = (_credit(patient, end) for end in ("none", "terminated", "truncated"))
    if plain < 1e-6:
        raise CheckSkippedError("no action gets credit for the reward of the next step")
    for name, credit in (("terminated", terminated), ("truncated", truncated)):
        expect(
            credit <= NEGLIGIBLE * plain,
            f"no credit for a reward of the episode after a {name} step",
            f"{credit / plain:.0%} of the credit that it has within one episode",
            "the recursion over time is not cut: multiply what comes from step t+1 by (1 - done_t), "
            "done = terminated | truncated",
        )


def _trained(patient: Patient, policy: ActorCritic, collect: Callable[[], TensorDict]) -> list[float]:
    """Train a tabular policy and return its mean action in each state."""
    training = patient.train(policy, collect, n_epochs=4)
    for _ in range(_UPDATES):
        next(training)
    return probes.means(policy, policy.obs_dim)


def _credit(patient: Patient, end: str) -> float:
    """Return the gradient of the first step's mean action; ``end``: how its episode ends there."""
    policy = probes.table_policy(2)
    num = 2 * GROUP_SIZE
    first = alternating(num)
    second = 1.0 - 2.0 * (torch.arange(num) // 2 % 2)  # + + - -: independent of the first
    states = torch.tensor([0, 1, 0]).expand(num, -1)
    terminated = torch.tensor([end == "terminated", True]).expand(num, -1)
    truncated = torch.tensor([end == "truncated", False]).expand(num, -1)
    rollout = probes.play(
        policy,
        probes.one_hot(states, 2),
        torch.stack((torch.zeros(num), first), dim=1),
        terminated,
        truncated,
        probes.one_hot(states[:, 1:], 2),
        torch.stack((first, second), dim=1)[..., None],
    )
    return float(_mean_gradient(patient, policy, rollout, gamma=0.9)[0].abs())


def _bandit_gradient(patient: Patient, reward: Tensor, action: Tensor, num_states: int = 1) -> Tensor:
    """Return the gradient of each state's mean action in one-step episodes with given actions and rewards [N], [S].

    N / S consecutive environments share a state.
    """
    policy = probes.table_policy(num_states)
    states = torch.arange(num_states).repeat_interleave(len(action) // num_states)
    return _mean_gradient(patient, policy, probes.bandit(policy, states, num_states, reward, action))


def _mean_gradient(patient: Patient, policy: ActorCritic, rollout: TensorDict, **settings: Any) -> Tensor:
    """Return the gradient of each state's mean action in an update from a rollout, before clipping: [S]."""
    with probes.gradients(policy) as sums:
        patient.build(policy, rollout, **settings).update(rollout)
    return sums["actor.weight"][0]


# --- group-relative algorithms such as GRPO; groups are consecutive environments ---


def equal_group_returns_move_nothing(patient: Patient) -> None:
    """Groups with equal returns give no gradient and no NaN."""
    patient.require("group_size")
    up = torch.ones(2 * GROUP_SIZE)  # one and the same action: nothing cancels out
    levels = torch.tensor([1.0, 5.0]).repeat_interleave(GROUP_SIZE)
    equal = _bandit_gradient(patient, levels, up, num_states=2)
    reference = _bandit_gradient(patient, alternating(2 * GROUP_SIZE), alternating(2 * GROUP_SIZE), num_states=2)
    expect(
        equal.isfinite().all() and (equal.abs() <= NEGLIGIBLE * reference.abs()).all(),
        "no gradient of groups whose members all have the same return",
        f"{equal.abs().max():.3g} (where they differ: {reference.abs().max():.3g})",
        "a group's zero spread divides its advantages, or returns are compared over all groups",
    )


def groups_are_apart(patient: Patient) -> None:
    """The returns of one group do not change the gradient of another."""
    patient.require("group_size")
    action = alternating(GROUP_SIZE).repeat_interleave(2)  # ++--: in a group of every second one, too, half are +
    other = torch.arange(2 * GROUP_SIZE) >= GROUP_SIZE
    plain, shifted = (
        _bandit_gradient(patient, action + bonus * other, action, num_states=2)[0] for bonus in (0.0, 100.0)
    )
    expect(
        (plain - shifted).abs() <= NEGLIGIBLE * plain.abs(),
        "the same gradient of a group for any returns of the others",
        f"{float(plain):.3g}, but {float(shifted):.3g} with 100 more for the other group",
        "mean and std are taken over all environments, or groups are not consecutive environments",
    )


def nothing_after_first_done(patient: Patient) -> None:
    """With ``truncate_at_first_done`` the steps after an environment's first done give no gradient."""
    patient.require("truncate_at_first_done")
    policy = probes.table_policy(3)
    action = alternating(2 * GROUP_SIZE)
    is_first = torch.arange(2 * GROUP_SIZE) < GROUP_SIZE  # this group is done after one step; the other continues
    states = torch.where(is_first[:, None], torch.tensor([0, 1, 0]), torch.tensor([0, 2, 0]))
    rollout = probes.play(
        policy,
        probes.one_hot(states, 3),
        torch.stack((torch.zeros_like(action), action), dim=1),
        torch.stack((is_first, torch.ones_like(is_first)), dim=1),
        action=torch.stack((action, action), dim=1)[..., None],
    )
    _, masked, living = _mean_gradient(patient, policy, rollout, truncate_at_first_done=True).abs().tolist()
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
