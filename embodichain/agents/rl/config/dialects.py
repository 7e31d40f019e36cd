"""Converts older layouts of the training config to the present one, before the parse."""

from __future__ import annotations

import copy
import functools
from typing import Any

from embodichain.utils import logger

OLD_PATHS = {
    "runtime": "trainer",
    "env.cfg": "trainer.gym_config",
    "trainer.cuda": "trainer.device",
    "trainer.rollout_steps": "trainer.buffer_size",
}
"""Older path of a value -> present path."""

# Policies whose block had another layout; a user's policy may have keys of the same names.
_OLD_POLICIES = ("actor_critic", "actor_only", "vla")


def modernise(data: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return a training config's plain data in the present layout; each older key is named in a warning.

    An environment's config in ``env`` stays there, for ``read_inline_env``, which knows the tasks.

    Args:
        data: the file's content; not changed.
        problems: lines about keys in both layouts are added; the present one counts.
    """
    block = "trainer" if "trainer" in data else "runtime"  # as the file has it
    data = copy.deepcopy(data)
    if "runtime" in data:
        _move(data, "runtime", "trainer", problems)
    trainer = data["trainer"] if isinstance(data.get("trainer"), dict) else {}
    if isinstance(cuda := trainer.get("cuda"), bool):
        trainer["cuda"] = f"cuda:{trainer.get('gpu_id') or 0}" if cuda else "cpu"
    elif trainer.pop("cuda", None) is not None:
        problems.append(f"{block}.cuda: Input should be a valid boolean, got {cuda!r}")
    for key in ("cuda", "rollout_steps"):
        if key in trainer:
            _move(data, f"trainer.{key}", OLD_PATHS[f"trainer.{key}"], problems, f"{block}.{key}")
    if "env" in data and "gym_config" in trainer:
        problems.append("env: is the older form of 'trainer.gym_config', which is given too")
        del data["env"]
    elif "env" in data:
        data.setdefault("trainer", {})
        logger.log_warning("env: deprecated, write 'trainer.gym_config'")
    if isinstance(policy := data.get("policy"), dict) and policy.get("name") in _OLD_POLICIES:
        for key in list(cfg) if isinstance(cfg := policy.get("cfg"), dict) else ():
            _move(data, f"policy.cfg.{key}", f"policy.{key}", problems)
        if policy.get("cfg") == {}:
            del policy["cfg"]
        for network in ("actor", "critic"):
            for key in ("hidden_sizes", "activation"):
                if isinstance(policy.get(network), dict) and key in policy[network]:
                    _move(data, f"policy.{network}.{key}", f"policy.{network}.network_cfg.{key}", problems)
    return data


def _move(data: dict[str, Any], old: str, new: str, problems: list[str], written: str | None = None) -> None:
    """Move the value at ``old``, which the file has at ``written``, to ``new``."""
    *blocks, key = old.split(".")
    *parents, name = new.split(".")
    source = functools.reduce(dict.__getitem__, blocks, data)
    node = data
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            return  # a wrong type, which the parse reports
    value, written = source.pop(key), written or old
    if name in node:
        problems.append(f"{written}: is the older form of '{new}', which is given too")
        return
    logger.log_warning(f"{written}: deprecated, write '{new}'")
    node[name] = value
