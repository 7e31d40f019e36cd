"""What an exported policy's inputs and outputs are, in words for whoever builds a robot's side of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import SavedRun
from embodichain.tools.export.module import DeployedPolicy
from embodichain.tools.open_run import OpenRun
from embodichain.utils.machine import describe_machine


def describe_policy(saved: SavedRun, opened: OpenRun, module: DeployedPolicy) -> dict[str, Any]:
    """Return the specification that goes into the exported file, as plain data.

    ``inputs`` and ``outputs`` are in the order of the file; an entry's ``terms`` are the config's observation terms
    that make it or change it, which the robot's side has to do as well.
    """
    env = opened.env
    terms = saved.content["config"]["gym_config"].get("env", {}).get("observations", {})
    inputs: dict[str, Any] = {}
    for name, (shape, dtype) in module.inputs.items():
        made_by = [term for term in terms.values() if term.get("name") == name]
        kind = str(dtype).removeprefix("torch.")
        inputs[name] = {"shape": list(shape), "dtype": kind, **({"terms": made_by} if made_by else {})}
    low, high = env.single_action_space.low, env.single_action_space.high
    spec = {
        "task": opened.config.env_id,
        "policy": opened.config.policy.name,
        "experiment": saved.exp_name,
        "env_steps": saved.content["global_step"],
        "control_period_s": env.step_dt,
        "inputs": inputs,
        "outputs": module.outputs,
        "memory": module.memory,
        "chunk_length": opened.policy.chunk_length,
        "action": {"size": len(low), "low": _plain(low), "high": _plain(high)},
        "command": [
            {"name": name, "meaning": found.meaning, "part_of_action": term}
            for term, found in zip(env.action_manager.terms, module.maps, strict=False)
            for name in found.names
        ],
        "versions": describe_machine()["versions"],
    }
    return spec


def _plain(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON, which has none without end: None."""
    return [float(value) if np.isfinite(value) else None for value in values]
