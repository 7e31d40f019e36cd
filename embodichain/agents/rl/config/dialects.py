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
    mover = _Mover(copy.deepcopy(data), problems)
    mover.move("runtime", "trainer")
    block = "trainer" if "trainer" in data else "runtime"  # as the file has it
    if isinstance(cuda := mover.get("trainer.cuda"), bool):
        gpu_id = mover.get("trainer.gpu_id") or 0
        mover.move("trainer.cuda", "trainer.device", f"cuda:{gpu_id}" if cuda else "cpu", f"{block}.cuda")
    elif cuda is not None:
        problems.append(f"{block}.cuda: Input should be a valid boolean, got {cuda!r}")
        del mover.data["trainer"]["cuda"]
    mover.move("trainer.rollout_steps", "trainer.buffer_size", written=f"{block}.rollout_steps")
    if "env" in data:
        mover.announce("env", "trainer.gym_config")
    if mover.get("policy.name") in _OLD_POLICIES:
        for key in list(mover.block("policy.cfg")):
            mover.move(f"policy.cfg.{key}", f"policy.{key}")
        if mover.get("policy.cfg") == {}:
            del mover.data["policy"]["cfg"]
        for network in ("actor", "critic"):
            for key in ("hidden_sizes", "activation"):
                mover.move(f"policy.{network}.{key}", f"policy.{network}.network_cfg.{key}")
    return mover.data


class _Mover:
    """Moves values from one dotted path to another."""

    def __init__(self, data: dict[str, Any], problems: list[str]) -> None:
        self.data = data
        self._problems = problems

    def get(self, path: str) -> Any:
        """Return the value at a path, or None."""
        block, _, key = path.rpartition(".")
        return self.block(block).get(key)

    def block(self, path: str) -> dict[str, Any]:
        """Return the object at a path, or an empty one where there is none."""
        node: Any = self.data
        for key in path.split(".") if path else ():
            node = node.get(key) if isinstance(node, dict) else None
        return node if isinstance(node, dict) else {}

    def announce(self, old: str, new: str) -> None:
        """Say where a block belongs now, which stays where it is unless the new place has one."""
        block, _, name = new.rpartition(".")
        if name in self.block(block):
            self._problems.append(f"{old}: is the older form of '{new}', which is given too")
            del self.data[old]
        else:
            self.data.setdefault(block, {})
            logger.log_warning(f"{old}: deprecated, write '{new}'")

    def move(self, old: str, new: str, value: Any = None, written: str | None = None) -> None:
        """Put what stands at ``old``, which the file has at ``written``, or ``value`` in its place, to ``new``."""
        written = written or old
        block, _, key = old.rpartition(".")
        if key not in self.block(block):
            return
        *parents, name = new.split(".")
        node = self.data
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                return  # a wrong type, which is reported where it stands
        found = self.block(block).pop(key)
        if name in node:
            self._problems.append(f"{written}: is the older form of '{new}', which is given too")
            return
        logger.log_warning(f"{written}: deprecated, write '{new}'")
        node[name] = found if value is None else value
