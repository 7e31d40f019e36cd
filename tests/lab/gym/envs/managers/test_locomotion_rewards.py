"""Every reward of legs by hand, from states that are set. Shapes: N = 2 environments, F = 4 feet."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.managers import locomotion_rewards as rewards
from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, RewardCfg
from embodichain.lab.gym.envs.managers.checks import leading_arguments
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from tests.lab.legs import place_base, set_command, set_feet

NO_OBS = TensorDict({}, batch_size=[2])
NO_ACTION = torch.zeros(2, 12)
LEVEL = [[0.0, 0.0, 0.0]] * 2
UP = [[0.0, 0.0, 1.0]] * 2


def value(env: LocomotionEnv, term: Any, action: Tensor = NO_ACTION, info: Any = None, **params: Any) -> Any:
    given = (env, NO_OBS, action, {} if info is None else info)
    func = type(term) if isinstance(term, Functor) else term
    result = term(*given[: len(leading_arguments(RewardCfg(func=func, params=params)))], **params)
    assert result.shape == (2,)
    return pytest.approx(result.tolist(), abs=1e-5, rel=1e-5)


def functor(cls: Any, env: LocomotionEnv, **params: Any) -> Any:
    return cls(FunctorCfg(func=cls, params=params), env)


def move(env: LocomotionEnv, velocity: list[list[float]], angles: list[list[float]] = LEVEL) -> None:
    """Set the bases' velocities: linear in the world's frame, angular in the base's."""
    place_base(env, UP, angles)
    env.robot.base.set_velocity(torch.tensor(velocity), env.all_env_ids)


def test_tracking_of_the_velocity_is_a_bell_of_the_error(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.1, 9.0], [0.0, 0.0, 9.0]])
    move(env, [[0.2, 0.5, 7.0, 0.0, 0.0, 0.0], [0.0] * 6])
    # errors 0.3, 0.4: exp(-(0.09 + 0.16) / 0.5^2) = exp(-1)
    assert value(env, rewards.track_lin_vel_xy_exp, std=0.5) == [math.exp(-1.0), 1.0]


def test_tracking_is_of_the_command_that_was_followed(env: LocomotionEnv) -> None:
    term = env.command_manager.get_term("base_velocity")
    term.tracked, term.command = torch.zeros(2, 3), torch.ones(2, 3)
    move(env, [[0.0] * 6] * 2)
    assert value(env, rewards.track_lin_vel_xy_exp) == [1.0, 1.0]
    assert value(env, rewards.track_ang_vel_z_exp) == [1.0, 1.0]


def test_tracking_needs_a_command_of_a_velocity(env: LocomotionEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env.command_manager.get_term("base_velocity"), "tracked", torch.zeros(2, 1))
    with pytest.raises(ConfigError, match="'base_velocity' is no velocity"):
        value(env, rewards.track_lin_vel_xy_exp)


def test_tracking_of_the_yaw_rate_is_a_bell_of_the_error(env: LocomotionEnv) -> None:
    set_command(env, [[9.0, 9.0, 0.5], [9.0, 9.0, -0.5]])
    move(env, [[0.0] * 5 + [1.0], [0.0] * 5 + [-0.5]])
    # 0.5^2 / 0.25^2 = 4
    assert value(env, rewards.track_ang_vel_z_exp, std=0.25) == [math.exp(-4.0), 1.0]


def test_velocity_along_z_is_the_bases_own(env: LocomotionEnv) -> None:
    # Nose down by 0.5 rad, a velocity along the world's x is sin(0.5) upwards.
    move(env, [[0.0, 0.0, -2.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]], [[0.0] * 3, [0.0, 0.5, 0.0]])
    assert value(env, rewards.lin_vel_z_l2) == [4.0, math.sin(0.5) ** 2]


def test_roll_and_pitch_rates_are_summed(env: LocomotionEnv) -> None:
    move(env, [[0.0, 0.0, 0.0, 3.0, 4.0, 7.0], [0.0] * 6])
    assert value(env, rewards.ang_vel_xy_l2) == [25.0, 0.0]


def test_orientation_is_the_sine_of_the_lean_squared(env: LocomotionEnv) -> None:
    place_base(env, UP, [[0.3, 0.0, 2.0], [0.0, -0.5, 0.0]])
    assert value(env, rewards.flat_orientation_l2) == [math.sin(0.3) ** 2, math.sin(0.5) ** 2]


def test_height_is_compared_with_the_target(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 0.5], [4.0, 4.0, 0.2]], LEVEL)
    assert value(env, rewards.base_height_l2, target_height=0.3) == [0.04, 0.01]


def test_action_rate_begins_anew_with_each_episode(env: LocomotionEnv) -> None:
    term = functor(rewards.action_rate_l2, env)
    actions = torch.zeros(3, 2, 12)
    actions[0, :, 0] = 9.0
    actions[1, :, :2] = torch.tensor([6.0, 4.0])
    actions[2, :, 0] = 6.0
    env.elapsed_steps = torch.tensor([1, 5])
    assert value(env, term, actions[0]) == [0.0, 81.0]
    env.elapsed_steps = torch.tensor([2, 6])
    assert value(env, term, actions[1]) == [25.0, 25.0]  # 3, 4
    env.elapsed_steps = torch.tensor([3, 1])
    assert value(env, term, actions[2]) == [16.0, 0.0]


def test_torques_are_those_of_the_drives(env: LocomotionEnv) -> None:
    # Stiffness 35 Nm/rad: 0.1 rad from the target are 3.5 Nm, at rest.
    targets = env.robot.get_qpos().clone()
    targets[0, :2] += 0.1
    env.robot.set_qpos(targets)
    assert value(env, rewards.joint_torques_l2) == [2 * 3.5**2, 0.0]


def test_joint_velocities_are_summed(env: LocomotionEnv) -> None:
    qvel = torch.zeros(2, 12)
    qvel[0, [0, 11]] = torch.tensor([3.0, -4.0])
    env.robot.set_qvel(qvel)
    move(env, [[9.0] * 6] * 2)  # the base does not count
    assert value(env, rewards.joint_vel_l2) == [25.0, 0.0]


def test_accelerations_are_means_over_the_step(env: LocomotionEnv) -> None:
    term = functor(rewards.joint_acc_l2, env)
    qvel = torch.zeros(2, 12)
    qvel[1, 0] = 0.4
    env.robot.set_qvel(qvel)  # as a reset or an event may
    term.begin_step()
    qvel[:, 0] = 0.6
    env.robot.set_qvel(qvel)
    # 0.6 / 0.02 s = 30 and 0.2 / 0.02 = 10
    assert value(env, term) == [900.0, 100.0]
    term.begin_step()
    assert value(env, term) == [0.0, 0.0]


def test_joint_limits_count_from_the_softer_ones_on(env: LocomotionEnv) -> None:
    low, high = env.robot.body_data.qpos_limits[0].unbind(dim=1)
    middle, width = (low + high) / 2, high - low
    qpos = middle.repeat(2, 1)
    qpos[0, 0] += 0.5 * width[0]  # at the limit: 0.05 of the width beyond the inner 0.9
    qpos[0, 1] -= 0.47 * width[1]  # 0.02 of the width beyond
    qpos[1, 2] += 0.44 * width[2]  # inside
    env.robot.set_qpos(qpos, target=False)
    expected = 0.05 * float(width[0]) + 0.02 * float(width[1])
    assert value(env, rewards.joint_pos_limits, soft_share=0.9) == [expected, 0.0]


def test_posture_is_a_bell_with_a_width_for_each_joint(env: LocomotionEnv) -> None:
    qpos = env.robot.body_data.default_qpos.clone()
    hips = [name.endswith("hip_joint") for name in env.robot.joint_names]
    qpos[0, hips] += 0.1
    qpos[1] += 0.2
    env.robot.set_qpos(qpos, target=False)
    # 4 hips of 12 joints: exp(-4 / 12 * (0.1 / 0.5)^2); all: exp(-(0.2 / 0.5)^2)
    whole = functor(rewards.posture, env, std=0.5)
    assert value(env, whole) == [math.exp(-0.04 / 3), math.exp(-0.16)]
    # The hips alone, 0.2: exp(-0.25), exp(-1)
    of_hips = functor(rewards.posture, env, std={".*_hip_joint": 0.2})
    assert value(env, of_hips) == [math.exp(-0.25), math.exp(-1.0)]
    # A later pattern replaces an earlier one: hips 0.1, others 0.4.
    both = functor(rewards.posture, env, std={".*": 0.4, ".*_hip_joint": 0.1})
    assert value(env, both) == [math.exp(-1 / 3), math.exp(-(4 * 4.0 + 8 * 0.25) / 12)]


def test_air_time_counts_where_feet_land(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])
    set_feet(
        env.sim.get_contact_sensor("feet"),
        last_air_time=[[0.3, 0.1, 0.9, 0.4]],
        first_contact=[[True, True, False, False], [False] * 4],
    )
    # (0.3 - 0.25) + (0.1 - 0.25)
    assert value(env, rewards.feet_air_time, sensor="feet", threshold=0.25) == [-0.1, 0.0]
    set_command(env, [[0.0, 0.05, 0.0], [0.5, 0.0, 0.0]])
    assert value(env, rewards.feet_air_time, sensor="feet", threshold=0.25) == [0.0, 0.0]


def test_linear_tracking_is_one_less_the_error_as_a_share(env: LocomotionEnv) -> None:
    for command, velocity, expected in (
        ([0.3, 0.4, 9.0], [0.3, 0.4], 1.0),
        ([0.3, 0.4, 9.0], [0.0, 0.0], 0.0),  # stands
        ([0.3, 0.4, 9.0], [0.0, 0.8], 0.0),  # 1 - 0.5 / 0.5
        ([0.3, 0.4, 9.0], [0.3, 0.2], 0.6),  # 1 - 0.2 / 0.5
        ([0.3, 0.4, 9.0], [-0.6, -0.8], 0.0),
        ([0.0, 0.0, 9.0], [0.05, 0.0], 0.5),  # 1 - 0.05 / 0.1
    ):
        set_command(env, [command] * 2)
        move(env, [[*velocity, 0.0, 0.0, 0.0, 0.0]] * 2)
        assert value(env, rewards.track_lin_vel_xy_linear) == [expected] * 2


def test_linear_yaw_tracking_is_of_the_mean_rate(env: LocomotionEnv) -> None:
    # half of each mean is the newest rate
    params: dict[str, Any] = {"time_constant": env.step_dt / math.log(2.0)}
    term = functor(rewards.track_ang_vel_z_linear, env, **params)
    set_command(env, [[9.0, 9.0, -0.8], [9.0, 9.0, 0.0]])
    for yaw_rates, expected in (
        ((-0.8, 0.3), [0.5, 0.5]),  # means -0.4 and 0.15
        ((-1.6, -0.15), [0.75, 1.0]),  # -1.0, 0.0
        ((2.6, 1.2), [0.0, 0.0]),  # 0.8, 0.6: not below 0
    ):
        move(env, [[0.0] * 5 + [rate] for rate in yaw_rates])
        assert value(env, term, **params) == expected
    term.reset(torch.tensor([1]))
    move(env, [[0.0] * 5 + [-2.4], [0.0] * 5 + [0.3]])
    assert value(env, term, **params) == [1.0, 0.5]


def test_step_is_one_foot_down_and_the_other_up_for_a_while(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])
    params: dict[str, Any] = {"sensor": "feet", "shortest": 0.1, "longest": 0.3}
    feet = env.sim.get_contact_sensor("feet")
    one, two = [True, False, False, False], [True, True, False, False]
    set_feet(feet, in_contact=[one, two], air_time=[[0.0, 0.04, 0.02, 0.02]] * 2)
    assert value(env, rewards.feet_step, **params) == [0.4, 0.0]
    for flown, expected in ((0.1, 1.0), (0.28, 1.0), (0.32, 0.0)):
        set_feet(feet, air_time=[[0.0, flown, 0.0, 0.0]] * 2)
        assert value(env, rewards.feet_step, **params) == [expected, 0.0]
    set_feet(feet, in_contact=[one, [False] * 4], air_time=[[0.0, 0.1, 0.1, 0.1]] * 2)
    assert value(env, rewards.feet_step, **params) == [1.0, 0.0]
    set_command(env, [[0.05, 0.0, 0.0], [0.5, 0.0, 0.0]])
    assert value(env, rewards.feet_step, **params) == [0.0, 0.0]


def test_commanded_joints_earn_by_their_mean_error(env: LocomotionEnv) -> None:
    names = ["FR_calf_joint", "FL_hip_joint"]
    at = [env.robot.joint_names.index(name) for name in names]
    qpos = env.robot.body_data.default_qpos.clone()
    qpos[0, at] += torch.tensor([0.2, -0.1])
    env.robot.set_qpos(qpos, target=False)
    term = env.command_manager.get_term("base_velocity")
    before = term.tracked
    term.tracked = torch.tensor([[0.2, 0.1], [0.0, 0.0]])
    # errors 0 and -0.2 rad, and 0 and 0
    followed = value(env, rewards.track_joints_linear, joint_names=names, command="base_velocity", scale=0.4)
    with pytest.raises(ConfigError, match="joint_names: 1 for the 2 numbers of command 'base_velocity'"):
        value(env, rewards.track_joints_linear, joint_names=names[:1], command="base_velocity")
    term.tracked = before
    assert followed == [0.75, 1.0]  # 1 - (0 + 0.2) / 2 / 0.4


def test_upright_is_from_head_down_to_head_up(env: LocomotionEnv) -> None:
    place_base(env, UP, [[math.pi, 0.0, 0.0], [0.0, math.pi / 3, 0.0]])
    assert value(env, rewards.upright) == [0.0, 0.75]  # (1 + cos 60 degrees) / 2


def test_feet_slide_where_they_touch(env: LocomotionEnv) -> None:
    vel = [[3.0, 4.0, 9.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 2.0]]
    set_feet(env.sim.get_contact_sensor("feet"), vel=vel, in_contact=[[True, False, True, True], [False] * 4])
    assert value(env, rewards.feet_slide, sensor="feet") == [5.5, 0.0]


def test_clearance_is_wanted_where_feet_move(env: LocomotionEnv) -> None:
    pos = [[0.0, 0.0, 0.18], [0.0, 0.0, 0.08], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    vel = [[3.0, 4.0, 9.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 2.0]]
    set_feet(env.sim.get_contact_sensor("feet"), pos=pos, vel=vel)
    # 0.1^2 * 5 + 0 * 1 + 0.08^2 * 0.5 + 0
    assert value(env, rewards.feet_clearance, sensor="feet", target_height=0.08) == [0.0532, 0.0532]


def test_impact_is_force_beyond_the_bound(env: LocomotionEnv) -> None:
    force = [[0.0, 30.0, 40.0], [0.0, 0.0, 100.0], [0.0, 0.0, 5.0], [0.0] * 3]
    set_feet(env.sim.get_contact_sensor("feet"), force=force)
    assert value(env, rewards.feet_impact, sensor="feet", max_force=45.0) == [60.0, 60.0]  # 5 + 55


def test_links_that_touch_are_counted(env: LocomotionEnv) -> None:
    set_feet(env.sim.get_contact_sensor("feet"), in_contact=[[True, False, True, True], [False] * 4])
    assert value(env, rewards.undesired_contacts, sensor="feet") == [3.0, 0.0]


def test_alive_and_terminated_are_opposites(env: LocomotionEnv) -> None:
    info = {"fail": torch.tensor([True, False])}
    assert value(env, rewards.is_alive, info=info) == [0.0, 1.0]
    assert value(env, rewards.is_terminated, info=info) == [1.0, 0.0]


GAIT: dict[str, Any] = {
    "sensor": "feet", "offsets": [0.5, 0.0, 0.0, 0.5], "frequency": 2.0, "swing_height": 0.08, "foot_radius": 0.02,
}  # fmt: skip


def test_gait_in_mid_swing_wants_two_feet_up(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.0, 0.0]] * 2)
    env.elapsed_steps = torch.tensor([6, 31])  # 0.24 and 1.24 strides
    s = math.sin(2 * math.pi * 0.24)  # 0.998: FR and RL swing, FL and RR stand
    up = 0.02 + 0.08 * s
    feet = env.sim.get_contact_sensor("feet")
    # As wanted in environment 0; in environment 1 the same feet are on the ground, and those that stand slide.
    set_feet(
        feet,
        pos=[[[0.0, 0.0, 0.02], [0.0, 0.0, up], [0.0, 0.0, up], [0.0, 0.0, 0.02]], [[0.0, 0.0, 0.02]] * 4],
        vel=[[[0.0] * 3] * 4, [[0.2, 0.0, 0.0], [0.0] * 3, [0.0] * 3, [0.0, 0.2, 0.0]]],
        in_contact=[[True, False, False, True], [True] * 4],
    )
    # Those that stand and slide at 0.2 m/s earn exp(-1) each, those that should swing nothing.
    assert value(env, rewards.feet_gait, **GAIT) == [1.0, math.exp(-1.0) / 2]


def test_gait_between_swing_and_stance_counts_both(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.0, 0.0]] * 2)
    env.elapsed_steps = torch.tensor([0, 0])  # s = 0 for all: swings 0.5, stands 0.5
    feet = env.sim.get_contact_sensor("feet")
    set_feet(feet, pos=[[0.0, 0.0, 0.02]] * 4, vel=[[0.0] * 3] * 4, in_contact=[[True] * 4, [False] * 4])
    assert value(env, rewards.feet_gait, **GAIT) == [0.5, 0.5]
    set_feet(feet, pos=[[0.0, 0.0, 0.06]] * 4)
    # 0.04 m too high, half of the swing height: exp(-1) in the air, and it does not matter on the ground
    assert value(env, rewards.feet_gait, **GAIT) == [0.5, 0.5 * math.exp(-1.0)]


def test_gait_of_a_robot_that_is_to_stand_is_to_stand(env: LocomotionEnv) -> None:
    set_command(env, [[0.0, 0.0, 0.0]] * 2)
    env.elapsed_steps = torch.tensor([6, 6])
    feet = env.sim.get_contact_sensor("feet")
    set_feet(feet, vel=[[0.0] * 3] * 4, in_contact=[[True] * 4, [True, False, False, True]])
    assert value(env, rewards.feet_gait, **GAIT) == [1.0, 0.5]


def test_torque_counts_beyond_its_share_of_the_limit(env: LocomotionEnv) -> None:
    limits = env.robot.body_data.qf_limits[0]
    targets = env.robot.get_qpos().clone()
    targets[0, 0] += 0.9 * float(limits[0]) / 35.0  # 0.1 of the limit beyond
    targets[0, 1] -= 100.0  # at the limit: 0.2 of it beyond
    targets[1, 2] += 0.7 * float(limits[2]) / 35.0
    env.robot.set_qpos(targets)
    expected = 0.1 * float(limits[0]) + 0.2 * float(limits[1])
    assert value(env, rewards.joint_torque_limits, soft_share=0.8) == [expected, 0.0]
    # Motors of half the strength have half the effort and half the limit.
    env.robot.drives.set_strength(torch.full((1, 12), 0.5), list(range(12)), torch.tensor([0]))
    assert value(env, rewards.joint_torque_limits, soft_share=0.8) == [expected / 2, 0.0]


def test_each_side_of_a_torque_limit_counts(env: LocomotionEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env.robot.drives.set_strength(torch.ones(2, 12), list(range(12)), torch.arange(2))
    monkeypatch.setattr(env.robot, "effort_limits", torch.tensor([[-7.0], [9.0]]).expand(2, 12))
    monkeypatch.setattr(env.robot, "get_qf", lambda: torch.tensor([[-7.0, 9.0], [-5.0, 7.0]]).repeat(1, 6))
    # 7 - 0.8 * 7 and 9 - 0.8 * 9, six joints each
    assert value(env, rewards.joint_torque_limits, soft_share=0.8) == [6 * (1.4 + 1.8), 0.0]
