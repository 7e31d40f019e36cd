"""Lists of the registered tasks, algorithms, policies and terms."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.agents.rl.algo import get_registered_algo_names
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.named import shipped_configs
from embodichain.agents.rl.models import get_registered_policy_names
from embodichain.agents.rl.models.registry import get_policy_class
from embodichain.agents.rl.train_source import OWN_CONFIG, train_command
from embodichain.lab.gym.envs.managers.modules import BLOCK_MODULES
from embodichain.lab.gym.registry import EnvSpec, get_env_spec, get_registered_env_ids
from embodichain.utils.docs import first_line
from embodichain.utils.module_utils import find_function_from_modules, public_names

Row = dict[str, Any]


def _envs() -> list[Row]:
    return [_env_row(get_env_spec(env_id)) for env_id in get_registered_env_ids()]


def _env_row(spec: EnvSpec) -> Row:
    configs = [config for config in shipped_configs() if config.env_id == spec.env_id]
    return {
        "name": spec.env_id,
        "about": first_line(spec.cls),
        "max_episode_steps": spec.max_episode_steps,
        "configs": [config.name for config in configs],
        "train": train_command(spec, configs),
    }


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


def _training_lines(row: Row, indent: str) -> list[str]:
    """Return the lines below a task that say how to train it."""
    if row["train"] is None:
        return [f"{indent}{OWN_CONFIG}"]
    others = f"{indent}also: {', '.join(row['configs'][1:])}"
    return [indent + row["train"], *([others] if row["configs"][1:] else [])]


LISTS: dict[str, Callable[[], list[Row]]] = {"envs": _envs, "algos": _algos, "policies": _policies, "terms": _terms}
"""Functions by kind of list; each row has ``name`` and ``about``."""


def format_rows(rows: list[Row]) -> str:
    """Return a line for each row, terms below their blocks' names, and below a task how it is trained."""
    width = max((len(row["name"]) for row in rows), default=0) + 2
    lines: list[str] = []
    block = None
    for row in rows:
        if row.get("block") != block:
            block = row["block"]
            lines += ["", f"env.{block}"] if lines else [f"env.{block}"]
        lines.append(f"{row['name']:{width}}{row['about']}")
        lines += _training_lines(row, " " * width) if "train" in row else []
    return "\n".join(lines)
