"""What the numbers in a dataset mean: the part of an environment's config that says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BLOCKS = ("actions", "commands", "observations", "rewards", "terminations", "extensions", "sim_steps_per_control")


def task_record(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what actions, observations, rewards and ends of episodes depend on, of an environment's whole config."""
    env = config["env"]
    blocks = {name: env[name] for name in _BLOCKS if name in env}
    return {"id": config["id"], "env": blocks | {"sim_cfg": {"physics_dt": env["sim_cfg"]["physics_dt"]}}}
