"""Make a clip of motion for the G1 from key poses: a squat, a wave, and a jump with a half turn, 9 s in all.

    python scripts/make_motion.py configs/agents/rl/g1_motion/squat_wave_jump.npz

Key frames give the height of the centre of mass, the lean and the yaw of the base, the height and yaw of the feet, and
the arms' joints; in between, values follow cubic Hermite splines. The centre of mass stays above the middle of the
feet, and flies along a parabola; the base follows from it, and the legs from inverse kinematics.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import mujoco
import numpy as np
import torch

from embodichain.lab.gym.envs.tasks.rl import EmbodiedEnv, build_env
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.sim.kinematics import SerialChain
from embodichain.lab.sim.math import matrix_from_euler, matrix_from_quat, pose_from_pos_matrix, quat_from_euler
from embodichain.lab.sim.motion import MotionClip, clip_from_positions, link_bodies

Keys = Sequence[tuple[float, float] | tuple[float, float, float]]
"""Time, s; value; its rate of change, 0 by default."""

_FPS = 50.0
_GRAVITY = 9.81
_FLIGHT = 0.36  # s
_CROUCH = 0.16  # depth before take-off and after landing, m
_LEAD = 0.5  # yaw of the base before the feet's at take-off, and behind it at landing, rad
_SOLE = 0.035  # the middle of the sole ahead of the ankle, m
_SPEED = _GRAVITY * _FLIGHT / 2  # of take-off, m/s
_PUSH = 2 * _CROUCH / _SPEED  # duration of a push with constant acceleration, s
_SPIN = (math.pi - 2 * _LEAD) / _FLIGHT  # yaw rate of the base in flight, rad/s
_TAKE_OFF = 6.2
_LANDING = _TAKE_OFF + _FLIGHT
_END = 9.0


def spline(keys: Keys, times: np.ndarray) -> np.ndarray:
    """Return the values at times [T] of a cubic Hermite spline, constant before its first key and after its last."""
    at, value, rate = np.array([(*key, 0.0)[:3] for key in keys]).T
    i = np.clip(np.searchsorted(at, times, side="right") - 1, 0, len(at) - 2)
    length = at[i + 1] - at[i]
    s = np.clip((times - at[i]) / length, 0.0, 1.0)
    h = s * s * (3 - 2 * s)
    tangents = (s**3 - 2 * s**2 + s) * rate[i] + (s**3 - s**2) * rate[i + 1]
    return value[i] + h * (value[i + 1] - value[i]) + length * tangents


def key_frames(stand: float) -> dict[str, Keys]:
    """Return the key frames by name; arms' joints by theirs.

    Args:
        stand: height of the centre of mass while standing, m.
    """
    low, off = _TAKE_OFF - _PUSH, stand - 0.03
    down, up = off - _CROUCH, _LANDING + _PUSH
    turn_back = _LEAD - _SPIN * _PUSH / 2
    return {
        "height": [
            *[(0.5, stand), (1.4, stand - 0.2), (1.7, stand - 0.2), (2.6, stand)],
            *[(5.1, stand), (low - 0.1, down), (low, down), (_TAKE_OFF, off, _SPEED)],
            *[(_LANDING, off, -_SPEED), (up, down), (up + 0.2, down), (up + 1.1, stand)],
        ],
        "lean": [
            *[(0.5, 0.0), (1.4, 0.4), (1.7, 0.4), (2.6, 0.0)],
            *[(5.1, 0.0), (low - 0.1, 0.35), (low, 0.35), (_TAKE_OFF, 0.05)],
            *[(_LANDING, 0.1), (up, 0.35), (up + 0.2, 0.35), (up + 1.1, 0.0)],
        ],
        "yaw": [
            *[(5.1, 0.0), (low - 0.1, turn_back), (low, turn_back), (_TAKE_OFF, _LEAD, _SPIN)],
            *[(_LANDING, math.pi - _LEAD, _SPIN), (up, math.pi - turn_back), (up + 0.2, math.pi - turn_back)],
            (up + 1.1, math.pi),
        ],
        "feet_yaw": [(_TAKE_OFF, 0.0, 4.0), (_LANDING, math.pi, 4.0)],
        "feet_height": [(_TAKE_OFF, 0.0, 1.2), (_TAKE_OFF + _FLIGHT / 2, 0.135), (_LANDING, 0.0, -1.2)],
        "left_shoulder_pitch_joint": [
            *[(0.5, 0.2), (1.4, -0.9), (1.7, -0.9), (2.6, 0.2)],
            *[(5.1, 0.2), (low, 0.7), (_TAKE_OFF, -0.2), (_LANDING, -0.2), (up + 0.2, -0.4), (up + 1.1, 0.2)],
        ],
        "right_shoulder_pitch_joint": [
            *[(0.5, 0.2), (1.4, -0.9), (1.7, -0.9), (2.6, 0.2), (3.3, -0.9), (4.7, -0.9)],
            *[(5.3, 0.2), (low, 0.7), (_TAKE_OFF, -0.2), (_LANDING, -0.2), (up + 0.2, -0.4), (up + 1.1, 0.2)],
        ],
        "right_shoulder_roll_joint": [
            *[(2.6, -0.2), (3.3, -1.3), *wave(-1.3, 0.35, 3.3, 3), (4.7, -1.3), (5.3, -0.2)],
        ],
        "right_elbow_joint": [(2.6, 1.1), (3.3, -0.3), (4.7, -0.3), (5.3, 1.1)],
    }


def wave(middle: float, width: float, start: float, cycles: int, period: float = 0.46) -> Keys:
    """Return key frames of swings to both sides of a joint's angle, rad."""
    turns = range(1, 2 * cycles)
    return [(start + turn * period / 2, middle + (width if turn % 2 else -width)) for turn in turns]


def make_clip(env: EmbodiedEnv) -> MotionClip:
    """Return the clip for the robot of an environment, which stands in its initial pose on flat feet."""
    robot, model = env.robot, env.sim.model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    root = robot.base.root
    times = np.arange(0.0, _END + 1e-6, 1.0 / _FPS)
    feet = [int(model.body(f"{robot.uid}/{side}_ankle_roll_link").id) for side in ("left", "right")]
    # The frame of the motion has its origin on the ground, between the middles of both soles.
    soles = data.xpos[feet] - [*data.xpos[feet].mean(axis=0)[:2], 0.0] - [_SOLE, 0.0, 0.0]
    values = {name: spline(keys, times) for name, keys in key_frames(float(data.subtree_com[root, 2])).items()}
    lean = torch.tensor(np.stack([0 * times, values["lean"], values["yaw"]], axis=1)).float()
    turn = matrix_from_euler(torch.tensor(np.stack([0 * times, 0 * times, values["feet_yaw"]], axis=1)).float())
    rise = torch.tensor(np.stack([0 * times, 0 * times, values["feet_height"]], axis=1)).float()
    joint_pos = robot.body_data.default_qpos[0].repeat(len(times), 1)
    for j, name in enumerate(robot.joint_names):
        if name in values:
            joint_pos[:, j] = torch.tensor(values[name])
    pos = torch.tensor(data.xpos[root]).float() - torch.tensor([*data.subtree_com[root, :2], 0.0]).float()
    pos = pos.repeat(len(times), 1)
    wanted = torch.tensor(np.stack([0 * times, 0 * times, values["height"]], axis=1)).float()
    for _ in range(12):  # the base moves until the centre of mass is where it is wanted
        base = pose_from_pos_matrix(pos, matrix_from_euler(lean))
        reached = torch.ones(len(times), dtype=torch.bool)
        for side, foot, sole in zip(("left", "right"), feet, soles, strict=True):
            names = [f"{side}_hip_{axis}_joint" for axis in ("pitch", "roll", "yaw")]
            names += [f"{side}_knee_joint", f"{side}_ankle_pitch_joint", f"{side}_ankle_roll_joint"]
            ids = [robot.joint_names.index(name) for name in names]
            chain = SerialChain(
                model, [int(model.joint(f"{robot.uid}/{name}").id) for name in names], foot, np.eye(4), env.device, root
            )
            target = pose_from_pos_matrix(rise + turn @ torch.tensor(sole).float(), turn)
            success, joint_pos[:, ids] = chain.inverse(torch.linalg.solve(base, target), joint_pos[:, ids], 30)
            reached &= success
        row = torch.cat((pos, quat_from_euler(lean)), dim=1)
        clip = clip_from_positions(robot, model, _FPS, row.double().numpy(), joint_pos.double().numpy())
        pos = pos + wanted - torch.tensor(centres_of_mass(env, clip)).float()
    if not reached.all():
        raise SystemExit(f"a foot is out of reach at {times[~reached.numpy()]} s")
    return clip


def centres_of_mass(env: EmbodiedEnv, clip: MotionClip) -> np.ndarray:
    """Return the centre of mass in each frame, [T, 3] m."""
    model, robot = env.sim.model, env.robot
    bodies = link_bodies(robot, model)
    mass = model.body_mass[bodies]
    rotation = matrix_from_quat(torch.tensor(clip.body_quat_w)).numpy()
    centres = clip.body_pos_w + np.einsum("tbij,bj->tbi", rotation, model.body_ipos[bodies])
    return np.asarray(np.einsum("b,tbi->ti", mass, centres) / mass.sum())


def main() -> None:
    """Write the clip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the clip, .npz")
    args = parser.parse_args()
    with closing(build_env("G1FlatRL", base_env_cfg=default_cfg("g1_flat")())) as env:
        make_clip(env).save(args.out)


if __name__ == "__main__":
    main()
