"""Where episodes begin: the distributions of Gymnasium's resets. Shapes: N environments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import SceneEnv
from tests.lab.scenes import env_of

N = 400


def first_states(task: str) -> tuple[Tensor, Tensor]:
    """Return the deviations of positions and velocities from the file's pose, [N, nq] and [N, nv]."""
    env = env_of({"id": f"{task}V5RL"}, N)
    assert isinstance(env, SceneEnv)
    env.reset(seed=5)
    reference = torch.tensor(env.sim.model.qpos0)
    return env.qpos - reference, env.qvel


def is_uniform(values: Tensor, scale: float) -> bool:
    """Whether numbers [N, D] look uniform in [-scale, scale): mean, std and ends."""
    mean, std = values.mean(dim=0).abs(), values.std(dim=0)
    # The mean of 400 has a std of scale / sqrt(3 * 400) = 0.029 scale; the std is scale / sqrt(3) = 0.577 scale.
    inside = bool((values.abs() <= scale).all())
    return inside and bool((mean < 0.12 * scale).all()) and bool(((std - 0.577 * scale).abs() < 0.06 * scale).all())


def is_normal(values: Tensor, scale: float) -> bool:
    """Whether numbers [N, D] look normal with the std ``scale``: mean, std, and numbers beyond twice the std."""
    mean, std = values.mean(dim=0).abs(), values.std(dim=0)
    beyond = float((values.abs() > 2 * scale).double().mean())  # 4.6 % of them
    return bool((mean < 0.2 * scale).all()) and bool(((std / scale - 1).abs() < 0.15).all()) and 0.03 < beyond < 0.06


@pytest.mark.parametrize(
    ("task", "scale"), [("Hopper", 5e-3), ("Walker2d", 5e-3), ("Swimmer", 0.1), ("InvertedPendulum", 0.01)]
)
def test_positions_and_velocities_are_uniform(task: str, scale: float) -> None:
    qpos, qvel = first_states(task)

    assert is_uniform(qpos, scale)
    assert is_uniform(qvel, scale)


@pytest.mark.parametrize("task", ["HalfCheetah", "InvertedDoublePendulum"])
def test_positions_are_uniform_and_velocities_normal(task: str) -> None:
    qpos, qvel = first_states(task)

    assert is_uniform(qpos, 0.1)
    assert is_normal(qvel, 0.1)


def test_reachers_goal_is_uniform_on_a_disk() -> None:
    qpos, qvel = first_states("Reacher")
    goal = qpos[:, 2:] + torch.tensor([0.1, -0.1])  # where the file has it
    radius = torch.linalg.vector_norm(goal, dim=1)

    assert is_uniform(qpos[:, :2], 0.1)
    assert is_uniform(qvel[:, :2], 0.005)
    assert (qvel[:, 2:] == 0).all()
    assert (radius < 0.2).all()
    # A quarter of the disk lies within half its radius; the std of the share of 400 is 0.022.
    assert (radius < 0.1).double().mean().item() == pytest.approx(0.25, abs=0.08)
    assert (goal.mean(dim=0).abs() < 0.02).all()


def test_pushers_cylinder_is_uniform_in_a_rectangle_without_a_disk_about_the_goal() -> None:
    qpos, qvel = first_states("Pusher")
    x, y = qpos[:, -4], qpos[:, -3]

    assert (qpos[:, -2:] == 0).all()  # the goal
    assert (qpos[:, :-4] == 0).all()
    assert is_uniform(qvel[:, :-4], 0.005)
    assert (qvel[:, -4:] == 0).all()
    assert (torch.hypot(x, y) > 0.17).all()
    assert ((x >= -0.3) & (x <= 0.0) & (y.abs() <= 0.2)).all()
    # The rectangle of 0.3 x 0.4 less half a disk of radius 0.17 has 0.1200 - 0.0454 = 0.0746 m^2, of which
    # 0.13 x 0.4 = 0.052 lie at x < -0.17: 70 %. The std of the share of 400 is 0.023.
    assert (x < -0.17).double().mean().item() == pytest.approx(0.697, abs=0.08)
