"""Imitation of motions by hand, on the shipped clip and robot. Shapes: N environments, J = 19 joints."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.motion import observations, terminations
from embodichain.lab.gym.envs.managers.motion.commands import TrackingError, motion_of
from embodichain.lab.gym.envs.managers.motion.rewards import motion_tracking_exp
from embodichain.lab.sim.math import quat_from_euler, quat_mul
from embodichain.utils import ConfigError, doors
from embodichain.utils.observations import flat_input
from embodichain.utils.utility import load_json
from tests.lab.gym.envs.test_base_env import leaves
from tests.lab.scenes import env_of

CONFIG = doors.TASK_CONFIGS / "g1_motion" / "gym_config.json"
CLIP = str(CONFIG.with_name("squat_wave_jump.npz"))
LAST = 450  # frame of the clip, 9 s at 50 frames per second
NOISELESS = {f"{name}_noise": 0.0 for name in ("joint", "pos", "rot", "vel")}
UNKNOWN: Any = None  # arguments that the terms do not read


def motion_env(num_envs: int = 1, **params: Any) -> EmbodiedEnv:
    data = load_json(CONFIG)
    data["env"]["sim_cfg"]["num_threads"] = 1
    data["env"]["commands"]["motion"]["params"] |= NOISELESS | params
    env = env_of(data, num_envs)
    env.reset(seed=1)
    return env


@pytest.fixture(scope="module")
def env() -> EmbodiedEnv:
    return motion_env()


def place(env: EmbodiedEnv, frame: int = 100, **change: Any) -> None:
    """Put the robot into a frame's state, changed by numbers: joint, pos, euler, lin_vel, ang_vel (world frame)."""
    motion, ids = motion_of(env), env.all_env_ids
    motion.frame = torch.full_like(ids, frame)
    root = motion.clips.links[motion.frame, 0]
    noise = torch.zeros(1, env.robot.dof + 12)
    for part, columns in {
        "joint": slice(19),
        "pos": slice(19, 22),
        "lin_vel": slice(25, 28),
        "ang_vel": slice(28, 31),
    }.items():
        noise[:, columns] = torch.tensor(change.get(part, [0.0]))
    motion.place(ids, motion.frame, noise)
    if "euler" in change:  # about the base's origin, after its own rotation
        turn = quat_from_euler(torch.tensor([change["euler"]]))
        env.robot.set_local_pose(torch.cat((root[:, :3], quat_mul(turn, root[:, 3:7])), dim=1), ids)


def reward(env: EmbodiedEnv, of: TrackingError, std: float) -> float:
    return float(motion_tracking_exp(env, of=of, std=std))


STDS: dict[TrackingError, float] = {
    "anchor_pos": 0.3,
    "anchor_rot": 0.4,
    "body_pos": 0.3,
    "body_rot": 0.4,
    "body_lin_vel": 2.0,
    "joint_pos": 0.3,
}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, {}),
        # Drift in the plane moves the anchor alone: aligned bodies move with it.
        ({"pos": [0.3, 0.0, 0.0]}, {"anchor_pos": 0.3}),
        # The height is not aligned.
        ({"pos": [0.0, 0.0, 0.1]}, {"anchor_pos": 0.1, "body_pos": 0.1}),
        ({"lin_vel": [0.0, 2.0, 0.0]}, {"body_lin_vel": 2.0}),
        ({"joint": [0.2] * 19}, {"joint_pos": 0.2}),
    ],
)
def test_reward_is_the_kernel_of_the_error(env: EmbodiedEnv, change: dict[str, Any], errors: dict[str, float]) -> None:
    place(env, **change)
    names: list[TrackingError] = ["joint_pos"] if "joint" in change else [*STDS]
    for name in names:
        expected = math.exp(-((errors.get(name, 0.0) / STDS[name]) ** 2))
        assert reward(env, name, STDS[name]) == pytest.approx(expected, abs=1e-3), name


def test_yaw_turns_the_anchor_and_leaves_aligned_bodies(env: EmbodiedEnv) -> None:
    place(env, frame=0, euler=[0.0, 0.0, 0.4])
    assert reward(env, "anchor_rot", 0.4) == pytest.approx(math.exp(-1.0), abs=1e-3)
    assert reward(env, "body_rot", 0.4) == pytest.approx(1.0, abs=1e-3)
    assert reward(env, "body_pos", 0.3) == pytest.approx(1.0, abs=1e-3)
    # Seen from the robot, the reference's anchor is turned back by 0.4 rad: columns (cos, -sin, 0), (sin, cos, 0).
    place(env, frame=0, euler=[0.0, 0.0, 0.4])
    c, s = math.cos(0.4), math.sin(0.4)
    found = observations.motion_anchor_pose(env)[0, 3:]
    torch.testing.assert_close(found, torch.tensor([c, s, -s, c, 0.0, 0.0]), atol=2e-3, rtol=0)


def test_spin_of_the_base_adds_to_each_bodys_rate(env: EmbodiedEnv) -> None:
    place(env, frame=0, ang_vel=[0.0, 0.0, 2.0])
    assert reward(env, "body_ang_vel", 2.0) == pytest.approx(math.exp(-1.0), abs=1e-3)


def test_terminations_are_beyond_their_limits(env: EmbodiedEnv) -> None:
    for height, is_beyond in ((0.24, False), (0.26, True), (-0.26, True)):
        place(env, pos=[0.0, 0.0, height])
        for body in ("torso_link", ".*_ankle_roll_link"):
            assert bool(terminations.motion_body_heights(env, [body], limit=0.25)) == is_beyond
    # At frame 0 the torso is upright: its axis falls from 1 to cos(angle) = 0.2 at 1.369 rad.
    for angle, is_beyond in ((1.35, False), (1.39, True)):
        place(env, frame=0, euler=[0.0, angle, 0.0])
        assert bool(terminations.motion_anchor_tilt(env, limit=0.8)) == is_beyond


def test_first_observation_is_of_the_drawn_frame() -> None:
    env = motion_env(8)
    obs, info = env.reset(seed=5)
    motion = motion_of(env)
    frame = motion.frame
    assert len(frame.unique()) > 4
    default = env.robot.body_data.default_qpos
    torch.testing.assert_close(obs["joints", "pos"], motion.clips.joints[frame, :19] - default)
    torch.testing.assert_close(obs["joints", "vel"], motion.clips.joints[frame, 19:])
    torch.testing.assert_close(motion.robot(), motion.reference(), atol=2e-4, rtol=1e-4)
    assert float(info["metrics"]["body_error"].max()) < 1e-4
    ahead = motion.clips.joints[(frame + 5).clamp(max=LAST)]
    torch.testing.assert_close(obs["motion", "ahead"][:, 38:76], ahead)


def test_draws_of_eight_are_those_of_one_at_a_time() -> None:
    noise = {"joint_noise": 0.1, "pos_noise": 0.1, "rot_noise": 0.1, "vel_noise": 0.1}

    def drawn(num_envs: int, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        env = motion_env(num_envs, **noise)
        if first:
            env.number_envs(first, 1)
        env.reset(seed=3)
        return motion_of(env).frame, env.sim.backend.qpos.clone(), env.sim.backend.qvel.clone()

    some = [0, 3, 7]
    together, alone = drawn(8), [drawn(1, first) for first in some]
    for all_of_them, each in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(all_of_them[some], torch.cat(each))


def test_beginning_starts_at_the_first_frame_of_any_clip() -> None:
    env = motion_env(16, start="beginning", files=[CLIP, CLIP])
    assert motion_of(env).frame.unique().tolist() == [0, LAST + 1]


def test_clip_that_ends_within_an_episode_is_drawn_anew() -> None:
    env = motion_env(2)
    env.success_terminates = False
    motion = motion_of(env)
    motion.frame[0], motion.time_left[0] = LAST - 1, 2 * env.step_dt
    _, _, terminated, truncated, info = env.step(torch.zeros(2, 19))
    assert info["success"].tolist() == [True, False]  # at the last frame
    assert not (terminated | truncated).any()
    obs, _, _, _, info = env.step(torch.zeros(2, 19))
    assert int(motion.frame[0]) == int(motion.first[0])
    assert float(motion.error("body_pos")[0].norm(dim=1).mean()) < 1e-4  # the robot is there, and is observed there
    torch.testing.assert_close(flat_input(obs), flat_input(env.get_obs()))
    assert float(info["metrics"]["body_error"][0]) > 1e-3  # the step made is compared with the last frame
    assert float(info["metrics"]["tracked"][0]) == 1.0


def test_robot_that_waits_for_the_end_of_a_chunk_is_not_moved() -> None:
    one, two = motion_env(2), motion_env(2)
    for env in (one, two):
        env.success_terminates = True
        motion_of(env).frame[0], motion_of(env).time_left[0] = LAST - 1, 2 * env.step_dt
    *_, info = one.step_chunk(torch.zeros(2, 6, 19))
    *_, expected = two.step(torch.zeros(2, 19))
    for name, value in leaves(expected["final_obs"]).items():
        assert torch.equal(leaves(info["final_obs"])[name][0], value[0]), name


def test_end_of_the_clip_is_success_and_ends_the_episode() -> None:
    env = motion_env()
    motion = motion_of(env)
    motion.frame[:], motion.first[:], motion.time_left[:] = LAST - 1, LAST - 11, 2 * env.step_dt
    _, _, terminated, _, info = env.step(torch.zeros(1, 19))
    assert bool(terminated)
    assert bool(info["success"])
    assert float(info["metrics"]["tracked"]) == 1.0


def test_zero_action_aims_at_the_next_frame_and_its_velocity(env: EmbodiedEnv) -> None:
    place(env, frame=310)
    targets = env.action_manager.terms["joint_position"].process_action(torch.zeros(1, 19))["qpos"]
    pos, vel = motion_of(env).clips.joints[311:312].split(19, dim=1)
    knee = env.robot.joint_names.index("left_knee_joint")  # stiffness 150, damping 4
    torch.testing.assert_close(targets[:, knee], pos[:, knee] + 4.0 / 150.0 * vel[:, knee])


def test_failures_weigh_the_starts_before_them() -> None:
    env = motion_env(4, part_length=4.51)  # two parts, of frames 0 to 225 and 226 to 450
    motion, term = motion_of(env), env.curriculum_manager.functors[0]
    torch.testing.assert_close(motion.weights[:450] * 450, torch.ones(450))  # no failures: uniform
    motion.frame = torch.tensor([300, 400, LAST, 10])
    env.elapsed_steps = torch.tensor([5, 5, 5, 1000])
    rate = term(env, env.all_env_ids, uniform_share=0.2, episodes=4, before=0.5)
    # Two of four fail, both in part 1; one is at the clip's end, one at the time limit. Weight of the new: 1 - 0.75^4.
    assert float(rate) == pytest.approx(0.5 * (1 - 0.75**4))
    # s is f for frames of part 1 (1 + 0.5 + 0.25 of it at the clip's end), and b f + b^2 f before.
    weights = motion.weights / motion.weights[0]
    uniform, s = 0.2 / 450, torch.tensor([0.75] * 226 + [1.75] * 224)
    expected = uniform + 0.8 * s / s.sum()
    torch.testing.assert_close(weights[:450], expected / expected[0], atol=1e-4, rtol=1e-4)
    assert float(motion.weights[LAST]) == 0.0


def test_starts_in_a_part_have_one_weight() -> None:
    env = motion_env(4, part_length=1.3)  # 7 parts, of 64 or 65 frames
    motion, term = motion_of(env), env.curriculum_manager.functors[0]
    motion.frame, env.elapsed_steps = torch.full((4,), 250), torch.full((4,), 5)
    term(env, env.all_env_ids)
    parts = motion.clips.part[:LAST]
    for part in range(7):
        weights = motion.weights[:LAST][parts == part]
        assert torch.equal(weights, weights[:1].expand_as(weights))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"files": ["no.npz"]}, "no.npz"),
        ({"anchor": "torso"}, "torso_link"),
    ],
)
def test_wrong_parameter_is_an_error(params: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, FileNotFoundError), match=message):
        motion_env(**params)


def test_every_observation_has_a_recipe_for_export() -> None:
    for name in ("motion_joints_ahead", "motion_anchor_pose", "motion_bodies", "motion_phase"):
        (measurement,) = getattr(observations, name).recipe(UNKNOWN).measurements
        assert measurement.name == name
