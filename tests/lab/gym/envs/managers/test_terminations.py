"""Every termination term by hand. Shapes: N = 2 environments."""

from __future__ import annotations

from embodichain.lab.gym.envs.managers import terminations
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.legs import place_base, set_feet


def test_orientation_is_bad_beyond_the_angle_in_any_direction(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0, -0.99, 3.0], [1.01, 0.0, 0.0]])
    assert terminations.bad_orientation(env, limit_angle=1.0).tolist() == [False, True]
    # cos of the lean is cos(roll) cos(pitch): cos(0.8)^2 = 0.485, and cos(1.05) = 0.498, cos(1.07) = 0.480
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.8, 0.8, 0.0], [0.8, 0.8, 0.0]])
    assert terminations.bad_orientation(env, limit_angle=1.05).tolist() == [True, True]
    assert terminations.bad_orientation(env, limit_angle=1.07).tolist() == [False, False]


def test_height_is_that_of_the_base(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 0.199], [5.0, 1.0, 0.201]], [[0.0] * 3] * 2)
    assert terminations.base_height_below(env, minimum=0.2).tolist() == [True, False]


def test_contact_of_any_link_is_illegal(env: LocomotionEnv) -> None:
    feet = env.sim.get_contact_sensor("feet")
    assert terminations.illegal_contact(env, sensor="feet").tolist() == [False, False]
    set_feet(feet, in_contact=[[False] * 4, [False, False, True, False]])
    assert terminations.illegal_contact(env, sensor="feet").tolist() == [False, True]
