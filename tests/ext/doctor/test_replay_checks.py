"""Which checks fail for which mistake of an algorithm with a replay buffer."""

from __future__ import annotations

import pytest
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.models import SoftActorCritic
from embodichain.ext.doctor import check_algorithm
from embodichain.ext.doctor.run import REPLAY_CHECKS
from embodichain.utils import configclass
from tests.agents.rl.algo.sick_sac import Particular, SickSAC, with_sac_bugs

# The mistake, the one check that is to fail, and words of the cause that it is to name.
MISTAKES = [
    ("loss is NaN", "losses_are_finite", "division by zero"),
    ("no optimizer step", "parameters_change", "no optimizer step"),
    ("rewards scaled in place", "rollout_stays_as_it_is", "in place"),
    ("final observation changed in place", "rollout_stays_as_it_is", "in place"),
    ("no gradient clipping", "gradient_norm_is_cut", "clip_grad_norm_"),
    ("bootstrap at termination", "q_at_termination", "bootstraps at termination"),
    ("critics have no step", "q_at_termination", "do not learn"),
    ("one critic's parameters", "q_at_termination", "only one critic learns"),
    ("rewards transposed", "q_of_observation", "different orders"),
    ("actions of other transitions", "q_of_action", "of other transitions"),
    ("no discount", "q_discounts", "gamma is not applied"),
    ("discount twice", "q_discounts", "twice"),
    ("truncation as termination", "q_at_truncation", "treats a time limit as termination"),
    ("new episode at truncation", "q_at_truncation", "the new episode's observation"),
    ("observation before the last at truncation", "q_at_truncation", "the observation before the last"),
    ("end of the rollout as termination", "q_at_rollout_end", "counts as 0"),
    ("next rollout behind the last step", "q_after_reset", "taken from the next rollout"),
    ("one discount for n steps", "q_of_n_steps", "another discount"),
    ("n steps run on", "q_of_n_steps", "ends with a terminated step"),
    ("n steps run on after truncation", "q_of_n_steps", "ends with a truncated step"),
    ("no target networks", "targets_move_by_tau", "from the critics themselves"),
    ("targets never move", "targets_move_by_tau", "never move"),
    ("tau of the old", "targets_move_by_tau", "old parameters"),
    ("highest critic", "targets_reduce_the_critics", "overestimates"),
    ("always the mean", "targets_reduce_the_critics", "the min of the critics' values"),
    ("target of each critic", "targets_reduce_the_critics", "a target of its own"),
    ("no entropy in targets", "q_has_the_entropy", "is not in the targets"),
    ("entropy sign in targets", "q_has_the_entropy", "wrong sign in the targets"),
    ("actor sign", "better_action", "wrong sign"),
    ("actor detached", "better_action", "do not reach the actor"),
    ("actor at other observations", "better_action_of_observation", "at other observations"),
    ("no entropy for the actor", "entropy_widens", "or no gradient"),
    ("entropy sign for the actor", "entropy_widens", "has the wrong sign"),
    ("temperature sign", "temperature_holds_the_entropy", "wrong sign"),
    ("temperature kept", "temperature_holds_the_entropy", "no step"),
]


@pytest.mark.learning
def test_sound_copy_of_sac_passes_all() -> None:
    results = check_algorithm(SickSAC)
    assert {result.status for result in results} == {"passed"}
    assert [result.name for result in results] == [check.__name__ for check in REPLAY_CHECKS]


def test_every_check_has_a_mistake_that_fails_it() -> None:
    assert {check for _, check, _ in MISTAKES} == {check.__name__ for check in REPLAY_CHECKS}


@pytest.mark.learning
@pytest.mark.parametrize(("mistake", "check", "words"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_planted_mistake_fails_the_check_that_names_it_and_no_other(mistake: str, check: str, words: str) -> None:
    (failure,) = (result for result in check_algorithm(with_sac_bugs(mistake)) if result.status == "failed")
    assert failure.name == check
    assert words in failure.cause
    assert failure.expected
    assert failure.got


@configclass
class PlainCfg:
    """Nothing of what the checks vary."""

    device: str = "cpu"


class Idle(BaseAlgorithm):
    """Learns nothing."""

    learns_from = "replay"
    policy_class = SoftActorCritic
    cfg_class = PlainCfg
    reads_evaluated = ()

    def update(self, rollout: TensorDict) -> dict[str, float]:
        self.policy.actor.weight.data.add_(1e-3)  # type: ignore[operator, union-attr]
        return {"loss": 0.0}


def test_settings_that_an_algorithm_lacks_are_named_where_a_check_is_skipped() -> None:
    causes = {result.name: result.cause for result in check_algorithm(Idle) if result.status == "skipped"}
    assert causes["gradient_norm_is_cut"] == "the config has no max_grad_norm"
    assert causes["q_of_observation"] == "says nothing while q_at_termination does not pass"


def test_algorithm_of_other_policies_is_not_examined_and_says_so() -> None:
    results = check_algorithm(Particular)
    reasons = {(result.status, result.cause) for result in results}
    assert reasons == {
        ("skipped", "the algorithm improves policies of class OwnPolicy, and the checks have a SoftActorCritic")
    }
