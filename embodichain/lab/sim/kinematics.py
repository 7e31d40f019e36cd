"""Kinematics of a serial chain, batched in torch: forward, Jacobian, and inverse by damped least squares.

Shapes: B any batch size, J joints of the chain. Poses are 4x4 in the world frame, m; joint positions in rad or m.
"""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.math import quat_from_matrix

__all__ = ["SerialChain"]


class SerialChain:
    """The joints on the way from the world to a point of a robot.

    The pose of joint j's child in its parent is linear in its features (1, cos q, sin q, q), by Rodrigues' formula for
    hinges and by a shift for slides. The product of two neighbours' poses is linear in the 16 products of their
    features, so that forward kinematics takes the joints in pairs: one matrix product for all pairs, then J/2 - 1 to
    chain them. Few operations matter here, since each costs more than its arithmetic at usual batch sizes.
    """

    def __init__(
        self, model: mujoco.MjModel, joint_ids: list[int], site_id: int, tcp: np.ndarray, device: torch.device
    ) -> None:
        """Read the chain from a compiled model.

        Args:
            model: the scene's.
            joint_ids: the chain's joints in the model, from the base outwards; joints of the model that lie between but
                are not named stay at their initial position.
            site_id: where the chain ends.
            tcp: [4, 4] pose of the tool centre point in the frame of that site.
            device: of all results.
        """

        def tensor(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, dtype=torch.float32, device=device)

        basis, tail = _chain_basis(model, joint_ids, site_id)
        first, second, pairs = _pair_table(basis, tail @ tcp)
        self._first = torch.as_tensor(first, device=device)
        self._second = torch.as_tensor(second, device=device)
        self._pairs = tensor(pairs)
        self._num_pairs = (len(joint_ids) + 1) // 2
        self._basis = tensor(basis).flatten(2)  # [J, 4, 16]
        self._tail = tensor(tail @ tcp)
        # [J, 3] in the body's frame; the joint's own rotation leaves its axis and anchor where they are.
        self._axes = tensor(model.jnt_axis[joint_ids])
        self._anchors = tensor(model.jnt_pos[joint_ids])
        self._is_hinge = tensor(model.jnt_type[joint_ids] == int(mujoco.mjtJoint.mjJNT_HINGE))[:, None]
        limited = model.jnt_limited[joint_ids].astype(bool)[:, None]
        self.limits = tensor(np.where(limited, model.jnt_range[joint_ids], np.array([-np.inf, np.inf])))
        """[J, 2] lower and upper joint limits."""

    def forward(self, qpos: Tensor) -> Tensor:
        """Return the pose of the tool centre point [B, 4, 4] at joint positions [B, J]."""
        features = torch.cat((torch.cos(qpos), torch.sin(qpos), qpos, qpos.new_ones(len(qpos), 1)), dim=1)
        products = features[:, self._first] * features[:, self._second]
        pose, *others = (products @ self._pairs).view(-1, self._num_pairs, 4, 4).unbind(1)
        for other in others:
            pose = torch.bmm(pose, other)
        return pose

    def jacobian(self, qpos: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pose [B, 4, 4] and the geometric Jacobian [B, 6, J] (linear, then angular, world frame)."""
        q = qpos.t()
        features = torch.stack((torch.ones_like(q), torch.cos(q), torch.sin(q), q), dim=2)  # [J, B, 4]
        frame, *others = torch.bmm(features, self._basis).unflatten(2, (4, 4)).unbind(0)
        frames = [frame]
        for other in others:
            frames.append(torch.bmm(frames[-1], other))
        pose = frames[-1] @ self._tail
        stacked = torch.stack(frames, dim=1)  # [B, J, 4, 4]: the frame of each joint's body
        axes = (stacked[..., :3, :3] @ self._axes[:, :, None]).squeeze(-1)
        anchors = (stacked[..., :3, :3] @ self._anchors[:, :, None]).squeeze(-1) + stacked[..., :3, 3]
        arms = torch.linalg.cross(axes, pose[:, None, :3, 3] - anchors)
        linear = self._is_hinge * arms + (1 - self._is_hinge) * axes
        return pose, torch.cat((linear, self._is_hinge * axes), dim=-1).transpose(1, 2)

    def inverse(
        self,
        target: Tensor,
        seed: Tensor,
        iterations: int = 30,
        damping: float = 0.02,
        pos_tolerance: float = 1e-3,
        rot_tolerance: float = 1e-2,
    ) -> tuple[Tensor, Tensor]:
        """Find joint positions that put the tool centre point at a pose.

        Damped least squares (Wampler, 1986; Nakamura and Hanafusa, 1986), clamped to the joint limits after every
        iteration, started at ``seed``.

        Args:
            target: [B, 4, 4] wanted pose.
            seed: [B, J] first guess.
            iterations: how many steps; fixed, so that no step waits for a result.
            damping: lambda of (J J^T + lambda^2 I).
            pos_tolerance: of success, m.
            rot_tolerance: of success, rad.

        Returns:
            ``(success [B] bool, qpos [B, J])``.
        """
        qpos = seed
        for _ in range(iterations):
            pose, jacobian = self.jacobian(qpos)
            gram = jacobian @ jacobian.transpose(1, 2)
            gram.diagonal(dim1=1, dim2=2).add_(damping**2)
            step = jacobian.transpose(1, 2) @ torch.linalg.solve(gram, _pose_error(pose, target)[..., None])
            qpos = torch.clamp(qpos + step.squeeze(-1).clamp(-0.5, 0.5), self.limits[:, 0], self.limits[:, 1])
        error = _pose_error(self.forward(qpos), target)
        success = (error[:, :3].norm(dim=1) < pos_tolerance) & (error[:, 3:].norm(dim=1) < rot_tolerance)
        return success, qpos


def _pose_error(pose: Tensor, target: Tensor) -> Tensor:
    """Return [B, 6]: the target's position minus the pose's, and the rotation vector that remains (world frame)."""
    quat = quat_from_matrix(target[:, :3, :3] @ pose[:, :3, :3].transpose(1, 2))
    sine = quat[:, 1:].norm(dim=1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, quat[:, :1])
    rotation = quat[:, 1:] * torch.where(sine > 1e-8, angle / sine.clamp(min=1e-8), torch.full_like(sine, 2.0))
    return torch.cat((target[:, :3, 3] - pose[:, :3, 3], rotation), dim=1)


def _chain_basis(model: mujoco.MjModel, joint_ids: list[int], site_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return [J, 4, 4, 4] (joint, feature, row, column) and the constant [4, 4] from the last joint to the site."""
    wanted = set(joint_ids)
    bodies: list[int] = []
    body = int(model.site_bodyid[site_id])
    while body:
        bodies.append(body)
        body = int(model.body_parentid[body])
    basis = []
    constant = np.eye(4)
    for body in reversed(bodies):
        constant = constant @ _pose(model.body_pos[body], model.body_quat[body])
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        for joint in range(first, first + count):
            features = _joint_features(model, joint)
            if joint in wanted:
                basis.append(np.einsum("ij,fjk->fik", constant, features))
                constant = np.eye(4)
            else:
                q = float(model.key_qpos[0][model.jnt_qposadr[joint]])
                constant = constant @ np.einsum("f,fij->ij", [1.0, np.cos(q), np.sin(q), q], features)
    return np.array(basis), constant @ _pose(model.site_pos[site_id], model.site_quat[site_id])


def _pair_table(basis: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how forward kinematics multiplies features, and how the products make the pairs' matrices.

    The features of a configuration stand in one row: cos of all joints, sin of all, positions of all, 1.

    Returns:
        ``(first [M], second [M], table [M, 16 P])``: product m is feature ``first[m]`` times feature ``second[m]``, and
        adds ``table[m]`` to the entries of the P pairs' matrices. A last joint without neighbour is paired with an
        identity. The tail is in the last pair.
    """
    num_joints = len(basis)
    num_pairs = (num_joints + 1) // 2
    one = 3 * num_joints
    identity = np.zeros((4, 4, 4))
    identity[0] = np.eye(4)
    first, second, rows = [], [], []
    for pair in range(num_pairs):
        a, b = 2 * pair, 2 * pair + 1
        right = basis[b] if b < num_joints else identity
        for f, g in np.ndindex(4, 4):
            matrix = basis[a][f] @ right[g] @ (tail if pair == num_pairs - 1 else np.eye(4))
            if matrix.any():
                row = np.zeros((num_pairs, 16))
                row[pair] = matrix.ravel()
                rows.append(row.ravel())
                first.append(one if f == 0 else (f - 1) * num_joints + a)
                second.append(one if g == 0 else (g - 1) * num_joints + b)
    return np.array(first), np.array(second), np.array(rows)


def _joint_features(model: mujoco.MjModel, joint: int) -> np.ndarray:
    """Return the matrices [4, 4, 4] by which (1, cos q, sin q, q) weigh a hinge's or slide's motion."""
    axis, anchor = model.jnt_axis[joint], model.jnt_pos[joint]
    offset = float(model.qpos0[model.jnt_qposadr[joint]])
    features = np.zeros((4, 4, 4))
    if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
        features[0] = np.eye(4)
        features[0][:3, 3] = -offset * axis
        features[3][:3, 3] = axis
        return features
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    along = np.outer(axis, axis)
    # R(q - offset) = along + cos(q - offset) (I - along) + sin(q - offset) cross, about the anchor.
    c, s = np.cos(offset), np.sin(offset)
    across = np.eye(3) - along
    features[0][:3, :3] = along
    features[1][:3, :3] = c * across - s * cross
    features[2][:3, :3] = s * across + c * cross
    for f in range(3):
        features[f][:3, 3] = -features[f][:3, :3] @ anchor
    features[0][:3, 3] += anchor
    features[0][3, 3] = 1.0
    return features


def _pose(pos: np.ndarray, quat: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quat)
    pose = np.eye(4)
    pose[:3, :3] = matrix.reshape(3, 3)
    pose[:3, 3] = pos
    return pose
