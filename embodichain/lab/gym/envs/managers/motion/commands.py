"""The command: clips, their frames, and where they start."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import CommandTerm, TermEnv
from embodichain.lab.sim import motion
from embodichain.lab.sim.math import quat_angle, quat_apply, quat_from_euler, quat_inverse, quat_mul
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.motion import MotionClip
from embodichain.lab.sim.objects import StateCache, cached_per_state
from embodichain.utils import ConfigError, doors
from embodichain.utils.device import constant

__all__ = ["MotionCommand"]


TrackingError = Literal["anchor_pos", "anchor_rot", "body_pos", "body_rot", "body_lin_vel", "body_ang_vel", "joint_pos"]
_STATE = ("pos", "quat", "lin_vel", "ang_vel")


@dataclass(frozen=True)
class _Clips:
    """The frames of all clips, one clip after the other."""

    joints: Tensor
    """[T, 2 J], positions and velocities."""
    links: Tensor
    """[T, links, 13], states of all links of the robot."""
    last: Tensor
    """[T] int64, the last frame of the frame's clip."""
    part: Tensor
    """[T] int64, the frame's part, 0 to K - 1."""
    is_first: Tensor
    is_last: Tensor
    """[T] bool, whether the frame is its clip's first, or last."""

    @classmethod
    def of(cls, clips: Sequence[MotionClip], part_frames: float, device: torch.device) -> Self:
        """Return the frames of clips, each in equal parts of about ``part_frames`` frames."""

        def joined(*names: str) -> Tensor:
            rows = [np.concatenate([getattr(clip, name) for name in names], axis=-1) for clip in clips]
            return torch.tensor(np.concatenate(rows), dtype=torch.float32, device=device)

        last, part = torch.zeros(2, 0, dtype=torch.int64)
        for frames in (len(clip.joint_pos) for clip in clips):
            parts = max(1, round(frames / part_frames))
            part = torch.cat((part, torch.arange(frames) * parts // frames + (int(part[-1]) + 1 if len(part) else 0)))
            last = torch.cat((last, torch.full((frames,), len(last) + frames - 1)))
        is_last = last == torch.arange(len(last))
        joints, links = joined("joint_pos", "joint_vel"), joined(*(f"body_{name}_w" for name in _STATE))
        return cls(joints, links, *(of.to(device) for of in (last, part, is_last.roll(1), is_last)))


class MotionCommand(CommandTerm):
    """Clips of motion that the robot is to follow frame by frame: the present frame's joints, [N, 2 J].

    An episode begins at a drawn frame, in the state of that frame with noise. After the clip's end within an episode,
    and after ``resampling_time``, another frame is drawn, and the robot moved to it after the step's rewards.

    Args:
        files: clips, ``.npz`` or ``.csv`` as ``embodichain.lab.sim.motion.load_clip`` reads them; a relative path
            begins at the working directory, or at the folder of the shipped ``configs``.
        anchor: the link that places the robot.
        bodies: names or regular expressions of the links to compare; None: all.
        csv_fps: frames per second of ``.csv`` files.
        joint_names: names of the files' joints; None: the robot's, in its order.
        start: ``uniform``: any frame, or as the curriculum ``motion_failures`` weighs them; ``beginning``: a clip's
            first.
        part_length: length of the parts of clips in which a curriculum counts failures, s.
        joint_noise: largest change of the joints' first positions, rad.
        pos_noise: largest change of the base's first position along each axis, m.
        rot_noise: largest change of the base's first roll, pitch and yaw, rad.
        vel_noise: largest change of the base's first velocities, m/s and rad/s.
    """

    @override
    def configure(
        self,
        files: list[str],
        anchor: str,
        bodies: list[str] | None = None,
        csv_fps: PositiveFloat | None = None,
        joint_names: list[str] | None = None,
        start: Literal["uniform", "beginning"] = "uniform",
        part_length: PositiveFloat = 1.0,
        joint_noise: NonNegativeFloat = 0.0,
        pos_noise: NonNegativeFloat = 0.0,
        rot_noise: NonNegativeFloat = 0.0,
        vel_noise: NonNegativeFloat = 0.0,
    ) -> None:
        env, robot, model, part_frames = self.env, self.env.robot, self.env.sim.model, part_length / self.env.step_dt
        if not robot.base.is_free or env.sim.terrain is not None:
            raise ConfigError("func: MotionCommand needs a robot with a free base (robot.fix_base) on a plane")
        self.size = 2 * robot.dof
        clips = [motion.load_clip(doors.shipped_path(Path(file)), robot, model, csv_fps, joint_names) for file in files]
        self.clips = _Clips.of([clip.resampled(1.0 / env.step_dt) for clip in clips], part_frames, env.device)
        named = match_names(bodies or [".*"], robot.link_names, "bodies", "link")
        self.names: list[str] = named + match_names([anchor], robot.link_names, "anchor", "link")
        """Names of the B bodies and, last, of the anchor."""
        links = [robot.link_names.index(name) for name in self.names]
        self._links = torch.tensor(links, device=env.device)
        self._bodies = torch.tensor(motion.link_bodies(robot, model), device=env.device)[self._links]
        noise = [joint_noise] * robot.dof + [pos_noise] * 3 + [rot_noise] * 3 + [vel_noise] * 6
        self._noise = torch.tensor(noise, device=env.device)
        self.state_cache: StateCache = StateCache(env.sim.backend)
        """Cache of values computed from the present state."""
        self.frame: Tensor = torch.zeros_like(env.all_env_ids)
        """[N] int64, the present frame of the T."""
        self.first: Tensor = self.frame
        """[N] int64, the frame at which the motion was drawn."""
        self.starts: Tensor = (~self.clips.is_last if start == "uniform" else self.clips.is_first).float()
        """[T], 1 for frames at which a motion may start, else 0."""
        self.weights: Tensor = self.starts
        """[T], weight of a start at each frame."""

    @override
    def draw(self, env_ids: Tensor) -> Tensor:
        share, cumulative = self.env.random.uniform(env_ids, 0.0, 1.0, 1)[:, 0], torch.cumsum(self.weights.double(), 0)
        frame = torch.searchsorted(cumulative, share * cumulative[-1], right=True)
        self.frame, self.first = (old.index_copy(0, env_ids, frame) for old in (self.frame, self.first))
        left = (self.clips.last[frame] - frame + 1) * self.env.step_dt
        self.time_left = self.time_left.index_copy(0, env_ids, torch.minimum(self.time_left[env_ids], left))
        noise = self._noise * self.env.random.uniform(env_ids, -1.0, 1.0, len(self._noise))
        self.place(env_ids, frame, noise)
        return self.clips.joints[frame]

    def place(self, env_ids: Tensor, frame: Tensor, noise: Tensor) -> None:
        """Put the robots of environments [n] into the states of frames [n], changed by noise [n, J + 12].

        Noise is of the joints' positions, and of the base's position, roll, pitch and yaw, and velocities.
        """
        robot, dof = self.env.robot, self.env.robot.dof
        change, pos, euler, vel = noise.split((dof, 3, 3, 6), dim=1)
        qpos, qvel = self.clips.joints[frame].split(dof, dim=1)
        root = self.clips.links[frame, 0]
        quat = quat_mul(quat_from_euler(euler), root[:, 3:7])
        linear, angular = (root[:, 7:] + vel).split(3, dim=1)
        robot.set_local_pose(torch.cat((root[:, :3] + pos, quat), dim=1), env_ids)
        robot.base.set_velocity(torch.cat((linear, quat_apply(quat_inverse(quat), angular)), dim=1), env_ids)
        low, high = robot.body_data.qpos_limits[0].unbind(1)
        robot.set_qpos(torch.clamp(qpos + change, low, high), env_ids=env_ids, target=False)
        robot.set_qvel(qvel, env_ids=env_ids)

    @override
    def follow(self) -> None:
        self.command = self.joints()

    @override
    def advance(self) -> None:
        self.tracked = self.command
        self.time_left = self.time_left - self.env.step_dt
        self.frame = torch.minimum(self.frame + 1, self.clips.last[self.frame])
        self.follow()

    @override
    def move(self, done: Tensor) -> Tensor:
        stepping = torch.zeros_like(done).index_fill(0, self.env.stepping_ids, True)
        is_due = (self.time_left < 0.5 * self.env.step_dt) & stepping & ~done
        with self.env.choose(is_due) as due:
            if len(due):
                self._draw(due)
        self.follow()
        return is_due

    def joints(self, ahead: int = 0) -> Tensor:
        """Return joint positions and velocities of the reference ``ahead`` frames later, or at its end, [N, 2 J]."""
        return self.clips.joints[torch.minimum(self.frame + ahead, self.clips.last[self.frame])]

    def reference(self) -> Tensor:
        """Return the states of the reference's bodies and, last, of its anchor, [N, B + 1, 13]."""
        return self._reference(self.frame)

    @cached_per_state
    def _reference(self, frame: Tensor) -> Tensor:
        return self.clips.links[frame[:, None], self._links]

    @cached_per_state
    def robot(self) -> Tensor:
        """Return the states of the robot's bodies and, last, of its anchor, [N, B + 1, 13]."""
        return motion.body_states(self.env.sim.backend, self._bodies)

    def error(self, of: TrackingError) -> Tensor:
        """Return errors of tracking: [N, J, 1] of joints, [N, B, 1] of rotations, [N, B, 3] of others; anchor: B = 1.

        They are in m, rad (the angle between two rotations), m/s and rad/s. ``body_pos`` and ``body_rot`` are to the
        aligned bodies, all others to the reference in the world.
        """
        if of == "joint_pos":
            return (self.env.robot.get_qpos() - self.joints()[:, : self.env.robot.dof])[..., None]
        robot, reference = self.robot(), self.reference()
        if of in ("body_pos", "body_rot"):
            reference = self._aligned(self.frame)
        rows = slice(-1, None) if of.startswith("anchor") else slice(-1)
        if of.endswith("rot"):
            return quat_angle(robot[:, rows, 3:7], reference[:, rows, 3:7])[..., None]
        first = {"pos": 0, "lin_vel": 7, "ang_vel": 10}[of.split("_", 1)[1]]
        columns = slice(first, first + 3)
        return robot[:, rows, columns] - reference[:, rows, columns]

    @cached_per_state
    def _aligned(self, frame: Tensor) -> Tensor:
        """Return positions and quaternions of the aligned bodies and, last, of the anchor, [N, B + 1, 7]."""
        pos, quat = self.reference()[..., :7].split((3, 4), dim=2)
        own = self.robot()[:, -1:]
        turn = quat_mul(own[..., 3:7], quat_inverse(quat[:, -1:]))
        turn = normalize(turn * constant((1.0, 0.0, 0.0, 1.0), turn.device, torch.float32), dim=-1)  # its yaw
        place = torch.cat((own[..., :2], pos[:, -1:, 2:]), dim=2)
        return torch.cat((place + quat_apply(turn, pos - pos[:, -1:]), quat_mul(turn, quat)), dim=2)


def motion_of(env: TermEnv) -> MotionCommand:
    """Return the command ``motion``; ConfigError where there is none or it is another."""
    term = env.command_manager.get_term("motion")
    if not isinstance(term, MotionCommand):
        raise ConfigError(f"env.commands.motion: must be a MotionCommand, got {type(term).__name__}")
    return term
