"""``embodichain list``: the registered tasks, algorithms, policies and terms."""

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.agents.rl.algo.registry import get_algo_class, get_registered_algo_names
from embodichain.agents.rl.config.arguments import add_allow_import, add_import, import_named_modules
from embodichain.agents.rl.config.named import shipped_configs
from embodichain.agents.rl.models.registry import get_policy_class, get_registered_policy_names
from embodichain.agents.rl.run_config import OWN_CONFIG, train_command
from embodichain.commands.arguments import add_json, print_result
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.schema import first_line
from embodichain.utils.module_utils import find_function_from_modules, own_terms, public_names

EXAMPLES = (
    "envs",
    "terms --json",
    "algos --import my_lab.a2c --allow-import my_lab",
    "terms --import my_task.task --allow-import my_task",
)

Row = dict[str, Any]

_OWN = "your own, which configs name by these paths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("kind", nargs="?", choices=list(LISTS), help="what to list (default: all)")
    add_import(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; return 0."""
    import_named_modules(args)
    if args.kind is not None:
        print_result(args, LISTS[args.kind](args.modules), format_rows)
        return 0
    lists = {kind: rows(args.modules) for kind, rows in LISTS.items()}
    print_result(args, lists, lambda _: "\n\n".join(f"# {kind}\n\n{format_rows(rows)}" for kind, rows in lists.items()))
    return 0


def _envs(modules: Sequence[str]) -> list[Row]:
    """Return the registered tasks, and other libraries' environments that shipped configs name."""
    ids = get_registered_env_ids()
    rows = []
    for env_id in dict.fromkeys([*ids, *(config.env_id for config in shipped_configs())]):
        configs = [config for config in shipped_configs() if config.env_id == env_id]
        spec = get_env_spec(env_id) if env_id in ids else None
        rows.append(
            {
                "name": env_id,
                "about": "An environment of another library." if spec is None else first_line(spec.cls),
                "max_episode_steps": None if spec is None else spec.max_episode_steps,
                "configs": [config.name for config in configs],
                "train": train_command(configs),
            }
        )
    return rows


def _algos(modules: Sequence[str]) -> list[Row]:
    classes = {name: get_algo_class(name) for name in get_registered_algo_names()}
    return [
        {
            "name": name,
            "about": first_line(cls),
            "settings": [field.name for field in dataclasses.fields(cls.cfg_class)],
        }
        for name, cls in classes.items()
    ]


def _policies(modules: Sequence[str]) -> list[Row]:
    return [{"name": name, "about": first_line(get_policy_class(name))} for name in get_registered_policy_names()]


def _terms(modules: Sequence[str]) -> list[Row]:
    """Return the shipped terms by block, and likely ones in users' modules, whose block cannot be seen, by path."""
    rows: list[Row] = []
    for block, block_modules in BLOCK_MODULES.items():
        for name in sorted(public_names(block_modules)):
            term = find_function_from_modules(name, block_modules)
            if inspect.isclass(term) or inspect.isfunction(term):
                rows.append({"name": name, "about": first_line(term), "block": block})
    for module in modules:
        for name in own_terms(found := sys.modules[module]):
            rows.append({"name": f"{module}.{name}", "about": first_line(getattr(found, name)), "block": None})
    return rows


LISTS: dict[str, Callable[[Sequence[str]], list[Row]]] = {
    "envs": _envs,
    "algos": _algos,
    "policies": _policies,
    "terms": _terms,
}
"""Functions by kind of list, of users' imported modules; each row has ``name`` and ``about``."""


def format_rows(rows: list[Row]) -> str:
    """Return a line for each row, terms below their blocks' names, and below a task how it is trained."""
    width = max((len(row["name"]) for row in rows), default=0) + 2
    lines: list[str] = []
    heading = ""
    for row in rows:
        if "block" in row:
            above, heading = heading, _OWN if row["block"] is None else f"env.{row['block']}"
            lines += [] if heading == above else ["", heading] if lines else [heading]
        lines.append(f"{row['name']:{width}}{row['about']}")
        if "train" in row:
            lines.append(" " * width + (row["train"] or OWN_CONFIG))
            lines += [f"{' ' * width}also: {', '.join(row['configs'][1:])}"] if row["configs"][1:] else []
    return "\n".join(lines)
