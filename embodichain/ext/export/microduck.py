"""Policies for MicroDuck's own software: ``policy.onnx``, ``manifest.json`` of schema 2 and a card, checked.

The published contract is checked (pollen-robotics/microduck_rl, docs/export-contract.md; microduck,
docs/policy-manifest.md): 61 numbers to 14, fifty times a second, the servos' order and their home pose.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embodichain.agents.rl.build import OpenRun, open_run
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.run_config import scene_env
from embodichain.commands.arguments import checked_path, output_folder
from embodichain.ext.export import formats
from embodichain.ext.export.run import action_terms, describe_policy, export_run, input_recipes, without_sensor_models
from embodichain.lab.sim import servos
from embodichain.tools.policy import TOLERANCE, ParityError, Step, record_steps
from embodichain.utils import ConfigError, write_json

LAYOUT = {
    **{"base_ang_vel": 3, "projected_gravity": 3, "joint_pos": 14, "joint_vel": 14, "actions": 14},
    **{"command": 3, "head_command": 4, "body_command": 6},
}
"""The observation: names and sizes in the published order."""
LEG = ("hip_yaw", "hip_roll", "hip_pitch", "knee", "ankle")
HEAD = ("neck_pitch", "head_pitch", "head_yaw", "head_roll")
SERVOS = [*(f"left_{name}" for name in LEG), *HEAD, *(f"right_{name}" for name in LEG)]
HOME = (0.0, -0.0873, -0.4579, -0.0049, 0.453, 0.3491, 0.3491, 0.0, 0.0, 0.0, 0.0873, 0.4579, 0.0049, -0.453)
_FIRST: list[dict[str, Any]] = [
    *({"measurement": name} for name in ("base_ang_vel", "projected_gravity", "joint_pos", "joint_vel")),
    {"last_action": True},
]
_SLOW = 0.1  # m/s, rad/s: commands below are none
_CARD = """---
library_name: onnx
pipeline_tag: reinforcement-learning
tags: [microduck, microduck-policy, robotics, reinforcement-learning, onnx]
---

# {name}

{description} Trained by EmbodiChain RL on MuJoCo, task `{task}`, {env_steps:,} steps. It was never run on a robot.

| command | meaning |
| --- | --- |
| twist | {twist} |
| head | {head} |
| body | {body} |

| measured in simulation | |
| --- | --- |
{rows}

On the robot: `{install}`.
"""


class _FlatPolicy(nn.Module):
    """Actions [1, 14] of an observation [1, 61]."""

    def __init__(self, module: formats.DeployedPolicy) -> None:
        super().__init__()
        self.module = module
        self._sizes = [int(np.prod(shape)) for shape, _ in module.inputs.values()]

    def forward(self, obs: Tensor) -> Tensor:
        """Return the actions."""
        action: Tensor = self.module(obs.split(self._sizes, dim=1))[0]
        return action


def export(target: str, out: str | None, observations: int, envs: int, allowed_imports: Sequence[str]) -> list[str]:
    """Write the folder of a policy, by default ``export/microduck`` in the run's; return the lines for the screen."""
    saved = find_run(target)
    folder = checked_path(out, output_folder) or saved.folder / "export" / "microduck"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "policy.onnx"
    with open_run(saved, envs, "cpu", allowed_imports, change=without_sensor_models) as opened:
        space = opened.env.single_observation_space
        entries = formats.actor_entries(opened.config.policy, space, opened.policy)
        terms = list(action_terms(opened.env).values())
        module = formats.DeployedPolicy(opened.policy, space, entries, opened.env.single_action_space, terms).eval()
        spec = describe_policy(saved, opened, module, input_recipes(opened, entries))
        env = scene_env(opened.env)
        check_contract(spec, [] if env is None else [*env.command_manager.terms])
        steps = record_steps(opened.env, opened.policy, opened.device, entries, observations, 0)
        _write(module, metadata(spec, saved), path)
        difference = check_file(path, steps)
        manifest = describe(saved, opened, spec)
    write_json(folder / "manifest.json", manifest, indent=2)
    (folder / "README.md").write_text(card(manifest), encoding="utf-8")
    rehearsal = folder.with_name(f"{folder.name}_rehearsal")  # not in the folder: the robot wants a single file of ONNX
    export_run(target, rehearsal / "exported.onnx", observations, envs, allowed_imports)
    lines = [f"parity     {len(steps) * envs} observations, actions differ by {difference:.2g} at most"]
    written = (path, folder / "manifest.json", folder / "README.md", rehearsal)
    return [*lines, *(f"written    {each}" for each in written)]


def check_contract(spec: Mapping[str, Any], commands: Sequence[str]) -> None:
    """Raise a ConfigError that names the first point in which a policy's specification is not MicroDuck's.

    Args:
        commands: names of the task's commands.
    """
    inputs, home = list(spec["inputs"].values()), _rounded(HOME)
    recipes = [[{key: _rounded(x) for key, x in step.items()} for step in each.get("from", ())] for each in inputs]
    zeros = [[], [], [{"subtract": home}], [], []]
    first = [[step, *rest] for step, rest in zip(_FIRST, zeros, strict=True)]
    others = [[{"measurement": name}] for name in commands]
    for what, got, wanted in (
        ("sizes of the inputs", [int(np.prod(each["shape"])) for each in inputs], list(LAYOUT.values())),
        ("first inputs", recipes[: len(first)], first),
        ("other inputs, commands:", all(recipe in others for recipe in recipes[len(first) :]), True),
        ("joints", [drive["name"] for drive in spec["drives"]], SERVOS),
        ("targets", [part["name"] for part in spec["command"]], SERVOS),
        ("control period, s", round(spec["control_period_s"], 6), 0.02),
        ("home pose, rad", _rounded([drive["initial_position"] for drive in spec["drives"]]), home),
        ("targets of action 0, rad", _rounded([part["offset"] for part in spec["command"]]), home),
        ("scales of the action", len({part["factor"] for part in spec["command"]}), 1),
        ("memory", spec["memory"], None),
    ):
        if got != wanted:
            raise ConfigError(f"--format microduck: {what} must be {wanted}, got {got}")


def _rounded(value: Any) -> Any:
    return np.round(value, 3).tolist() if isinstance(value, list | tuple) else value


def metadata(spec: Mapping[str, Any], saved: SavedRun) -> dict[str, Any]:
    """Return what a policy was trained with, for the key ``microduck`` of its file."""
    drives = saved.content["config"]["gym_config"].get("robot", {}).get("drive_pros", {})
    servo = drives.get("servo")
    gain = drives.get("servo_gain") or (servos.SERVOS[servo].gain if servo else None)
    return {
        "schema_version": 1,
        **{"obs_len": sum(LAYOUT.values()), "action_len": len(SERVOS), "control_hz": 50},
        "joint_names": SERVOS,
        "default_joint_pos": [drive["initial_position"] for drive in spec["drives"]],
        "action_scale": spec["command"][0]["factor"],
        "observation": [[name, size] for name, size in LAYOUT.items()],
    } | ({"kp_fw": gain} if gain else {})


def _write(module: formats.DeployedPolicy, facts: Mapping[str, Any], path: Path) -> None:
    with formats.tracing(module), torch.no_grad():
        program = torch.onnx.export(
            _FlatPolicy(module).eval(),
            (torch.zeros(1, sum(LAYOUT.values())),),
            dynamo=True,
            opset_version=18,
            input_names=["obs"],
            output_names=["actions"],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props["microduck"] = json.dumps(facts)
    program.save(path)


def check_file(path: Path, steps: Sequence[Step]) -> float:
    """Return the largest difference of a file's actions and the policy's; ParityError where the robot would refuse it.

    It must have one input ``obs`` [1, 61] and one output [1, 14]; its actions must be finite, and not always the same.
    """
    import onnxruntime  # noqa: PLC0415 (an extra)

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    shapes = {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}
    if shapes != {"obs": [1, 61], "actions": [1, 14]}:
        raise ParityError(f"{path}: inputs and outputs must be obs [1, 61] and actions [1, 14], got {shapes}")
    rows = np.concatenate([np.concatenate([*step.inputs.values()], axis=1) for step in steps]).astype(np.float32)
    actions = np.concatenate([session.run(None, {"obs": row[None]})[0] for row in rows])
    difference = float(np.abs(actions - np.concatenate([step.action for step in steps])).max())
    if not (np.isfinite(actions).all() and difference <= TOLERANCE):
        raise ParityError(f"{path}: actions differ from the policy's by {difference:.3g}, allowed are {TOLERANCE:g}")
    if not actions.std(axis=0).any():
        raise ParityError(f"{path}: the actions are always the same")
    return difference


def describe(saved: SavedRun, opened: OpenRun, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest: a gait is perpetual and for the slot ``walk``; without a twist a policy runs an episode."""
    env = scene_env(opened.env)
    assert env is not None
    low, high = env.command_manager.get_term("base_velocity").limits()
    walks = max(map(abs, (*low, *high))) > _SLOW
    length = (env.cfg.max_episode_steps or 0) * env.step_dt
    unused = "unused (zeros)"
    kind = (
        {"kind": "perpetual", "slot": "walk"} if walks else {"kind": "episodic", "duration_s": length, "chain": False}
    )
    evaluation = saved.content["evaluation"] or {}
    return {
        "schema_version": 2,
        **{"model_api": 1, "obs_len": 61, "action_len": 14},
        "robot": {"model": "microduck", "hw_rev": 1, "servos": "xl330", "control_hz": 50},
        "name": re.sub(r"[^a-z0-9]+", "-", saved.exp_name.lower()).strip("-"),
        **kind,
        "entry_pose": "standing" if walks else "any",
        "description": "Walks as commanded." if walks else "Stands up.",
        "action_scale": spec["command"][0]["factor"],
        "command": {
            "encoding": "constant",
            "idle": [0.0, 0.0, 0.0],
            "twist": "forwards and to the left, m/s, yaw rate, rad/s" if walks else unused,
            "head": "neck pitch, head pitch, yaw, roll, rad, from the home pose" if walks else unused,
            "body": unused,
        },
        "training": {
            **{"task_id": spec["task"], "run": saved.folder.name, "checkpoint": spec["env_steps"]},
            **{"repo": "EmbodiChain RL on MuJoCo", "exported": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
        },
        "eval": {key: evaluation[key] for key in ("episodes", "success_rate", "metrics") if key in evaluation},
    }


def card(manifest: Mapping[str, Any]) -> str:
    """Return the card of a manifest."""
    name, slot, evaluation = manifest["name"], manifest.get("slot"), manifest["eval"]
    rows = {**evaluation, **evaluation.get("metrics", {})}
    shown = [f"| {key} | {value:.4g} |" for key, value in rows.items() if isinstance(value, int | float)]
    return _CARD.format(
        **{key: manifest["command"][key] for key in ("twist", "head", "body")},
        name=name,
        description=manifest["description"],
        task=manifest["training"]["task_id"],
        env_steps=manifest["training"]["checkpoint"],
        rows="\n".join(shown) or "| nothing yet: train with evaluations | |",
        install=f"robotctl policy load {slot} <repository>" if slot else f"robotctl policy add {name} <repository>",
    )
