"""Differences between a run's config and the defaults."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.models.registry import get_policy_cfg_class
from embodichain.utils import ConfigError
from embodichain.utils.configclass import MISSING

_NOT_SETTINGS = ("gym_config", "exp_name", "events", "import_modules")


def differences_from_defaults(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return path, value and default, as JSON, of the settings that differ from their default.

    These are settings of ``trainer``, ``policy`` and ``algorithm.cfg``. The default is empty if there is none, or if
    the algorithm or policy is not registered here.
    """
    rows = _block("trainer", config["trainer"], TrainerCfg, _NOT_SETTINGS)
    policy, algorithm = config["policy"], config["algorithm"]
    rows += _block("policy", policy, _find(get_policy_cfg_class, policy.get("name", "")), ("name", "actor", "critic"))
    for network in ("actor", "critic"):
        if policy.get(network):
            rows.append((f"policy.{network}", json.dumps(policy[network]), ""))
    algo = _find(get_algo_class, algorithm.get("name", ""))
    return rows + _block("algorithm.cfg", algorithm.get("cfg") or {}, algo and algo.cfg_class, ("device",))


def _find(find: Any, name: str) -> Any:
    try:
        return find(name)
    except ConfigError:  # of a module that is not imported here
        return None


def _block(place: str, values: dict[str, Any], cfg_class: Any, left_out: tuple[str, ...]) -> list[tuple[str, str, str]]:
    defaults = _defaults(cfg_class) if cfg_class is not None else {}
    rows = []
    for key, value in values.items():
        text, default = json.dumps(value), json.dumps(defaults[key]) if key in defaults else ""
        if key not in left_out and text != default:
            rows.append((f"{place}.{key}", text, default))
    return rows


def _defaults(cfg_class: Any) -> dict[str, Any]:
    """Return a config class's defaults as plain data."""
    defaults = {}
    for field in dataclasses.fields(cfg_class):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if value is MISSING or value is dataclasses.MISSING:
            continue
        plain = getattr(value, "to_dict", lambda value=value: value)()
        defaults[field.name] = json.loads(json.dumps(plain))
    return defaults
