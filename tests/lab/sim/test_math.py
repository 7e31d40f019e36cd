"""Rotations by hand: turns by right angles, whose matrices are permutations with signs."""

import math

import pytest
import torch

from embodichain.lab.sim.math import (
    look_at,
    matrix_from_euler,
    matrix_from_quat,
    pose_from_pos_matrix,
    pose_from_pos_quat,
    quat_from_euler,
    quat_from_matrix,
    quat_mul,
    rotation_vector,
)

HALF = math.sqrt(0.5)
# A quarter turn about each axis: (Euler angles, quaternion, matrix). About z, x goes to y and y to -x.
QUARTER_TURNS = [
    ([90, 0, 0], [HALF, HALF, 0, 0], [[1, 0, 0], [0, 0, -1], [0, 1, 0]]),
    ([0, 90, 0], [HALF, 0, HALF, 0], [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]),
    ([0, 0, 90], [HALF, 0, 0, HALF], [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
]


def random_quats(n: int) -> torch.Tensor:
    quat = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    quat = quat / quat.norm(dim=1, keepdim=True)
    return torch.where(quat[:, :1] < 0, -quat, quat)


@pytest.mark.parametrize(("degrees", "quat", "matrix"), QUARTER_TURNS)
def test_quarter_turns_agree_in_all_three_notations(
    degrees: list[float], quat: list[float], matrix: list[list[float]]
) -> None:
    euler = torch.deg2rad(torch.tensor(degrees, dtype=torch.float32))
    as_matrix = torch.tensor(matrix, dtype=torch.float32)
    torch.testing.assert_close(quat_from_euler(euler), torch.tensor(quat))
    torch.testing.assert_close(matrix_from_euler(euler), as_matrix)
    torch.testing.assert_close(matrix_from_quat(torch.tensor(quat)), as_matrix)
    torch.testing.assert_close(quat_from_matrix(as_matrix), torch.tensor(quat))


def test_euler_angles_turn_about_the_fixed_x_then_y_then_z_axis() -> None:
    x, y, z = (matrix_from_euler(angle) for angle in torch.diag(torch.tensor([0.3, -0.7, 1.1])))
    torch.testing.assert_close(matrix_from_euler(torch.tensor([0.3, -0.7, 1.1])), z @ y @ x)
    # x by 90 deg, then z by 90 deg: the y axis goes to z and stays there.
    turned = matrix_from_euler(torch.tensor([math.pi / 2, 0.0, math.pi / 2])) @ torch.tensor([0.0, 1.0, 0.0])
    torch.testing.assert_close(turned, torch.tensor([0.0, 0.0, 1.0]), atol=1e-6, rtol=0)


def test_quaternion_product_applies_the_right_factor_first() -> None:
    a, b = random_quats(50), random_quats(100)[50:]
    torch.testing.assert_close(
        matrix_from_quat(quat_mul(a, b)), matrix_from_quat(a) @ matrix_from_quat(b), atol=1e-6, rtol=0
    )
    i, j = torch.tensor([0.0, 1, 0, 0]), torch.tensor([0.0, 0, 1, 0])
    assert quat_mul(i, j).tolist() == [0, 0, 0, 1]  # i j = k
    assert quat_mul(j, i).tolist() == [0, 0, 0, -1]


def test_quaternion_of_a_matrix_is_the_one_with_positive_w() -> None:
    quats = random_quats(200)
    torch.testing.assert_close(quat_from_matrix(matrix_from_quat(quats)), quats, atol=1e-5, rtol=0)
    torch.testing.assert_close(quat_from_matrix(matrix_from_quat(-quats)), quats, atol=1e-5, rtol=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_turns_have_exact_quaternions(axis: int) -> None:
    # The trace is -1: the formula by the trace alone would divide 0 by 0.
    matrix = -torch.eye(3)
    matrix[axis, axis] = 1.0
    expected = torch.zeros(4)
    expected[1 + axis] = 1.0
    torch.testing.assert_close(quat_from_matrix(matrix).abs(), expected)


def test_poses_hold_the_rotation_the_position_and_the_last_row() -> None:
    pos, quat = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[HALF, 0.0, 0.0, HALF]])
    expected = torch.tensor([[[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]])
    torch.testing.assert_close(pose_from_pos_quat(pos, quat), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(pose_from_pos_matrix(pos, matrix_from_quat(quat)), expected, atol=1e-6, rtol=0)


def test_rotation_vector_is_the_axis_times_the_angle() -> None:
    axis = torch.tensor([0.6, 0.0, 0.8])
    for angle in (0.0, 1e-7, 0.3, 2.0, 3.1):
        quat = torch.cat((torch.tensor([math.cos(angle / 2)]), math.sin(angle / 2) * axis))
        vector = rotation_vector(matrix_from_quat(quat[None]))
        torch.testing.assert_close(vector[0], angle * axis, atol=2e-6, rtol=1e-4)


def test_camera_looks_at_its_target_with_up_upwards() -> None:
    eye, target, up = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    pose = look_at(eye, target, up)
    torch.testing.assert_close(pose[:3, 3], eye)
    torch.testing.assert_close(pose[:3, 2], torch.tensor([1.0, 0.0, 0.0]))  # it looks along its own -z
    torch.testing.assert_close(pose[:3, 1], up)
