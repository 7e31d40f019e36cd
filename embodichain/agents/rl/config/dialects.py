"""Older layouts of the training config, brought to the present one where the file is read, and nowhere else."""

from __future__ import annotations

import copy
from typing import Any

from embodichain.utils import logger

__all__ = ["OLD_PATHS", "modernise"]

OLD_PATHS = {
    "runtime": "trainer",
    "env.cfg": "trainer.gym_config",
    "trainer.cuda": "trainer.device",
    "trainer.rollout_steps": "trainer.buffer_size",
}
"""Where values stood, and where they stand now."""

# Policies whose block had another layout; a user's policy may have keys of the same names.
_OLD_POLICIES = ("actor_critic", "actor_only", "vla")


def modernise(data: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return a training config's plain data in the present layout; each older key is named in a warning.

    An environment's config in ``env`` stays there, for ``read_inline_env``, which knows the tasks.

    Args:
        data: the file's content, which stays as it is.
        problems: lines about keys that are given in both layouts are added; the present one counts.
    """
    block = "trainer" if "trainer" in data else "runtime"  # as the file has it
    data = copy.deepcopy(data)
    _move(data, "runtime", "trainer", problems)
    trainer = _block(data, "trainer")
    if isinstance(cuda := trainer.get("cuda"), bool):
        trainer["cuda"] = f"cuda:{trainer.get('gpu_id') or 0}" if cuda else "cpu"
    elif trainer.pop("cuda", None) is not None:
        problems.append(f"{block}.cuda: Input should be a valid boolean, got {cuda!r}")
    for key in ("cuda", "rollout_steps"):
        _move(data, f"trainer.{key}", OLD_PATHS[f"trainer.{key}"], problems, f"{block}.{key}")
    if "env" in data:
        _announce_env(data, problems)
    policy = _block(data, "policy")
    if policy.get("name") in _OLD_POLICIES:
        for key in list(_block(policy, "cfg")):
            _move(data, f"policy.cfg.{key}", f"policy.{key}", problems)
        if policy.get("cfg") == {}:
            del policy["cfg"]
        for path in (f"{network}.{key}" for network in ("actor", "critic") for key in ("hidden_sizes", "activation")):
            _move(data, f"policy.{path}", f"policy.{path.replace('.', '.network_cfg.')}", problems)
    return data


def _block(data: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the object at a path, or an empty one where there is none."""
    node: Any = data
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def _announce_env(data: dict[str, Any], problems: list[str]) -> None:
    """Name where the environment's config belongs; it stays in ``env`` unless the new place has one."""
    if "gym_config" in _block(data, "trainer"):
        problems.append("env: is the older form of 'trainer.gym_config', which is given too")
        del data["env"]
        return
    data.setdefault("trainer", {})
    logger.log_warning("env: deprecated, write 'trainer.gym_config'")


def _move(data: dict[str, Any], old: str, new: str, problems: list[str], written: str | None = None) -> None:
    """Move what is at ``old``, which the file has at ``written``, to ``new``."""
    *block, key = old.split(".")
    *parents, name = new.split(".")
    source, node = _block(data, *block), data
    if key not in source:
        return
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            return  # a wrong type, which is reported where it stands
    value, written = source.pop(key), written or old
    if name in node:
        problems.append(f"{written}: is the older form of '{new}', which is given too")
        return
    logger.log_warning(f"{written}: deprecated, write '{new}'")
    node[name] = value
