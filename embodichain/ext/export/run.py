"""Exports the policy of a run, and checks that the file reproduces its actions."""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.build import OpenRun, open_run
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.config.arguments import add_allow_import, allowed_imports
from embodichain.agents.rl.run_config import scene_cfg, scene_env
from embodichain.agents.rl.vec_env import TaskEnv
from embodichain.commands.arguments import add_run, checked_path, output_file, whole_number
from embodichain.ext.export import formats, onnx_runner
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.actions import CONTROL, POSITION, JointPositionTerm
from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.lab.gym.envs.managers.measurements import Measurement, Recipe
from embodichain.lab.gym.envs.managers.sensor_models import observation_delay, observation_noise
from embodichain.lab.sim import servos
from embodichain.tools.policy import ParityError, Step, format_export, record_steps
from embodichain.utils import ConfigError, device, doors, files, replace, write_atomically, write_json
from embodichain.utils.choices import sizes_of

_SEED_OFFSET = 4_000_003
_RUNNER_NAME = "policy_runner.py"
_RUNNER = Path(onnx_runner.__file__)
_SCRIPT = Path(__file__).with_name("mujoco_robot.py")
# An export is recognised by a key of the specification, and the runner's first line.
_SPEC_MARK = b'"control_period_s": '
_RUNNER_MARK = b"Runs a policy that `embodichain export"
_SCRIPT_MARK = b"Runs an exported policy on its robot in plain MuJoCo"


def export_run(
    target: str,
    out: Path | None,
    observations: int,
    envs: int,
    allowed_imports: Sequence[str],
    overrides: Sequence[str] = (),
    before: Callable[[OpenRun, formats.DeployedPolicy, dict[str, Any], Sequence[Step]], None] | None = None,
) -> dict[str, Any]:
    """Write the policy of a run into ``out``, or ``export`` in the run's folder, as ONNX.

    Args:
        overrides: overrides of the run's config.
        before: function that first writes another format of the policy, with the specification and recorded steps.

    Returns:
        ``observations`` that it was compared on, the largest ``difference`` of actions, names of ``inputs``,
        ``measurements`` and ``outputs``, and the ``files`` written.
    """
    saved = find_run(target)
    path = out or saved.folder / "export" / "policy.onnx"
    if path.suffix != ".onnx":
        raise ConfigError(f"--out {path}: must end with .onnx for --format onnx")
    readable, scene = path.with_suffix(".json"), path.with_name("scene.mjb")
    runner, script = path.with_name(_RUNNER_NAME), path.with_name(_SCRIPT.name)
    marks = {path: _SPEC_MARK, readable: _SPEC_MARK, runner: _RUNNER_MARK, script: _SCRIPT_MARK}
    for file, mark in marks.items():
        files.check_replaceable(file, mark)
    with open_run(saved, envs, "cpu", allowed_imports, overrides, without_sensor_models) as opened:
        space = opened.env.single_observation_space
        entries = formats.actor_entries(opened.config.policy, space, opened.policy)
        terms = list(action_terms(opened.env).values())
        module = formats.DeployedPolicy(opened.policy, space, entries, opened.env.single_action_space, terms).eval()
        recipes = input_recipes(opened, entries)
        # Each measurement that recipes read, once.
        measurements = list({each.name: each for recipe in recipes.values() for each in recipe.measurements}.values())
        spec = describe_policy(saved, opened, module, recipes, measurements)
        steps = record_steps(
            opened.env, opened.policy, opened.device, entries, observations, _SEED_OFFSET, measurements
        )
        if (start := plain_start(opened, spec, steps[0])) is not None:
            spec["mujoco"] = start
            others = [file.name for file in path.parent.glob("*.onnx") if file != path]
            if others and scene.exists():
                raise ConfigError(f"--out {path}: {others[0]} is there, for which the folder's scene.mjb is")
        formats.check_inputs(spec, steps)
        if before is not None:
            before(opened, module, spec, steps)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            formats.write_onnx(module, spec, path)
            largest = formats.check_parity(onnx_runner.PolicyRunner(path).run, module, steps)
        except ParityError:
            path.unlink(missing_ok=True)
            raise
        if start is not None:
            opened.env.sim.save_model(scene)  # type: ignore[attr-defined]
            if servos.has_servos(opened.env.sim.model):  # type: ignore[attr-defined]
                shutil.copy(servos.__file__, path.with_name("servos.py"))
    write_json(readable, spec, indent=2)
    write_atomically(runner, lambda file: file.write(_RUNNER.read_bytes()))
    written = [path, readable, runner]
    if start is not None:
        write_atomically(script, lambda file: file.write(_SCRIPT.read_bytes()))
        written += [script, scene]
    compared = {"observations": len(steps) * envs, "difference": largest}
    names = {"inputs": list(module.inputs), "measurements": list(spec["measurements"]), "outputs": module.outputs}
    return {**compared, **names, "files": written}


def plain_start(opened: OpenRun, spec: dict[str, Any], first: Step) -> dict[str, Any] | None:
    """Return the recorded episode's initial state and commands, for the script that runs the policy in plain MuJoCo.

    None where the script cannot measure an input: it knows joints, the base and constant commands. Nor can it control
    drives towards velocities or efforts, of which ``scene.mjb`` has none, or add changes to present values.
    """
    env = scene_env(opened.env)
    own = {"joint_pos", "joint_vel", "base_lin_vel", "base_ang_vel", "projected_gravity"}
    others = {*spec["measurements"]} - own
    is_described = all("from" in entry for name, entry in spec["inputs"].items() if name != spec["memory"])
    is_described &= all(part["meaning"] in (POSITION, CONTROL) for part in spec["command"])
    if env is None or not is_described or not spec["command"] or not others <= {*env.command_manager.terms}:
        return None
    commands = {name: first.measured[name][0].tolist() for name in spec["measurements"] if name in others}
    env.reset(seed=_SEED_OFFSET)  # as recorded
    qpos, targets = (env.sim.backend.read(name)[0].tolist() for name in ("qpos", "ctrl"))
    return {"prefix": f"{env.robot.uid}/", "start": qpos, "targets": targets, "commands": commands}


def action_terms(env: TaskEnv) -> dict[str, ActionTerm]:
    """Return an environment's action terms by name; other libraries' have none."""
    scene = scene_env(env)
    return {} if scene is None else dict(scene.action_manager.terms)


def without_sensor_models(cfg: TaskCfg) -> TaskCfg:
    """Return an environment's config without simulated noise and delays, of which a robot has its own."""
    own = scene_cfg(cfg)
    if own is None:
        return cfg
    models = (observation_noise, observation_delay)
    observations = {name: term for name, term in own.observations.items() if term.func not in models}
    actions = {}
    for name, term in own.actions.items():
        is_delayed = term.func is JointPositionTerm and "delay" in term.params
        params = {key: value for key, value in term.params.items() if key != "delay"}
        actions[name] = replace(term, params=params) if is_delayed else term
    return replace(own, observations=observations, actions=actions)


def input_recipes(opened: OpenRun, entries: Sequence[str]) -> dict[str, Recipe]:
    """Return the recipes from raw measurements to inputs, by name; inputs without a description are left out.

    A policy of chunks observes at decisions alone, where histories and clocks need each control step: it has none.
    Nor has another library's environment, which does not describe its observation's parts.
    """
    env = scene_env(opened.env)
    if opened.policy.chunk_length > 1 or env is None:
        return {}
    found = {name: env.observation_manager.recipe(name) for name in entries}
    return {name: recipe for name, recipe in found.items() if recipe is not None}


def describe_policy(
    saved: SavedRun,
    opened: OpenRun,
    module: formats.DeployedPolicy,
    recipes: Mapping[str, Recipe],
    measurements: Sequence[Measurement],
) -> dict[str, Any]:
    """Return the specification for the exported file, as plain data.

    ``inputs`` and ``outputs`` are in the order of the file. An entry's ``terms`` are the config's observation terms
    that compute or modify it; where ``from`` does not say how it follows from the ``measurements``, the robot's
    software has to do the same.
    """
    env = opened.env
    config = saved.content["config"]["gym_config"].get("env", {})
    inputs: dict[str, Any] = {}
    for name, (shape, dtype) in module.inputs.items():
        made_by = [term for key, term in config.get("observations", {}).items() if (term.get("name") or key) == name]
        inputs[name] = {"shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
        inputs[name] |= {"terms": made_by} if made_by else {}
        inputs[name] |= {"from": recipes[name].steps} if name in recipes else {}
    low, high = env.single_action_space.low, env.single_action_space.high
    sizes = list(sizes_of(env.single_action_space))
    return {
        "task": opened.config.env_id,
        "policy": opened.config.policy.name,
        "experiment": saved.exp_name,
        "env_steps": saved.content["global_step"],
        "control_period_s": env.step_dt,
        "inputs": inputs,
        "measurements": {
            each.name: {"shape": list(each.read().shape[1:]), "dtype": "float32", "meaning": each.meaning}
            | ({"components": each.components} if each.components else {})
            for each in measurements
        },
        "outputs": module.outputs,
        "memory": module.memory,
        "chunk_length": opened.policy.chunk_length,
        "action": {"size": len(low), "low": _plain(low), "high": _plain(high)} | ({"choices": sizes} if sizes else {}),
        "action_terms": config.get("actions", {}),
        "command": [
            part
            for term, found in zip(action_terms(env), module.maps, strict=False)
            for part in _describe_commands(term, found)
        ],
        **(_describe_joints(env) if isinstance(env, EmbodiedEnv) else {"drives": []}),
        "versions": device.describe_machine()["versions"],
    }


def _describe_commands(term: str, found: CommandMap) -> list[dict[str, Any]]:
    """Return each command of an action term: clip(offset + factor * action, low, high)."""
    numbers = {name: _plain(getattr(found, name).cpu().numpy()) for name in ("offset", "factor", "low", "high")}
    return [
        {"name": name, "meaning": found.meaning, "part_of_action": term}
        | {key: values[i] for key, values in numbers.items()}
        for i, name in enumerate(found.names)
    ]


def _describe_joints(env: EmbodiedEnv) -> dict[str, list[dict[str, Any]]]:
    """Return the robot's ``joints``, in the order of its observation's entries, and of these the ``drives`` that act.

    Their gains are the configured ones: effort = stiffness (target - q) - damping qd. The scene of a file has actuators
    of its own, and none of these drives.
    """
    if not env.sim.robots:
        return {"drives": []}
    robot = env.robot
    stiffness, damping = (gains.cpu().numpy() for gains in robot.drives.configured_gains)
    lowest, highest = robot.effort_limits.cpu().numpy()
    numbers = {"stiffness": stiffness, "damping": damping, "min_effort": lowest, "max_effort": highest}
    numbers["initial_position"] = robot.body_data.default_qpos[0].cpu().numpy()
    limits = robot.body_data.qpos_limits[0].cpu().numpy().T
    numbers["lowest_position"], numbers["highest_position"] = limits
    plain = {key: _plain(values) for key, values in numbers.items()}
    joints = [
        {"name": name} | {key: values[i] for key, values in plain.items()} for i, name in enumerate(robot.joint_names)
    ]
    return {"joints": joints, "drives": [joints[i] for i in robot.get_joint_ids(env.active_part)]}


def _plain(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON: None for infinite ones."""
    return [float(value) if np.isfinite(value) else None for value in values]


def export_onnx(
    target: str, out: str | None, observations: int, envs: int, allowed_imports: Sequence[str]
) -> list[str]:
    """Export as ONNX; return the lines for the screen."""
    path = checked_path(out, output_file)
    return format_export(export_run(target, path, observations, envs, allowed_imports))


DOOR = "embodichain.exports"
"""Format -> function ``(target, out, observations, envs, allowed_imports) -> lines for the screen``."""

EXAMPLES = (
    "latest --format onnx",
    "outputs/push_cube_ppo_20260101_120000/best --out policy.onnx",
    "latest/best --format lerobot",
    "configs/agents/rl/push_colored_cube/train_config.json --format lerobot-env",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--format",
        choices=list(doors.entries(DOOR)),
        default="onnx",
        help="default: %(default)s; lerobot-env: the task of a run or of a training config, for LeRobot's EnvHub",
    )
    parser.add_argument(
        "--out", metavar="PATH", help="file, of LeRobot's formats a folder (default: export/... in the run's folder)"
    )
    parser.add_argument(
        "--observations",
        type=whole_number(),
        default=1000,
        metavar="K",
        help="number to compare file and policy on (default: %(default)s)",
    )
    parser.add_argument(
        "--envs", type=whole_number(), default=8, metavar="N", help="environments (default: %(default)s)"
    )
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Export; return 0."""
    export = doors.load(DOOR, args.format)
    print("\n".join(export(args.target, args.out, args.observations, args.envs, allowed_imports(args))))
    return 0
