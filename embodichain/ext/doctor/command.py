"""``embodichain doctor``: this machine, or with ``--algo`` an algorithm."""

import argparse
from dataclasses import asdict
from typing import Any

from embodichain.agents.rl.config.arguments import add_allow_import, add_import, import_named_modules
from embodichain.commands.arguments import add_json, print_result
from embodichain.ext.doctor.run import format_result, format_totals, run_checks
from embodichain.lab.sim.rendering.renderer import choose_ray_tracing
from embodichain.lab.sim.rendering.shot import RenderingUnavailableError
from embodichain.utils.device import describe_machine
from embodichain.utils.files import json_text

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
    print(json_text([asdict(result) for result in results], indent=2) if args.json else format_totals(results))
    return int(any(result.status == "failed" for result in results))


_SMALL_DISK, _SMALL_MEMORY = 2.0, 2.0  # GB


def examine_machine() -> dict[str, Any]:
    """Return the facts of ``describe_machine`` with ``pictures``, the renderer of images, and ``advice``."""
    facts = describe_machine() | {"pictures": _renderer()}
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
