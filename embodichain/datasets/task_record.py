"""The meaning of the numbers in a dataset: a part of the environment's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ROBOT = ("fpath", "robot_type", "ur_type", "urdf_cfg")
_BLOCKS = ("actions", "commands", "observations", "rewards", "terminations", "extensions", "sim_steps_per_control")


def task_record(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a whole config that determines actions, observations, rewards and ends of episodes."""
    env, robot = config["env"], config["robot"]
    blocks = {name: env[name] for name in _BLOCKS if name in env}
    return {
        "id": config["id"],
        "robot": {name: robot[name] for name in _ROBOT if name in robot},
        "env": blocks | {"sim_cfg": {"physics_dt": env["sim_cfg"]["physics_dt"]}},
    }
