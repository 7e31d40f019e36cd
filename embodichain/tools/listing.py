"""Lists of the registered tasks, algorithms, policies and terms."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.agents.rl.algo import get_registered_algo_names
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.named import shipped_configs
from embodichain.agents.rl.models import get_registered_policy_names
from embodichain.agents.rl.models.registry import get_policy_class
from embodichain.agents.rl.train_source import OWN_CONFIG, train_command
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES
from embodichain.lab.gym.registry import EnvSpec, get_env_spec, get_registered_env_ids
from embodichain.utils.configclass import first_line
from embodichain.utils.module_utils import find_function_from_modules, public_names

Row = dict[str, Any]

_OWN = "your own, which configs name by these paths"


def _envs() -> list[Row]:
    ids = get_registered_env_ids()
    others = dict.fromkeys(config.env_id for config in shipped_configs() if config.env_id not in ids)
    return [_env_row(env_id, get_env_spec(env_id)) for env_id in ids] + [_env_row(env_id) for env_id in others]


def _env_row(env_id: str, spec: EnvSpec | None = None) -> Row:
    """Return the row of a registered task, or of another library's environment that shipped configs name."""
    configs = [config for config in shipped_configs() if config.env_id == env_id]
    return {
        "name": env_id,
        "about": "An environment of another library." if spec is None else first_line(spec.cls),
        "max_episode_steps": None if spec is None else spec.max_episode_steps,
        "configs": [config.name for config in configs],
        "train": train_command(configs),
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


def _own_terms(modules: Sequence[str]) -> list[Row]:
    """Return likely terms in users' modules: ``func(env, ...)``, or a class made by ``(cfg, env)``.

    Configs name them by their path. Which block they are for cannot be seen.
    """
    rows = []
    for module in modules:
        for name, term in vars(sys.modules[module]).items():
            is_class = inspect.isclass(term)
            if name.startswith("_") or not (is_class or inspect.isfunction(term)) or term.__module__ != module:
                continue
            parameters = list(inspect.signature(term.__init__ if is_class else term).parameters)
            if parameters[:3] == ["self", "cfg", "env"] if is_class else parameters[:1] == ["env"]:
                rows.append({"name": f"{module}.{name}", "about": first_line(term), "block": None})
    return rows


def _training_lines(row: Row, indent: str) -> list[str]:
    """Return the lines below a task that say how to train it."""
    if row["train"] is None:
        return [f"{indent}{OWN_CONFIG}"]
    others = f"{indent}also: {', '.join(row['configs'][1:])}"
    return [indent + row["train"], *([others] if row["configs"][1:] else [])]


LISTS: dict[str, Callable[[], list[Row]]] = {"envs": _envs, "algos": _algos, "policies": _policies, "terms": _terms}
"""Functions by kind of list; each row has ``name`` and ``about``."""


def rows_of(kind: str, modules: Sequence[str]) -> list[Row]:
    """Return the rows of a key of ``LISTS``, terms' rows with the terms of imported modules."""
    return LISTS[kind]() + (_own_terms(modules) if kind == "terms" else [])


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
        lines += _training_lines(row, " " * width) if "train" in row else []
    return "\n".join(lines)
