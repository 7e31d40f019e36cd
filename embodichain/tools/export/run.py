"""Exports the policy of a run, and checks that the file reproduces its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.tools.export.formats import FORMATS, RUNNER
from embodichain.tools.export.module import DeployedPolicy, actor_entries
from embodichain.tools.export.parity import ParityError, check_parity, record_steps
from embodichain.tools.open_run import OpenRun, open_run
from embodichain.utils import ConfigError
from embodichain.utils.files import write_atomically, write_json
from embodichain.utils.machine import describe_machine

_SEED_OFFSET = 4_000_003


def export_run(
    target: str, file_format: str, out: Path | None, observations: int, envs: int, allowed_imports: Sequence[str]
) -> dict[str, Any]:
    """Write the policy of a run into ``out``, or ``export`` in the run's folder, in one of ``FORMATS``.

    Returns:
        ``observations`` that it was compared on, the largest ``difference`` of actions, names of ``inputs`` and
        ``outputs``, and the ``files`` written.

    Raises:
        ConfigError: there is no such run, it cannot be built here, or the file cannot be written.
        ParityError: the file's actions differ on ``observations`` of ``envs`` environments; it is deleted.
    """
    saved = find_run(target)
    chosen = FORMATS[file_format]
    path = out or saved.folder / "export" / f"policy{chosen.suffix}"
    with open_run(saved, envs, "cpu", allowed_imports) as opened:
        space = opened.env.single_observation_space
        entries = actor_entries(opened.config.policy, space, opened.policy)
        terms = list(opened.env.action_manager.terms.values())
        module = DeployedPolicy(opened.policy, space, entries, opened.env.single_action_space, terms).eval()
        spec = describe_policy(saved, opened, module)
        steps = record_steps(opened.env, opened.policy, opened.device, entries, observations, _SEED_OFFSET)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen.write(module, spec, path)
            largest = check_parity(chosen.load(path), module, steps)
            files = [path, *_companions(path, spec, file_format)]
        except ParityError:
            path.unlink(missing_ok=True)
            raise
        except OSError as error:
            raise ConfigError(f"--out {path}: cannot be written: {error}") from error
    compared = {"observations": len(steps) * envs, "difference": largest}
    return {**compared, "inputs": list(module.inputs), "outputs": module.outputs, "files": files}


def _companions(path: Path, spec: dict[str, object], file_format: str) -> list[Path]:
    """Write the specification beside the policy, and the runner of ONNX files."""
    readable = path.with_suffix(".json")
    write_json(readable, spec, indent=2)
    if file_format != "onnx":
        return [readable]
    runner = path.parent / "policy_runner.py"
    write_atomically(runner, lambda file: file.write(RUNNER.read_bytes()))
    return [readable, runner]


def describe_policy(saved: SavedRun, opened: OpenRun, module: DeployedPolicy) -> dict[str, Any]:
    """Return the specification that goes into the exported file, as plain data.

    ``inputs`` and ``outputs`` are in the order of the file. An entry's ``terms`` are the config's observation terms
    that compute or modify it; the robot's software has to do the same.
    """
    env = opened.env
    terms = saved.content["config"]["gym_config"].get("env", {}).get("observations", {})
    inputs: dict[str, Any] = {}
    for name, (shape, dtype) in module.inputs.items():
        made_by = [term for term in terms.values() if term.get("name") == name]
        kind = str(dtype).removeprefix("torch.")
        inputs[name] = {"shape": list(shape), "dtype": kind, **({"terms": made_by} if made_by else {})}
    low, high = env.single_action_space.low, env.single_action_space.high
    return {
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


def _plain(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON: None for infinite ones."""
    return [float(value) if np.isfinite(value) else None for value in values]


def format_export(export: Mapping[str, Any]) -> str:
    """Return what ``export_run`` returned, for the screen."""
    lines = [
        f"parity     {export['observations']} observations, actions differ by {export['difference']:.2g} at most",
        f"inputs     {', '.join(export['inputs'])}",
        f"outputs    {', '.join(export['outputs'])}",
    ]
    return "\n".join([*lines, *(f"written    {file}" for file in export["files"])])
