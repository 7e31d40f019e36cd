"""``embodichain list``."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.agents.rl.algo import get_registered_algo_names
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.models import get_registered_policy_names
from embodichain.agents.rl.models.registry import get_policy_class
from embodichain.commands.arguments import add_json
from embodichain.lab.gym.config.env_config import BLOCK_MODULES
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.utils.docs import first_line
from embodichain.utils.module_utils import (
    add_allow_import,
    add_import,
    find_function_from_modules,
    import_named_modules,
    public_names,
)

EXAMPLES = ("envs", "terms --json", "algos --import my_lab.a2c --allow-import my_lab")

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("kind", nargs="?", choices=list(_LISTS), help="what to list (default: all)")
    add_import(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; return 0.

    Raises:
        ConfigError: a module is not allowed or not there.
    """
    import_named_modules(args)
    if args.kind is not None:
        rows = _LISTS[args.kind]()
        print(json.dumps(rows, indent=2) if args.json else _text(rows))
        return 0
    lists = {kind: rows() for kind, rows in _LISTS.items()}
    if args.json:
        print(json.dumps(lists, indent=2))
    else:
        print("\n\n".join(f"# {kind}\n\n{_text(rows)}" for kind, rows in lists.items()))
    return 0


def _envs() -> list[Row]:
    specs = [get_env_spec(env_id) for env_id in get_registered_env_ids()]
    return [
        {"name": spec.env_id, "about": first_line(spec.cls), "max_episode_steps": spec.max_episode_steps}
        for spec in specs
    ]


def _algos() -> list[Row]:
    rows = []
    for name in get_registered_algo_names():
        cls = get_algo_class(name)
        rows.append(
            {"name": name, "about": first_line(cls), "settings": [f.name for f in dataclasses.fields(cls.cfg_class)]}
        )
    return rows


def _policies() -> list[Row]:
    return [{"name": name, "about": first_line(get_policy_class(name))} for name in get_registered_policy_names()]


def _terms() -> list[Row]:
    rows = []
    for block, modules in BLOCK_MODULES.items():
        for name in sorted(public_names(modules)):
            term = find_function_from_modules(name, modules)
            if inspect.isclass(term) or inspect.isfunction(term):
                rows.append({"name": name, "about": first_line(term), "block": block})
    return rows


_LISTS: dict[str, Callable[[], list[Row]]] = {"envs": _envs, "algos": _algos, "policies": _policies, "terms": _terms}


def _text(rows: list[Row]) -> str:
    width = max((len(row["name"]) for row in rows), default=0) + 2
    lines: list[str] = []
    block = None
    for row in rows:
        if row.get("block") != block:
            block = row["block"]
            lines += ["", f"env.{block}"] if lines else [f"env.{block}"]
        lines.append(f"{row['name']:{width}}{row['about']}")
    return "\n".join(lines)
