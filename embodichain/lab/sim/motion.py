"""Motion clips of a robot with a free base: files, resampling and forward kinematics.

Shapes: N environments, T frames, J joints, B bodies. World frame; m, rad, s; quaternions are (w, x, y, z).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.math import matrix_from_quat, rotation_vector
from embodichain.lab.sim.objects import Articulation
from embodichain.utils import ConfigError
from embodichain.utils.device import constant
from embodichain.utils.files import write_atomically

_ROOT = 7  # columns of a CSV file before the joints': position and quaternion of the base


@dataclass(frozen=True)
class MotionClip:
    """The motion of a robot, in the layout of the files that mjlab's ``csv_to_npz.py`` writes.

    Arrays of joints are [T, J], of bodies [T, B, 3] or, quaternions, [T, B, 4]. Velocities are of the bodies' origins.
    Body 0 is the base.
    """

    fps: float
    joint_pos: np.ndarray
    joint_vel: np.ndarray
    body_pos_w: np.ndarray
    body_quat_w: np.ndarray
    body_lin_vel_w: np.ndarray
    body_ang_vel_w: np.ndarray

    @classmethod
    def of(cls, fps: float, joints: np.ndarray, bodies: np.ndarray) -> "MotionClip":
        """Return a clip of joint positions and velocities [T, 2 J], and of bodies as :func:`body_states` [T, B, 13]."""
        pos, vel = np.split(joints, 2, axis=1)
        return cls(fps, pos, vel, *np.split(bodies, (3, 7, 10), axis=2))

    def save(self, path: Path) -> None:
        """Write the clip as ``.npz``, in float32."""
        arrays = {name: getattr(self, name).astype(np.float32) for name in _ARRAYS}
        write_atomically(path, lambda file: np.savez_compressed(file, fps=np.array([self.fps]), **arrays))

    def resampled(self, fps: float) -> "MotionClip":
        """Return the clip at another rate from its first frame on, linear in between; quaternions are normalised."""
        last = len(self.joint_pos) - 1
        at = np.arange(int(last / self.fps * fps + 1e-6) + 1) * (self.fps / fps)
        first = np.minimum(at.astype(int), max(last - 1, 0))
        arrays = {}
        for name in _ARRAYS:
            one, other = getattr(self, name)[first], getattr(self, name)[np.minimum(first + 1, last)]
            if name == "body_quat_w":  # q and -q are the same rotation
                other = np.where((one * other).sum(axis=-1, keepdims=True) < 0, -other, other)
            arrays[name] = one + (at - first).reshape(-1, *[1] * (one.ndim - 1)) * (other - one)
        arrays["body_quat_w"] /= np.linalg.norm(arrays["body_quat_w"], axis=-1, keepdims=True)
        return MotionClip(fps=fps, **arrays)


_ARRAYS = tuple(field.name for field in fields(MotionClip) if field.name != "fps")


def load_clip(
    path: Path,
    robot: Articulation,
    model: mujoco.MjModel,
    csv_fps: float | None = None,
    joint_names: Sequence[str] | None = None,
) -> MotionClip:
    """Read a clip of a robot.

    Args:
        path: ``.npz`` in the layout of :class:`MotionClip`, with the robot's joints and links in their order; or
            ``.csv`` as Unitree publishes retargeted motion: position and quaternion (x, y, z, w) of the base, joints.
        joint_names: names of the file's joints, which have the robot's among them; bodies and velocities then follow
            from the base's and the joints' positions. None: the robot's, in their order.
    """
    if path.suffix == ".csv":
        if csv_fps is None:
            raise ConfigError(f"csv_fps: required for {path}, which does not say its frames per second")
        table = np.loadtxt(path, delimiter=",", ndmin=2)
        joints = _joints(table[:, _ROOT:], robot, joint_names, path)
        return clip_from_positions(robot, model, csv_fps, table[:, [0, 1, 2, 6, 3, 4, 5]], joints)
    with np.load(path) as file:
        if missing := {"fps", *_ARRAYS} - {*file}:
            raise ConfigError(f"{path}: has no {', '.join(sorted(missing))}")
        clip = MotionClip(float(file["fps"].reshape(-1)[0]), **{name: file[name].astype(float) for name in _ARRAYS})
    joints = _joints(clip.joint_pos, robot, joint_names, path)
    if joint_names is not None:
        root = np.concatenate((clip.body_pos_w[:, 0], clip.body_quat_w[:, 0]), axis=1)
        return clip_from_positions(robot, model, clip.fps, root, joints)
    if (found := clip.body_pos_w.shape[1]) != len(robot.link_names):
        raise ConfigError(f"{path}: has {found} bodies, and robot '{robot.uid}' {len(robot.link_names)}")
    return clip


def _joints(columns: np.ndarray, robot: Articulation, names: Sequence[str] | None, path: Path) -> np.ndarray:
    """Return the columns of the robot's joints, [T, J]."""
    names = robot.joint_names if names is None else list(names)
    missing = [name for name in robot.joint_names if name not in names]
    if len(names) != columns.shape[1] or missing:
        lacking = f", and lacks {', '.join(missing)}" if missing else ""
        raise ConfigError(f"joint_names: has {len(names)} of the {columns.shape[1]} joints in {path}{lacking}")
    return columns[:, [names.index(name) for name in robot.joint_names]]


def clip_from_positions(
    robot: Articulation, model: mujoco.MjModel, fps: float, root: np.ndarray, joints: np.ndarray
) -> MotionClip:
    """Return the clip of a base's poses [T, 7] and joints [T, J]; velocities are central differences."""
    rotation = matrix_from_quat(torch.nn.functional.normalize(torch.tensor(root[:, 3:]), dim=1))
    turns = rotation_vector(rotation[2:] @ rotation[:-2].mT) * (fps / 2)
    angular = torch.cat((turns[:1], turns, turns[-1:]))
    # The engine has a free joint's linear velocity in the world's frame, and its angular one in the body's.
    linear, joint_vel = (np.gradient(values, 1.0 / fps, axis=0) for values in (root[:, :3], joints))
    free_vel = np.concatenate((linear, (rotation.mT @ angular[:, :, None])[..., 0].numpy()), axis=1)
    data, bodies = mujoco.MjData(model), link_bodies(robot, model)
    first = model.joint(int(model.body_jntadr[robot.base.root]))
    qpos, qvel = slice(first.qposadr[0], first.qposadr[0] + 7), slice(first.dofadr[0], first.dofadr[0] + 6)
    ids = [model.joint(f"{robot.uid}/{name}").id for name in robot.joint_names]
    rows = []
    for t in range(len(root)):
        data.qpos[qpos], data.qpos[model.jnt_qposadr[ids]] = root[t], joints[t]
        data.qvel[qvel], data.qvel[model.jnt_dofadr[ids]] = free_vel[t], joint_vel[t]
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fwdVelocity(model, data)
        rows.append(np.concatenate([getattr(data, name)[bodies] for name in ("xpos", "xquat", "cvel")], axis=1))
        rows[-1] = np.concatenate((rows[-1], data.subtree_com[model.body_rootid[bodies]]), axis=1)
    states = _states(*torch.tensor(np.array(rows)).split((3, 4, 6, 3), dim=2)).numpy()
    return MotionClip.of(fps, np.concatenate((joints, joint_vel), axis=1), states)


def link_bodies(robot: Articulation, model: mujoco.MjModel) -> list[int]:
    """Return the bodies of a robot's links in the model, B of them."""
    return [int(model.body(f"{robot.uid}/{name}").id) for name in robot.link_names]


def body_states(backend: Backend, bodies: Tensor) -> Tensor:
    """Return positions, quaternions, linear and angular velocities of bodies [B] int64, [N, B, 13]."""
    roots = constant(tuple(backend.model.body_rootid.tolist()), bodies.device)[bodies]
    pos, quat, velocity = (backend.read(name).index_select(1, bodies) for name in ("xpos", "xquat", "cvel"))
    return _states(pos, quat, velocity, backend.read("subtree_com").index_select(1, roots))


def _states(pos: Tensor, quat: Tensor, velocity: Tensor, com: Tensor) -> Tensor:
    """Return states [..., 13]; the engine has velocities at the tree's centre of mass: v = v_com + w x (x - x_com)."""
    angular, at_com = velocity.split(3, dim=-1)
    return torch.cat((pos, quat, at_com + torch.linalg.cross(angular, pos - com), angular), dim=-1)
