"""The list of checks, running them, and their results as text."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.models import ActorCritic
from embodichain.ext.doctor import actor_checks, update_checks
from embodichain.ext.doctor.probes import CheckFailedError, CheckSkippedError, Patient
from embodichain.utils.device import torch_threads

# Later checks need earlier ones; the checks of the critic build on one another like the rungs of a ladder.
_SOUND = ("losses_are_finite", "parameters_change", "first_ratio_is_one")
_FINITE = (*_SOUND, "equal_rewards_move_nothing")  # a NaN from there would spread
_ACTOR = (*_FINITE, "advantage_sign")

CHECKS: dict[Callable[[Patient], None], tuple[str, ...]] = {
    update_checks.losses_are_finite: (),
    update_checks.parameters_change: ("losses_are_finite",),
    update_checks.rollout_stays_as_it_is: (),
    update_checks.first_ratio_is_one: (),
    actor_checks.equal_rewards_move_nothing: _SOUND,
    update_checks.gradient_norm_is_cut: _FINITE,
    actor_checks.nothing_after_first_done: _FINITE,
    actor_checks.groups_are_apart: _FINITE,
    actor_checks.equal_group_returns_move_nothing: (*_FINITE, "groups_are_apart"),
    update_checks.value_at_termination: _FINITE,
    update_checks.value_of_observation: (*_FINITE, "value_at_termination"),
    update_checks.value_discounts: (*_FINITE, "value_of_observation"),
    update_checks.value_at_truncation: (*_FINITE, "value_discounts"),
    update_checks.value_at_rollout_end: (*_FINITE, "value_discounts"),
    actor_checks.advantage_sign: (*_FINITE, "nothing_after_first_done", "groups_are_apart"),
    actor_checks.policy_of_observation: _ACTOR,
    actor_checks.advantage_of_transition: (*_ACTOR, "policy_of_observation"),
    actor_checks.clipped_samples_give_no_gradient: _ACTOR,
    actor_checks.entropy_bonus_widens: _FINITE,
    actor_checks.credit_stops_at_episode_end: (*_FINITE, "groups_are_apart"),
}
"""The checks that each check needs: it is skipped if one of them failed.

A check raises CheckFailedError or CheckSkippedError, or passes; its name is the function's."""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes:
        expected: empty unless it failed.
        got: empty unless it failed.
        cause: the likely cause of a failure, or the reason for skipping.
    """

    name: str
    status: Literal["passed", "failed", "skipped"]
    expected: str = ""
    got: str = ""
    cause: str = ""
    seconds: float = 0.0


def check_algorithm(
    name_or_class: str | type[BaseAlgorithm], cfg_kwargs: Mapping[str, Any] | None = None
) -> list[CheckResult]:
    """Check an algorithm's ``update`` by closed-form probes.

    Each check builds the algorithm with a small policy and a rollout with an outcome computed by hand. A check is
    skipped if a failed check explains it, so the first failure is the one to fix.

    Args:
        name_or_class: a registered name, or the class.
        cfg_kwargs: settings, as in ``algorithm.cfg``; probes override some.

    Returns:
        A result for each check, in the order of ``CHECKS``.
    """
    return list(run_checks(name_or_class, cfg_kwargs))


def run_checks(
    name_or_class: str | type[BaseAlgorithm], cfg_kwargs: Mapping[str, Any] | None = None
) -> Iterator[CheckResult]:
    """Yield the results of ``check_algorithm`` one by one."""
    algo_class = get_algo_class(name_or_class) if isinstance(name_or_class, str) else name_or_class
    patient = Patient(algo_class, cfg_kwargs or {})
    broken: set[str] = set()
    for check, needs in CHECKS.items():
        explained = next((name for name in needs if name in broken), None)
        if explained is None:
            result = _run(check, patient)
        else:
            result = CheckResult(check.__name__, "skipped", cause=f"says nothing while {explained} does not pass")
        if result.status == "failed" or explained is not None:
            broken.add(check.__name__)
        yield result


def _run(check: Callable[[Patient], None], patient: Patient) -> CheckResult:
    status: Literal["passed", "failed", "skipped"] = "passed"
    details: dict[str, str] = {}
    start = time.perf_counter()
    # The caller's generator stays as it is. With tensors of a handful of states a second thread only costs time.
    with torch.random.fork_rng(devices=[]), torch_threads(1):
        torch.manual_seed(0)
        try:
            if not issubclass(ActorCritic, needed := patient.algo_class.policy_class):
                raise CheckSkippedError(f"the algorithm improves a {needed.__name__}, not an ActorCritic")
            check(patient)
        except CheckFailedError as error:
            status, details = "failed", dict(zip(("expected", "got", "cause"), error.args, strict=True))
        except CheckSkippedError as error:
            status, details = "skipped", {"cause": str(error)}
    return CheckResult(check.__name__, status, seconds=time.perf_counter() - start, **details)


def format_result(result: CheckResult) -> str:
    """Return a result for the screen: one line, four if the check failed."""
    if result.status == "skipped":
        return f"  skipped  {result.name}: {result.cause}"
    if result.status == "passed":
        return f"  passed   {result.name}"
    lines = [f"  FAILED   {result.name}"]
    lines += [f"             {label:9} {getattr(result, label)}" for label in ("expected", "got", "cause")]
    return "\n".join(lines)


def format_totals(results: Sequence[CheckResult]) -> str:
    """Return the last line of a report."""
    statuses = [result.status for result in results]
    seconds = sum(result.seconds for result in results)
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("passed", "failed", "skipped"))
    return f"{counts} in {seconds:.1f} s"
