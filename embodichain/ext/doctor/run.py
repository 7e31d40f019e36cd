"""``embodichain doctor``: the facts of this machine, or with ``--algo`` the checks of an algorithm."""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.arguments import add_allow_import, add_import, import_named_modules
from embodichain.agents.rl.models import ActorCritic
from embodichain.commands.arguments import add_json, print_result
from embodichain.ext.doctor import actor_checks, probes, update_checks
from embodichain.lab.sim.rendering.renderer import RenderingUnavailableError, choose_ray_tracing
from embodichain.utils import device, files

# Later checks need earlier ones; the checks of the critic build on one another like the rungs of a ladder.
_SOUND = ("losses_are_finite", "parameters_change", "first_ratio_is_one")
_FINITE = (*_SOUND, "equal_rewards_move_nothing")  # a NaN from there would spread
_ACTOR = (*_FINITE, "advantage_sign")

CHECKS: dict[Callable[[probes.Patient], None], tuple[str, ...]] = {
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
    actor_checks.discrete_action_is_learned: _ACTOR,
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
    """Check an algorithm's ``update`` by closed-form probes; return a result for each, in the order of ``CHECKS``.

    Each check builds the algorithm with a small policy and a rollout with an outcome computed by hand. A check is
    skipped if a failed check explains it, so the first failure is the one to fix.

    Args:
        name_or_class: a registered name, or the class.
        cfg_kwargs: settings, as in ``algorithm.cfg``; probes override some.
    """
    return list(run_checks(name_or_class, cfg_kwargs))


def run_checks(
    name_or_class: str | type[BaseAlgorithm], cfg_kwargs: Mapping[str, Any] | None = None
) -> Iterator[CheckResult]:
    """Yield the results of ``check_algorithm`` one by one."""
    algo_class = get_algo_class(name_or_class) if isinstance(name_or_class, str) else name_or_class
    patient = probes.Patient(algo_class, cfg_kwargs or {})
    broken: set[str] = set()
    for check, needs in CHECKS.items():
        explained = next((name for name in needs if name in broken), None)
        if explained is None:
            result = _result(check, patient)
        else:
            result = CheckResult(check.__name__, "skipped", cause=f"says nothing while {explained} does not pass")
        if result.status == "failed" or explained is not None:
            broken.add(check.__name__)
        yield result


def _result(check: Callable[[probes.Patient], None], patient: probes.Patient) -> CheckResult:
    status: Literal["passed", "failed", "skipped"] = "passed"
    details: dict[str, str] = {}
    start = time.perf_counter()
    # The caller's generator stays as it is. With tensors of a handful of states a second thread only costs time.
    with torch.random.fork_rng(devices=[]), device.torch_threads(1):
        torch.manual_seed(0)
        try:
            if not issubclass(ActorCritic, needed := patient.algo_class.policy_class):
                raise probes.CheckSkippedError(f"the algorithm improves a {needed.__name__}, not an ActorCritic")
            check(patient)
        except probes.CheckFailedError as error:
            status, details = "failed", dict(zip(("expected", "got", "cause"), error.args, strict=True))
        except probes.CheckSkippedError as error:
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


_SMALL_DISK, _SMALL_MEMORY = 2.0, 2.0  # GB


def examine_machine() -> dict[str, Any]:
    """Return the facts of ``describe_machine`` with ``pictures``, the renderer of images, and ``advice``."""
    facts = device.describe_machine() | {"pictures": _renderer()}
    return facts | {"advice": give_advice(facts)}


def give_advice(facts: dict[str, Any]) -> list[str]:
    """Return advice that makes trainings on a machine faster, or possible, one sentence each."""
    cores, load = facts["cores"], facts["load_average"]
    advice = []
    if not facts["pictures"].startswith("OpenGL"):
        advice.append(f"{facts['pictures']}. Without OpenGL there are no videos, or slow ones")
    if load is not None and load > 0.5 * cores:
        advice.append(f"other programs keep {load:g} of {cores} cores busy: trainings are slower for it")
    threads = facts["environment"].get("OMP_NUM_THREADS")
    if threads is not None and threads.isdigit() and int(threads) < cores:
        advice.append(f"OMP_NUM_THREADS={threads} holds updates to {threads} of {cores} cores: unset it to use all")
    if facts["torch_cuda"] is None:
        advice.append("this PyTorch is built without CUDA: trainings run on the processor")
    if facts["free_disk_gb"] < _SMALL_DISK:
        advice.append(f"{facts['free_disk_gb']} GB are free on this disk: checkpoints and videos may fill it")
    if facts["free_memory_gb"] is not None and facts["free_memory_gb"] < _SMALL_MEMORY:
        advice.append(f"{facts['free_memory_gb']} GB of memory are free: take fewer environments, or close programs")
    return advice


def _renderer() -> str:
    try:
        return "ray tracing" if choose_ray_tracing(enable_rt=False) else "OpenGL without a window"
    except RenderingUnavailableError as error:
        return f"none: {error}"


def _known(number: float | None, unit: str = "") -> str:
    return "unknown" if number is None else f"{number:g}{unit}"


def format_machine(facts: dict[str, Any]) -> str:
    """Return the result of ``examine_machine``, for the screen."""
    threads = ", ".join([f"torch {facts['torch_threads']}", *(f"{k}={v}" for k, v in facts["environment"].items())])
    rows = {
        "system": f"{facts['system']}, Python {facts['python']}",
        "processor": f"{facts['processor'] or 'unknown'}, {facts['cores']} cores, load {_known(facts['load_average'])}",
        "memory": f"{_known(facts['memory_gb'], ' GB')}, {_known(facts['free_memory_gb'], ' GB')} free; disk: "
        f"{facts['free_disk_gb']} GB free",
        "GPU": "; ".join(facts["gpus"]) or "none",
        "images": facts["pictures"],
        "threads": threads,
        "versions": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
    }
    lines = [f"{name:11}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "", *(f"advice     {line}" for line in facts["advice"] or ["none: all is well"])])


EXAMPLES = ("", "--json", "--algo ppo", "--algo a2c --import my_lab.a2c --allow-import my_lab")
EXIT_CODES = "exit codes: 0 done, 1 the algorithm failed a check, 2 wrong usage"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--algo", metavar="NAME", help="check this algorithm, by its registered name")
    add_import(parser)
    add_allow_import(parser, "--import")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Check and print; return 0, or 1 if an algorithm failed a check."""
    if args.algo is None:
        if args.modules:
            args.command.error("--import: needs --algo")
        print_result(args, examine_machine(), format_machine)
        return 0
    import_named_modules(args)
    results = []
    for result in run_checks(args.algo):
        results.append(result)
        if not args.json:
            print(format_result(result), flush=True)
    print(files.json_text([asdict(result) for result in results], indent=2) if args.json else format_totals(results))
    return int(any(result.status == "failed" for result in results))
