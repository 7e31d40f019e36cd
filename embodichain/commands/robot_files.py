"""Robots from a model file alone: a task's config, tables of joints and links, and the scene's list of changes."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodichain.agents.rl.config.named import names_config
from embodichain.commands.arguments import format_columns
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.base import own_actuators
from embodichain.lab.sim.assets import bundled_assets
from embodichain.lab.sim.model import drives
from embodichain.lab.sim.model.model_files import MENAGERIE, free_joints, load_model
from embodichain.lab.sim.rendering.live_scene import lowest_point
from embodichain.utils import ConfigError

_SUFFIXES = (".xml", ".mjcf", ".urdf", ".xacro")
SLIDE = 2  # MuJoCo's mjtJoint
_NO_GRAVITY = 128  # MuJoCo's mjtDisableBit
_DEPTH = 0.01  # m below the ground that a file without one may begin
_FULL_EFFORT = 0.6  # rad from a hinge's target where its effort limit is reached
_FREQUENCIES = 25.0, 60.0  # rad/s of drives
_MARGIN = 0.99  # of the damping that a substep can integrate
# Of the joint positions that are tried for goals: the share of a joint's range around its initial position, and at most
# rad or m; how often each environment tries.
_NEAR, _FARTHEST, _ROUNDS = 0.3, 1.0, 16
_CLEARANCE = 0.05  # m above the ground
_TOLERANCE = 0.02  # m from a goal
_SHARE = 0.95  # of goals within reach
_MIDDLES, _GOALS = 64, 200  # of boxes that are tried, and in each


def names_robot(target: str) -> bool:
    """Return whether a user's words name a robot's model, and not a config."""
    is_file = target.startswith(MENAGERIE) or Path(target).suffix.lower() in _SUFFIXES
    return is_file or (target in bundled_assets() and not names_config(target))


def robot_task(file: str, joint_action: Mapping[str, Any] | None = None, physics_dt: float = 0.005) -> dict[str, Any]:
    """Return the content of an environment config with a robot alone, without ``id``, rewards and events.

    The base is free where the file's moves freely. Drives of joints and the file's other actuators are acted on.
    Gravity is the file's. A robot whose file has neither ground nor keyframe stands on the scene's ground.

    Args:
        file: name as for ``robot.fpath``.
        joint_action: the action term of driven joints; None: changes of position, or for a free base positions around
            the initial ones.
        physics_dt: duration of a substep, s.
    """
    model = load_model(file, "robot")
    is_free = len(free_joints(model.spec, model.roots)) == 1
    actions: dict[str, Any] = {}
    driven = [name for name in model.joints if name not in model.undriven]
    if driven:
        default = {"func": "JointPositionTerm"} if is_free else {"func": "DeltaQposTerm", "params": {"scale": 0.1}}
        actions["joints"] = joint_action or default
    if model.controls:
        actions["controls"] = {"func": "ActuatorTerm"}
    if not actions:
        raise ConfigError(f"robot: '{file}' has neither a hinge or slide to drive nor an actuator")
    observations: dict[str, Any] = {}
    if model.joints:
        observations["joints"] = {"func": "normalize_robot_joint_data", "mode": "modify", "name": "robot/qpos"}
    if is_free:
        base = ("base_lin_vel", "base_ang_vel", "projected_gravity")
        observations |= {name: {"func": name, "mode": "add", "name": f"robot/{name}"} for name in base}
    plain = model.spec.compile()
    robot = {"uid": "robot", "fpath": file, "fix_base": not is_free, "drive_pros": _gains(plain, driven, physics_dt)}
    if model.floor is None and not model.home and (depth := lowest_point(plain)) < -_DEPTH:
        x, y, z = model.start[:3] if is_free else (0.0, 0.0, 0.0)
        robot["init_pos"] = [float(x), float(y), round(float(z) - depth, 4)]
    option = model.spec.option
    gravity = [0.0, 0.0, 0.0] if option.disableflags & _NO_GRAVITY else option.gravity.tolist()
    env = {"sim_cfg": {"physics_dt": physics_dt, "gravity": gravity}, "sim_steps_per_control": 4}
    return {"env": env | {"observations": observations, "actions": actions}, "robot": robot}


def choose_goals(env: EmbodiedEnv) -> tuple[str, Tensor, Tensor]:
    """Return a link to move, and the lowest and the highest corner of a box of goals for it, [3] m.

    The link is the root of a free base, which stays at its height, else the moving link with most links before it, of
    several the farthest.

    Args:
        env: many environments, each of which tries some joint positions. It has been reset.
    """
    robot, model = env.robot, env.sim.model
    links = [model.body(f"{robot.uid}/{name}") for name in robot.link_names]
    places = torch.stack([robot.get_link_pose(name)[0, :3] for name in robot.link_names])
    if robot.base.is_free:
        root = next(i for i, link in enumerate(links) if link.id == robot.base.root)
        half = torch.tensor([0.5, 0.5, 0.0])
        return robot.link_names[root], places[root] - half, places[root] + half
    distance = torch.linalg.vector_norm(places - places[0], dim=1)
    carried = [i for i, link in enumerate(links) if model.body_weldid[link.parentid[0]]] or [len(links) - 1]
    depth = {0: 0}
    for body in range(1, model.nbody):  # parents come first
        depth[body] = depth[int(model.body_parentid[body])] + 1
    last = robot.link_names[max(carried, key=lambda i: (depth[links[i].id], float(distance[i])))]
    return last, *_reachable_box(env, last)


def _reachable_box(env: EmbodiedEnv, link: str) -> tuple[Tensor, Tensor]:
    """Return the corners of a box that a link reaches with the joints near their initial positions, [3] m.

    The box is around one of the link's positions at random joint positions, and as large as can be while nearly all of
    its points are as near to one of these positions as they are to each other.
    """
    robot, generator = env.robot, torch.Generator().manual_seed(0)
    start, (low, high) = robot.get_qpos()[0], robot.body_data.qpos_limits[0].unbind(1)
    width, moving = torch.zeros_like(start), robot.driven_ids or robot.get_joint_ids()  # tendons may move all
    width[moving] = (_NEAR * (high - low)).clamp(max=_FARTHEST)[moving]
    tried = []
    for _ in range(_ROUNDS):
        noise = 2 * torch.rand(env.num_envs, robot.dof, generator=generator) - 1
        robot.set_qpos((start + width * noise).clamp(low, high), target=False)
        tried.append(robot.get_link_pose(link)[:, :3])
    places = torch.cat(tried)
    # A link that is low everywhere keeps half of its positions.
    places = places[places[:, 2] >= places[:, 2].median().clamp(max=_CLEARANCE)]
    known, others = places.chunk(2)
    tolerance = max(_TOLERANCE, float(torch.cdist(others, known).amin(1).quantile(_SHARE)))
    middles, sides = known[:_MIDDLES, None], 2 * torch.rand(_GOALS, 3, generator=generator) - 1
    for scale in torch.linspace(1.5, 0.0, 31):
        half = scale * places.std(0)
        goals = (middles + half * sides).flatten(0, 1)
        is_near = torch.cdist(goals, known).amin(1) <= tolerance
        within, best = is_near.view(-1, _GOALS).float().mean(1).max(0)
        if within >= _SHARE:
            break
    return middles[best, 0] - half, middles[best, 0] + half


def format_robot(env: EmbodiedEnv) -> str:
    """Return tables of a robot's joints, its other actuators and its links, and the list of changes."""
    robot, model = env.robot, env.sim.model
    bodies = {name: model.body(f"{robot.uid}/{name}") for name in robot.link_names}
    # Without other things in the file: what no joint moves, such as stairs.
    trees = {model.body_rootid[model.joint(f"{robot.uid}/{name}").bodyid[0]] for name in robot.joint_names}
    mass = {name: float(body.mass[0]) for name, body in bodies.items() if not trees or body.rootid[0] in trees}
    base = "free" if robot.base.is_free else "fixed"
    joints = f"{robot.dof} joints, {len(robot.driven_ids)} driven"
    lines = [f"{len(mass)} links, {sum(mass.values()):.4g} kg, {base} base, {joints}"]
    rows = [_joint_row(env, joint) for joint in range(robot.dof)]
    lines += _table(["joint", "range", "drive", "effort limit", "initial position"], rows)
    others = own_actuators(env).items()
    controls = [[name, _range(model.actuator_ctrllimited[i], model.actuator_ctrlrange[i])] for name, i in others]
    lines += _table(["other actuator", "control range"], controls)
    lines += _table(["link", "mass"], [[n, f"{m:.4g} kg"] for n, m in mass.items()])
    return "\n".join([*lines, "", *format_changes(env.sim.changes)])


def format_changes(changes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the list of changes of each articulation's file, one per line."""
    lines: list[str] = []
    for uid, texts in changes.items():
        lines += [f"{uid}: not as in its file", *(f"  {text}" for text in texts)]
    return lines


def relative_file(file: str, folder: Path) -> str:
    """Return the name of a model for a config in ``folder``."""
    return os.path.relpath(Path(file).expanduser(), folder) if Path(file).expanduser().is_file() else file


def _gains(model: Any, joints: Sequence[str], physics_dt: float) -> dict[str, dict[str, float]]:
    """Return stiffness and damping by joint, at a damping ratio of 0.7, for loads that fit the effort limits."""
    stiffness, damping, smallest = {}, {}, drives.smallest_inertia(model)
    for name in joints:
        joint = model.joint(name)
        inertia = float(model.dof_M0[joint.dofadr[0]])
        limited = model.jnt_actfrclimited[joint.id] and joint.type[0] != SLIDE
        effort = min(abs(model.jnt_actfrcrange[joint.id])) if limited else 0.0
        low, high = _FREQUENCIES
        frequency = min(max(low, math.sqrt(effort / _FULL_EFFORT / inertia)), high)
        largest = 1.4 * frequency * inertia
        alike = np.isclose(model.dof_M0, inertia, rtol=1e-3)  # the poses are random: left and right are equal
        own = min(largest, _MARGIN * float(smallest[alike].min()) / physics_dt)
        stiffness[re.escape(name)] = float(f"{frequency**2 * inertia * own / largest:.3g}")
        damping[re.escape(name)] = float(f"{own:.3g}")
    return {"stiffness": stiffness, "damping": damping}


def _joint_row(env: EmbodiedEnv, index: int) -> list[str]:
    robot, model = env.robot, env.sim.model
    joint = model.joint(f"{robot.uid}/{robot.joint_names[index]}")
    length, force = ("m", "N") if joint.type[0] == SLIDE else ("rad", "Nm")
    drive, effort = "no", ""
    if index in robot.driven_ids:
        drive, effort = "yes", _range(model.jnt_actfrclimited[joint.id], model.jnt_actfrcrange[joint.id], force)
    start = f"{float(robot.body_data.default_qpos[0, index]):.4g} {length}"
    return [robot.joint_names[index], _range(model.jnt_limited[joint.id], joint.range, length), drive, effort, start]


def _range(is_limited: bool, ends: Sequence[float], unit: str = "") -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g} {unit}".rstrip() if is_limited else "no limit"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["", *format_columns([head, *rows]).splitlines()] if rows else []
