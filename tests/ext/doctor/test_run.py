"""Which checks fail for which mistake."""

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import AlgorithmCfg, BaseAlgorithm
from embodichain.agents.rl.models import Policy
from embodichain.ext.doctor import CheckResult, check_algorithm
from embodichain.ext.doctor.run import CHECKS
from embodichain.utils import ConfigError
from tests.ext.doctor.sick import with_bugs
from tests.ext.doctor.sick_groups import with_group_bugs

GROUP_CHECKS = {"equal_group_returns_move_nothing", "groups_are_apart", "nothing_after_first_done"}
VALUE_CHECKS = {
    "value_at_rollout_end",
    "value_at_termination",
    "value_at_truncation",
    "value_discounts",
    "value_of_observation",
}
SHIPPED = ("ppo", "grpo")
# The mistake, the one check that is to fail, and words of the cause that it is to name.
MISTAKES = [
    ("loss is NaN", "losses_are_finite", "division by zero"),
    ("loss is not returned", "losses_are_finite", "returns something else"),
    ("no optimizer step", "parameters_change", "no optimizer step"),
    ("rewards scaled in place", "rollout_stays_as_it_is", "in place"),
    ("normaliser updated early", "first_ratio_is_one", "normaliser is updated within update()"),
    ("obs shifted by one", "first_ratio_is_one", "of different slots"),
    ("obs normalised", "first_ratio_is_one", "before the policy sees them"),
    ("actions clipped", "first_ratio_is_one", "clipped?"),
    ("log-probs of other samples", "first_ratio_is_one", "joins fields of different slots"),
    ("no gradient clipping", "gradient_norm_is_cut", "clip_grad_norm_"),
    ("bootstrap at termination", "value_at_termination", "bootstraps at termination"),
    ("no value loss", "value_at_termination", "value loss"),
    ("value of the new episode at truncation", "value_at_truncation", "the new episode's observation"),
    ("value before the last at truncation", "value_at_truncation", "the observation before the last"),
    ("truncation as termination", "value_at_truncation", "treats a time limit as termination"),
    ("no bootstrap at the rollout's end", "value_at_rollout_end", "rollout['value'] of slot T"),
    ("bootstrap from slot T-1 at the rollout's end", "value_at_rollout_end", "from slot T-1"),
    ("advantages transposed", "advantage_of_transition", "[N, T] against [T, N]"),
    ("std of each environment", "equal_rewards_move_nothing", "std of one sample"),
    ("returns transposed", "value_of_observation", "different orders"),
    ("no discount", "value_discounts", "gamma is not applied"),
    ("advantage sign", "advantage_sign", "wrong sign"),
    ("indices clipped", "discrete_action_is_learned", "clipped or scaled"),
    ("actor detached", "advantage_sign", "do not reach the actor"),
    ("no eps", "equal_rewards_move_nothing", "divided by their std"),
    ("no ratio clipping", "clipped_samples_give_no_gradient", "not clipped"),
    ("ratio always clipped", "clipped_samples_give_no_gradient", "clipped ratio is taken everywhere"),
    ("entropy sign", "entropy_bonus_widens", "wrong sign"),
    ("no entropy", "entropy_bonus_widens", "not in the loss"),
    ("chain not cut", "credit_stops_at_episode_end", "(1 - done_t)"),
    ("chain not cut at truncation", "credit_stops_at_episode_end", "(1 - done_t)"),
]


# The same for algorithms that compare within groups.
GROUP_MISTAKES = [
    ("no eps", "losses_are_finite", "division by zero"),
    ("no baseline", "equal_group_returns_move_nothing", "zero spread"),
    ("one group of all", "groups_are_apart", "over all environments"),
    ("groups interleaved", "groups_are_apart", "not consecutive"),
    ("nothing masked", "nothing_after_first_done", "not left out"),
    ("masked from the first done on", "nothing_after_first_done", "begins too early"),
    ("returns not cut", "credit_stops_at_episode_end", "(1 - done_t)"),
]


def by_status(results: list[CheckResult]) -> dict[str, set[str]]:
    return {status: {r.name for r in results if r.status == status} for status in ("passed", "failed", "skipped")}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_algorithm_passes_what_applies_to_it(name: str) -> None:
    statuses = by_status(check_algorithm(name))
    assert statuses["failed"] == set()
    assert statuses["skipped"] == {"ppo": GROUP_CHECKS, "grpo": VALUE_CHECKS}[name]


@pytest.mark.learning
@pytest.mark.filterwarnings("ignore:std\\(\\)")  # torch's own, of a single sample
@pytest.mark.parametrize(
    ("algorithm", "check", "words"),
    [
        *(pytest.param(with_bugs(bug), *row, id=bug) for bug, *row in MISTAKES),
        *(pytest.param(with_group_bugs(bug), *row, id=f"{bug} in groups") for bug, *row in GROUP_MISTAKES),
    ],
)
def test_planted_mistake_fails_its_check_alone(algorithm: type[BaseAlgorithm], check: str, words: str) -> None:
    (failure,) = (result for result in check_algorithm(algorithm) if result.status == "failed")
    assert failure.name == check
    assert words in failure.cause
    assert failure.expected
    assert failure.got


def test_algorithm_of_normal_actions_skips_the_discrete_ones() -> None:
    results = check_algorithm(with_bugs("reads the mean"))
    assert {result.name for result in results if result.status == "failed"} == set()
    (skipped,) = (result for result in results if result.name == "discrete_action_is_learned")
    assert skipped.status == "skipped"
    assert skipped.cause.startswith('the algorithm is for normal actions alone: key "mean" not found')


def test_check_that_another_one_explains_is_skipped_and_says_so() -> None:
    results = {result.name: result for result in check_algorithm(with_bugs("no optimizer step"))}
    assert results["advantage_sign"].status == "skipped"
    assert results["advantage_sign"].cause == "says nothing while parameters_change does not pass"


def test_results_repeat_and_leave_the_global_generator() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = check_algorithm(with_bugs("actions clipped"))
    assert torch.equal(torch.rand(2), expected)
    again = check_algorithm(with_bugs("actions clipped"))
    assert [(r.name, r.status, r.got) for r in first] == [(r.name, r.status, r.got) for r in again]
    assert [r.name for r in first] == [check.__name__ for check in CHECKS]


class PlainPolicyGradient(BaseAlgorithm):
    """Without critic, clipping, entropy, time, gradient clipping: what does not apply is skipped."""

    def __init__(self, cfg: AlgorithmCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.cfg = cfg

    def update(self, rollout: TensorDict) -> dict[str, float]:
        transitions = rollout[:, :-1]
        optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.5)
        reward = transitions["reward"] - transitions["reward"].mean()
        loss = -(self.policy.evaluate_actions(transitions)["sample_log_prob"] * reward).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.cfg.max_grad_norm)
        optimizer.step()
        return {"loss": float(loss.detach())}


def test_what_does_not_apply_is_skipped_with_a_reason() -> None:
    results = {result.name: result for result in check_algorithm(PlainPolicyGradient)}
    assert results["value_at_termination"].cause == "the algorithm trains no critic, and its config has no vf_coef"
    assert results["clipped_samples_give_no_gradient"].cause == "the config has no clip_coef"
    assert results["entropy_bonus_widens"].cause == "the config has no ent_coef"
    assert results["credit_stops_at_episode_end"].cause == "no action gets credit for the reward of the next step"


def test_unknown_name_and_wrong_settings_are_the_users_mistakes() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'ppo'"):
        check_algorithm("ppoo")
    with pytest.raises(ConfigError, match=r"cfg.clip_coeff: unknown key. Did you mean 'clip_coef'"):
        check_algorithm("ppo", {"clip_coeff": 0.1})
    with pytest.raises(ConfigError, match="SAC learns from replay; the checks are of updates from rollouts"):
        check_algorithm("sac")
