"""Kinematics of a serial chain, batched in torch: forward, Jacobian, and inverse by damped least squares.

Shapes: B any batch size, J joints of the chain. Poses are 4x4 in the frame of the chain's root, m; joint positions
in rad or m.
"""

import itertools

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.math import pad_batch
from embodichain.utils.device import constant

_LARGEST_STEP = 0.5  # of a joint in one iteration of the inverse, rad or m
_DAMPING = 0.02  # lambda of J J^T + lambda^2 I
_POS_TOLERANCE, _ROT_TOLERANCE = 1e-3, 1e-2  # of success, m and rad


class SerialChain:
    """The joints on the way from the world to a point of a robot.

    The pose of joint j's child in its parent is linear in its features (1, cos q, sin q, q), by Rodrigues' formula for
    hinges and by a shift for slides. Behind a few hinges it is therefore a trigonometric polynomial: a constant matrix
    and others times cosines of sums of the angles. Forward kinematics takes the joints in groups of three, all groups
    at once, and chains the groups. Few operations matter here, since each costs more than its arithmetic at usual
    batch sizes.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        joint_ids: list[int],
        body_id: int,
        tcp: np.ndarray,
        device: torch.device,
        root_id: int = 0,
    ) -> None:
        """Read the chain from a compiled model.

        Args:
            joint_ids: all joints in the model between root and body, from the root outwards.
            body_id: last body of the chain.
            tcp: [4, 4] pose of the tool centre point in the frame of that body.
            root_id: body that is the frame of all poses; 0: the world.
        """

        def tensor(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, dtype=torch.float32, device=device)

        basis, tail = _chain_basis(model, body_id, root_id)
        if joint_ids and all(model.jnt_type[joint_ids] == int(mujoco.mjtJoint.mjJNT_HINGE)):
            self._polynomial = [tensor(table) for table in _group_polynomials(basis, tail @ tcp)]
        else:
            self._polynomial = []
        self._basis = tensor(basis).flatten(2)  # [J, 4, 16]
        self._tail = tensor(tail @ tcp)
        # [J, 4, 2] axis and anchor in the body's frame; the joint's own rotation leaves them where they are.
        screws = np.zeros((len(joint_ids), 4, 2))
        screws[:, :3, 0], screws[:, :3, 1], screws[:, 3, 1] = model.jnt_axis[joint_ids], model.jnt_pos[joint_ids], 1.0
        self._screws = tensor(screws)
        self._is_hinge = tensor(model.jnt_type[joint_ids] == int(mujoco.mjtJoint.mjJNT_HINGE)).bool()[:, None, None]
        limited = model.jnt_limited[joint_ids].astype(bool)[:, None]
        self.limits = tensor(np.where(limited, model.jnt_range[joint_ids], np.array([-np.inf, np.inf])))
        """[J, 2] lower and upper joint limits."""

    def forward(self, qpos: Tensor) -> Tensor:
        """Return the pose of the tool centre point [B, 4, 4] at joint positions [B, J], whatever B is."""
        if not len(self._basis):
            return self._tail.expand(len(qpos), 4, 4)
        count = len(qpos)
        qpos = pad_batch(qpos)
        if not self._polynomial:
            return (self._frames(qpos)[-1] @ self._tail)[:count]
        sums, phases, matrices, constant = self._polynomial
        cosines = torch.cos(torch.addmm(phases, qpos, sums))
        pose, *others = torch.addmm(constant, cosines, matrices).view(len(qpos), -1, 4, 4).unbind(1)
        for other in others:
            pose = torch.bmm(pose, other)
        return pose if len(pose) == count else pose[:count]

    def jacobian(self, qpos: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pose [B, 4, 4] and the geometric Jacobian [B, 6, J] (linear, then angular, root frame)."""
        frames = self._frames(qpos)
        pose = frames[-1] @ self._tail
        # [J, B, 3, 2]: the joints in the world frame
        axes, anchors = torch.matmul(torch.stack(frames)[:, :, :3], self._screws[:, None]).unbind(-1)
        linear, angular = torch.linalg.cross(axes, pose[:, :3, 3] - anchors), axes
        if not self._polynomial:  # there are slides
            linear = torch.where(self._is_hinge, linear, axes)
            angular = torch.where(self._is_hinge, axes, 0.0)
        return pose, torch.cat((linear, angular), dim=2).permute(1, 2, 0)

    def _frames(self, qpos: Tensor) -> list[Tensor]:
        """Return the poses of the joints' bodies, J times [B, 4, 4]."""
        q = qpos.t()
        features = torch.stack((torch.ones_like(q), torch.cos(q), torch.sin(q), q), dim=2)  # [J, B, 4]
        frame, *others = torch.bmm(features, self._basis).unflatten(2, (4, 4)).unbind(0)
        frames = [frame]
        for other in others:
            frames.append(torch.bmm(frames[-1], other))
        return frames

    def inverse(self, target: Tensor, seed: Tensor, iterations: int = 30) -> tuple[Tensor, Tensor]:
        """Find joint positions that put the tool centre point at a pose.

        Damped least squares (Wampler, 1986; Nakamura and Hanafusa, 1986), clamped to the joint limits after every
        iteration, started at ``seed``.

        Args:
            target: [B, 4, 4] wanted pose, or [1, 4, 4], one for all.
            iterations: their fixed number, so that no step waits for a result.

        Returns:
            ``(success [B] bool, qpos [B, J])``; their bits do not depend on B.
        """
        count = len(seed)
        qpos, target = pad_batch(seed), pad_batch(target.expand(count, 4, 4))
        low, high = self.limits.unbind(dim=1)
        ridge = _DAMPING**2 * torch.eye(6, device=seed.device)
        for _ in range(iterations):
            pose, jacobian = self.jacobian(qpos)
            error, _ = _pose_error(pose, target)
            # (J J^T + lambda^2 I) x = error; the variant without a check of the result does not wait for it.
            solution, _ = torch.linalg.solve_ex(torch.baddbmm(ridge, jacobian, jacobian.mT), error.unsqueeze(2))
            step = torch.bmm(jacobian.mT, solution).squeeze(2)
            qpos = torch.clamp(qpos + step.clamp_(-_LARGEST_STEP, _LARGEST_STEP), low, high)
        error, angle = _pose_error(self.forward(qpos), target)
        success = (_length(error[:, :3]) < _POS_TOLERANCE) & (angle < _ROT_TOLERANCE)
        return success[:count], qpos[:count]


def _length(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors [B, 3], summed in the same order whatever B is."""
    x, y, z = vectors.square().unbind(1)
    return (x + y + z).sqrt()


def _pose_error(pose: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shift and the rotation vector from a pose to a target, world frame, [B, 6], and its angle, [B].

    The rotation R that remains has the vector (R - R^T) / 2 of length sin(angle), along its axis.
    """
    rotation = torch.bmm(target[:, :3, :3], pose[:, :3, :3].mT).flatten(1)
    doubled = rotation[:, constant((7, 2, 3), pose.device)] - rotation[:, constant((5, 6, 1), pose.device)]
    twice_sine = _length(doubled)
    angle = torch.atan2(twice_sine, rotation[:, 0] + rotation[:, 4] + rotation[:, 8] - 1.0)
    factor = torch.where(twice_sine > 1e-6, angle / twice_sine, 0.5)
    position = target[:, :3, 3] - pose[:, :3, 3]
    return torch.cat((position, doubled * factor.unsqueeze(1)), dim=1), angle


def bodies_between(model: mujoco.MjModel, root_id: int, body_id: int) -> list[int] | None:
    """Return the bodies from an ancestor (excluded) to a body, in this order; None if it is no ancestor."""
    bodies: list[int] = []
    body = body_id
    while body != root_id:
        if body == 0:
            return None
        bodies.append(body)
        body = int(model.body_parentid[body])
    return bodies[::-1]


def frame_pose(pos: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """Return the pose [4, 4] of a position [3] and a unit quaternion [4]."""
    pose, matrix = np.eye(4), np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quat)
    pose[:3, :3], pose[:3, 3] = matrix.reshape(3, 3), pos
    return pose


def pos_quat(pose: np.ndarray) -> dict[str, np.ndarray]:
    """Return a pose [4, 4] as the ``pos`` and ``quat`` of an element of a spec."""
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, pose[:3, :3].ravel())
    return {"pos": pose[:3, 3], "quat": quat}


def _chain_basis(model: mujoco.MjModel, body_id: int, root_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return [J, 4, 4, 4] (joint, feature, row, column) and the constant [4, 4] from the last joint to the body."""
    bodies = bodies_between(model, root_id, body_id)
    assert bodies is not None
    basis = []
    constant = np.eye(4)
    for body in bodies:
        constant = constant @ frame_pose(model.body_pos[body], model.body_quat[body])
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        for joint in range(first, first + count):
            basis.append(np.einsum("ij,fjk->fik", constant, _joint_features(model, joint)))
            constant = np.eye(4)
    return np.array(basis).reshape(-1, 4, 4, 4), constant


def _group_polynomials(basis: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the poses of groups of three neighbouring hinges as trigonometric polynomials.

    With e = exp(i q) a hinge's pose is C_0 + C_1 e + C_-1 / e, where C_1 = (cos part - i sin part) / 2 and C_-1 is its
    conjugate. The product of a group's poses has a term exp(i k.q) for each k in {-1, 0, 1}^3; those for k and -k are
    conjugate and make 2 Re(C_k) cos(k.q) - 2 Im(C_k) sin(k.q). A sine is a cosine a quarter turn later.

    Returns:
        ``(sums [J, M], phases [M], matrices [M, 16 G], constant [16 G])``: the G groups' matrices side by side are
        constant + cos(q sums + phases) matrices. The tail is in the last group.
    """
    starts = range(0, len(basis), 3)
    sums, phases, rows = [], [], []
    constant = np.zeros((len(starts), 4, 4))
    for group, start in enumerate(starts):
        joints = range(start, min(start + 3, len(basis)))
        for k in itertools.product((0, 1, -1), repeat=len(joints)):
            matrix = np.eye(4, dtype=complex)
            for joint, factor in zip(joints, k, strict=True):
                one, cos, sin, _ = basis[joint]
                matrix = matrix @ (0.5 * (cos - 1j * factor * sin) if factor else one)
            if joints[-1] == len(basis) - 1:
                matrix = matrix @ tail
            if not any(k):
                constant[group] = matrix.real
            elif next(factor for factor in k if factor) > 0:  # -k comes with k
                for part, phase in ((2 * matrix.real, 0.0), (-2 * matrix.imag, -np.pi / 2)):
                    if np.abs(part).max() > 1e-12:
                        row = np.zeros((len(starts), 4, 4))
                        row[group] = part
                        rows.append(row.ravel())
                        phases.append(phase)
                        sums.append(np.zeros(len(basis)))
                        sums[-1][list(joints)] = k
    return np.array(sums).T, np.array(phases), np.array(rows), constant.ravel()


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
    features[:3, :3, :3] = along, c * across - s * cross, s * across + c * cross
    for f in range(3):
        features[f][:3, 3] = -features[f][:3, :3] @ anchor
    features[0][:3, 3] += anchor
    features[0][3, 3] = 1.0
    return features
