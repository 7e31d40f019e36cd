"""Rotations and poses, batched. Quaternions are (w, x, y, z); Euler angles turn about the fixed x, then y, then z axis.

Shapes: ``...`` is any batch.
"""

from functools import lru_cache

import torch
from torch import Tensor

from embodichain.utils.device import constant


def pad_batch(values: Tensor) -> Tensor:
    """Return values [B, ...] with the last repeated until B is a multiple of 32.

    SIMD code computes the last, incomplete block differently; with this the bits of a result do not depend on B.
    """
    missing = -len(values) % 32
    return torch.cat((values, values[-1:].expand(missing, *values.shape[1:]))) if missing else values


def quat_from_euler(euler: Tensor) -> Tensor:
    """Return unit quaternions [..., 4] of Euler angles [..., 3] in radians."""
    c, s = torch.cos(euler * 0.5), torch.sin(euler * 0.5)
    cx, cy, cz = c.unbind(-1)
    sx, sy, sz = s.unbind(-1)
    w, x = cx * cy * cz + sx * sy * sz, sx * cy * cz - cx * sy * sz
    y, z = cx * sy * cz + sx * cy * sz, cx * cy * sz - sx * sy * cz
    return torch.stack((w, x, y, z), dim=-1)


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Return the products a b [..., 4]: the rotation b, then a."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    w = aw * bw - ax * bx - ay * by - az * bz
    x = aw * bx + ax * bw + ay * bz - az * by
    y = aw * by - ax * bz + ay * bw + az * bx
    z = aw * bz + ax * by - ay * bx + az * bw
    return torch.stack((w, x, y, z), dim=-1)


def quat_inverse(quat: Tensor) -> Tensor:
    """Return the inverses of unit quaternions [..., 4]."""
    return quat * constant((1.0, -1.0, -1.0, -1.0), quat.device, torch.float32)


def quat_apply(quat: Tensor, vector: Tensor) -> Tensor:
    """Return vectors [..., 3] turned by quaternions [..., 4], which broadcast."""
    twice = 2.0 * torch.linalg.cross(quat[..., 1:].expand_as(vector), vector)
    return vector + quat[..., :1] * twice + torch.linalg.cross(quat[..., 1:].expand_as(vector), twice)


def quat_angle(a: Tensor, b: Tensor) -> Tensor:
    """Return the angle between rotations, [...] rad in 0 to pi, of quaternions [..., 4]."""
    relative = quat_mul(quat_inverse(a), b)
    return 2.0 * torch.atan2(torch.linalg.vector_norm(relative[..., 1:], dim=-1), relative[..., 0].abs())


# Row r of this table times the products of a quaternion's components (flattened outer product, 16) is entry r of the
# rotation matrix: R = (w^2 + x^2 - y^2 - z^2, 2(xy - wz), ...), for unit quaternions.
_QUAT_TO_MATRIX = torch.zeros(16, 9)
for _row, _terms in enumerate(
    (
        {"ww": 1, "xx": 1, "yy": -1, "zz": -1},
        {"xy": 2, "wz": -2},
        {"xz": 2, "wy": 2},
        {"xy": 2, "wz": 2},
        {"ww": 1, "xx": -1, "yy": 1, "zz": -1},
        {"yz": 2, "wx": -2},
        {"xz": 2, "wy": -2},
        {"yz": 2, "wx": 2},
        {"ww": 1, "xx": -1, "yy": -1, "zz": 1},
    )
):
    for _pair, _factor in _terms.items():
        _QUAT_TO_MATRIX["wxyz".index(_pair[0]) * 4 + "wxyz".index(_pair[1]), _row] = _factor


def matrix_from_quat(quat: Tensor) -> Tensor:
    """Return rotation matrices [..., 3, 3] of unit quaternions [..., 4] (three operations: one table product)."""
    products = (quat.unsqueeze(-1) * quat.unsqueeze(-2)).flatten(-2)
    return (products @ _tables(quat.device, quat.dtype)[0]).unflatten(-1, (3, 3))


def matrix_from_euler(euler: Tensor) -> Tensor:
    """Return rotation matrices [..., 3, 3] of Euler angles [..., 3] in radians."""
    return matrix_from_quat(quat_from_euler(euler))


# A pose [4, 4] is linear in its position and in the products of its quaternion's components. All are products of two
# numbers that are linear in the row (position, quaternion): x * 1 for the position, q_i * q_j for the rest.
_I, _J = torch.triu_indices(4, 4)
_LEFT, _RIGHT = (
    torch.block_diag(axes, torch.eye(4)[:, own]) for axes, own in ((torch.eye(3), _I), (torch.zeros(3, 3), _J))
)
_ONES = torch.tensor([1.0] * 3 + [0.0] * len(_I))
_TO_POSE = torch.zeros(3 + len(_I), 16)
_TO_POSE[:3, [3, 7, 11]] = torch.eye(3)
_TO_POSE[3:, [0, 1, 2, 4, 5, 6, 8, 9, 10]] = (
    _QUAT_TO_MATRIX[4 * _I + _J] + _QUAT_TO_MATRIX[4 * _J + _I] * (_I != _J)[:, None]
)
_LAST_ROW = torch.eye(16)[15]


@lru_cache
def _tables(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    return [table.to(device, dtype) for table in (_QUAT_TO_MATRIX, _LEFT, _ONES, _RIGHT, _LAST_ROW, _TO_POSE)]


def pose_from_row(row: Tensor) -> Tensor:
    """Return poses [B, 4, 4] of rows [B, 7]: position, unit quaternion."""
    _, left, ones, right, last_row, to_pose = _tables(row.device, row.dtype)
    products = torch.mm(row, left) * torch.addmm(ones, row, right)
    return torch.addmm(last_row, products, to_pose).view(-1, 4, 4)


def pose_from_pos_quat(pos: Tensor, quat: Tensor) -> Tensor:
    """Return poses [B, 4, 4] of positions [B, 3] and unit quaternions [B, 4]."""
    return pose_from_row(torch.cat((pos, quat), dim=1))


def pose_from_pos_matrix(pos: Tensor, matrix: Tensor | None = None) -> Tensor:
    """Return poses [..., 4, 4] of positions [..., 3] and rotation matrices [..., 3, 3]; None: no rotation."""
    pose = torch.eye(4, dtype=pos.dtype, device=pos.device).repeat(*pos.shape[:-1], 1, 1)
    pose[..., :3, 3] = pos
    if matrix is not None:
        pose[..., :3, :3] = matrix
    return pose


def quat_from_matrix(matrix: Tensor) -> Tensor:
    """Return unit quaternions [..., 4] with w >= 0 of rotation matrices [..., 3, 3].

    The component of largest magnitude is taken from the diagonal, the others from it (Shepperd, 1978).
    """
    m = matrix.flatten(-2)
    xx, yy, zz = m[..., 0], m[..., 4], m[..., 8]
    squares = torch.stack((1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz), dim=-1)
    w, x, y, z = squares.unbind(-1)
    wx, wy, wz = m[..., 7] - m[..., 5], m[..., 2] - m[..., 6], m[..., 3] - m[..., 1]
    xy, xz, yz = m[..., 3] + m[..., 1], m[..., 6] + m[..., 2], m[..., 7] + m[..., 5]
    rows = (w, wx, wy, wz), (wx, x, xy, xz), (wy, xy, y, yz), (wz, xz, yz, z)
    table = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
    best = squares.argmax(dim=-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    quat = torch.gather(table, -2, best).squeeze(-2)
    quat = quat / quat.norm(dim=-1, keepdim=True)
    return torch.where(quat[..., :1] < 0, -quat, quat)


def row_from_pose(pose: Tensor) -> Tensor:
    """Return rows [B, 7] of poses [B, 4, 4]: position, unit quaternion."""
    return torch.cat((pose[:, :3, 3], quat_from_matrix(pose[:, :3, :3])), dim=1)


def look_at(eye: Tensor, target: Tensor, up: Tensor) -> Tensor:
    """Return poses [..., 4, 4] of cameras at ``eye`` ``target`` in the middle and ``up`` upwards, [..., 3] each."""
    forward = torch.nn.functional.normalize(target - eye, dim=-1)
    right = torch.nn.functional.normalize(torch.linalg.cross(forward, up), dim=-1)
    return pose_from_pos_matrix(eye, torch.stack((right, torch.linalg.cross(right, forward), -forward), dim=-1))


def rotation_vector(matrix: Tensor) -> Tensor:
    """Return axis times angle (rad, at most pi) of rotation matrices, [..., 3] for [..., 3, 3]."""
    quat = quat_from_matrix(matrix)
    sine = quat[..., 1:].norm(dim=-1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, quat[..., :1])  # w is not negative
    # Of a small rotation the vector is twice the quaternion's.
    return torch.where(sine > 1e-6, angle / sine.clamp(min=1e-6), 2.0) * quat[..., 1:]
