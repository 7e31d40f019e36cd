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

from embodichain.agents.rl.build import OpenRun
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.run_config import scene_env
from embodichain.commands.arguments import checked_path, output_folder
from embodichain.ext.export import formats, onnx_runner
from embodichain.ext.export.run import export_run
from embodichain.lab.sim import servos
from embodichain.tools.policy import ParityError, Step, format_export
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
_SLOW = 0.1  # m/s, rad/s: commands below are none
_PLAY = 0.0175  # rad, of the gears to each side in the second rehearsal: 1 degree
_CARD = Path(__file__).with_name("microduck_card.md.tmpl")


class _FlatPolicy(formats.DeployedPolicy):
    """The actions ``actions`` [1, 14] of an observation ``obs`` [1, 61]."""

    def __init__(self, module: formats.DeployedPolicy) -> None:
        nn.Module.__init__(self)
        self.module, self.policy = module, module.policy
        self._widths = [int(np.prod(shape)) for shape, _ in module.inputs.values()]
        self.inputs, self.outputs = {"obs": ((sum(self._widths),), torch.float32)}, ["actions"]

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the actions."""
        return (self.module(inputs[0].split(self._widths, dim=1))[0],)


def export(target: str, out: str | None, observations: int, envs: int, allowed_imports: Sequence[str]) -> list[str]:
    """Write the folder of a policy, by default ``export/microduck`` in the run's; return the lines for the screen.

    Next to it are the folders of two rehearsals, one without play, one with it, whatever the run was trained with: the
    robot wants a single file of ONNX.
    """
    saved = find_run(target)
    folder = checked_path(out, output_folder) or saved.folder / "export" / "microduck"
    path = folder / "policy.onnx"

    def write(opened: OpenRun, module: formats.DeployedPolicy, spec: dict[str, Any], steps: Sequence[Step]) -> None:
        env = scene_env(opened.env)
        check_contract(spec, [] if env is None else [*env.command_manager.terms])
        folder.mkdir(parents=True, exist_ok=True)
        more = {"microduck": json.dumps(metadata(spec, saved))}
        formats.write_onnx(_FlatPolicy(module).eval(), spec, path, more, rows=1)
        check_file(path, module, steps)
        manifest = describe(saved, opened, spec)
        write_json(folder / "manifest.json", manifest, indent=2)
        (folder / "README.md").write_text(card(manifest), encoding="utf-8")

    plain, play = (folder.with_name(f"{folder.name}_rehearsal{end}") for end in ("", "_play"))
    settings, backlash = (observations, envs, allowed_imports), "robot.drive_pros.backlash="
    result = export_run(target, plain / "exported.onnx", *settings, before=write, overrides=[f"{backlash}0"])
    export_run(target, play / "exported.onnx", *settings, overrides=[f"{backlash}{_PLAY}"])
    return format_export(result | {"files": [*sorted(folder.iterdir()), plain, play]})


def check_contract(spec: Mapping[str, Any], commands: Sequence[str]) -> None:
    """Raise a ConfigError that names the first point in which a policy's specification is not MicroDuck's."""
    rounded = json.loads(json.dumps(spec), parse_float=lambda text: round(float(text), 3))
    inputs, drives, targets = list(rounded["inputs"].values()), rounded["drives"], rounded["command"]
    recipes, home = [each.get("from") for each in inputs], [round(angle, 3) for angle in HOME]
    first: list[Any] = [[{"measurement": name}] for name in [*LAYOUT][:4]]
    first[2].append({"subtract": home})
    first.append([{"last_action": True}])
    others = [[{"measurement": name}] for name in commands]
    for what, got, wanted in (
        ("sizes of the inputs", [int(np.prod(each["shape"])) for each in inputs], list(LAYOUT.values())),
        ("first inputs", recipes[: len(first)], first),
        ("other inputs, commands:", all(recipe in others for recipe in recipes[len(first) :]), True),
        ("joints", [drive["name"] for drive in drives], SERVOS),
        ("targets", [part["name"] for part in targets], SERVOS),
        ("control period, s", round(spec["control_period_s"], 6), 0.02),
        ("home pose, rad", [drive["initial_position"] for drive in drives], home),
        ("targets of action 0, rad", [part["offset"] for part in targets], home),
        ("scales of the action", len({part["factor"] for part in spec["command"]}), 1),
        ("memory", spec["memory"], None),
    ):
        if got != wanted:
            raise ConfigError(f"--format microduck: {what} must be {wanted}, got {got}")


def metadata(spec: Mapping[str, Any], saved: SavedRun) -> dict[str, Any]:
    """Return what a policy was trained with, for the key ``microduck`` of its file; ConfigError for other servos."""
    drives = saved.content["config"]["gym_config"].get("robot", {}).get("drive_pros", {})
    servo = drives.get("servo")
    if servo not in (None, "xl330"):
        raise ConfigError(f"--format microduck: the servos must be xl330, got {servo}")
    gain = drives.get("servo_gain") or (servos.SERVOS[servo].gain if servo else None)
    return {
        "schema_version": 1,
        **{"obs_len": sum(LAYOUT.values()), "action_len": len(SERVOS), "control_hz": 50},
        "joint_names": SERVOS,
        "default_joint_pos": [drive["initial_position"] for drive in spec["drives"]],
        "action_scale": spec["command"][0]["factor"],
        "observation": [[name, size] for name, size in LAYOUT.items()],
    } | ({"kp_fw": round(gain)} if gain else {})


def check_file(path: Path, module: formats.DeployedPolicy, steps: Sequence[Step]) -> None:
    """Raise a ParityError where a file's actions are not the policy's, or always the same."""
    formats.check_parity(onnx_runner.PolicyRunner(path).run, module, steps)
    if not np.concatenate([step.action for step in steps]).std(axis=0).any():
        raise ParityError(f"{path}: the actions are always the same")


def describe(saved: SavedRun, opened: OpenRun, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest: a gait is perpetual and for the slot ``walk``; without a twist a policy runs an episode."""
    env = scene_env(opened.env)
    assert env is not None
    low, high = env.command_manager.get_term("base_velocity").limits()
    walks = max(map(abs, (*low, *high))) > _SLOW
    unused = "unused (zeros)"
    time = (env.cfg.max_episode_steps or 0) * env.step_dt
    kind = {"kind": "perpetual", "slot": "walk"} if walks else {"kind": "episodic", "duration_s": time, "chain": False}
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
            **{"encoding": "constant", "idle": [0.0, 0.0, 0.0]},
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
    slot, measured = manifest.get("slot"), manifest["eval"] | manifest["eval"].get("metrics", {})
    rows = {key: manifest["command"][key] for key in ("twist", "head", "body")}
    rows |= {key: f"{value:.4g}" for key, value in measured.items() if isinstance(value, int | float)}
    return _CARD.read_text(encoding="utf-8").format(
        **manifest,
        **manifest["training"],
        rows="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
        install=f"robotctl policy {'load' if slot else 'add'} {slot or manifest['name']} <repository>",
    )
