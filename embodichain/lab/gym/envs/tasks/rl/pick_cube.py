"""Grasp a cube and lift it. Shapes: N environments, n in ``env_ids``."""

import math
import re
from typing import Any, TypeVar

import torch
from pydantic import PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.actions import DeltaQposTerm
from embodichain.lab.gym.envs.managers.base import ActionTerm
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.math import matrix_from_euler
from embodichain.lab.sim.objects import cached_per_state
from embodichain.utils import ConfigError

# How far above the height of success the reward is best, m.
_ABOVE = 0.02
# The scripted expert: how high above the cube the tool waits until it is over it, and the limits of being over it and
# around it, m and rad.
_HOVER, _OVER, _TURNED, _AROUND = 0.08, 0.015, 0.15, 0.012
_IK_ITERATIONS = 10
_OPEN, _CLOSED = -1.0, 1.0
# A grip's force along the fingers' line is at least this many times the force across; the fingers' friction is 1.2.
_STEEPEST = 2.0

Arm = TypeVar("Arm", bound=ActionTerm)


@register_env("PickCubeRL", max_episode_steps=80, override=True, default_cfg=default_cfg("pick_cube"))
class PickCubeEnv(EmbodiedEnv):
    """The rigid object ``cube`` is to be held at ``success_height`` between the fingers of the robot's gripper.

    Held means, for ``hold_steps`` steps running: the cube's centre is at least that high, both fingers press on it, and
    it is slower than ``success_speed``. A cube that is thrown through that height is not held.

    The observation has ``task/cube``, [N, 8]: from the tool to the cube's centre (m), by which angle the tool should
    turn about the vertical for the fingers to close on two faces (rad, within 45 degrees either way), the cube's
    velocity (m/s) and the height of its centre (m), in the environment's frame.
    """

    base_entries = (*EmbodiedEnv.base_entries, "task/cube")
    needed_uids = {"cube": "rigid object"}
    fingers: tuple[str, str] = ("gripper_finger1_link", "gripper_finger2_link")
    """The robot's links on the +x and on the -x side of the tool of control part ``arm``, with ``sense_contacts``."""
    success_height: PositiveFloat = 0.2
    """Height of the cube's centre, m."""
    success_speed: PositiveFloat = 0.1
    """Largest speed of the cube's centre, m/s."""
    hold_steps: PositiveInt = 10
    """Steps that the cube must be held."""
    grip_force: float = 2.0
    """Least force on each finger along the line between them, N."""
    shaped_reward: bool = True
    """Whether the reward shows the way to success; else it has the config's terms alone."""

    @classmethod
    @override
    def config_problems(cls, cfg: EmbodiedEnvCfg) -> list[str]:
        return finger_problems(cfg, cls.fingers, cls.__name__)

    def _init_sim_state(self) -> None:
        self.cube = self.sim.get_rigid_object("cube")
        self._rest_height = self.cube.initial_pos[2]
        self.held_steps = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.held_steps = self.held_steps.index_fill(0, env_ids, 0)

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        is_slow = torch.linalg.vector_norm(self.velocity(), dim=1) < self.success_speed
        is_up = self.cube.pos[:, 2] >= self.success_height
        self.held_steps = torch.where(self.is_gripped() & is_up & is_slow, self.held_steps + 1, 0)

    @cached_per_state
    def is_gripped(self) -> Tensor:
        """Return whether both fingers press on something between them, [N] bool."""
        return is_gripped(self, self.fingers, self.grip_force)

    @cached_per_state
    def velocity(self) -> Tensor:
        """Return the velocity of the cube's centre, [N, 3], m/s; do not write into it."""
        return self.cube.get_velocity()[:, :3]

    @cached_per_state
    def to_cube(self) -> Tensor:
        """Return the vector from the tool to the cube's centre, [N, 3], m; do not write into it."""
        return self.cube.pos - self.robot.get_eef_pose()[:, :3, 3]

    @cached_per_state
    def turn_to_faces(self) -> Tensor:
        """Return the angle about the vertical from the fingers' line to the nearest of the cube's axes, [N], rad."""
        # The horizontal parts of the cube's axes as complex numbers: the sum of their fourth powers is the same
        # whichever face is on top, and a quarter of its angle is the direction of an axis.
        pose, tool = self.cube.get_local_pose(to_matrix=True), self.robot.get_eef_pose()
        axes = torch.complex(pose[:, 0, :3], pose[:, 1, :3]).pow(4).sum(dim=1)
        return torch.angle(axes * torch.complex(tool[:, 0, 0], -tool[:, 1, 0]).pow(4)) / 4

    def _base_obs(self) -> dict[str, Tensor]:
        turn, height = self.turn_to_faces().unsqueeze(1), self.cube.pos[:, 2:]
        return super()._base_obs() | {"task/cube": torch.cat((self.to_cube(), turn, self.velocity(), height), dim=1)}

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and metrics.

        They are ``distance_to_cube`` (m), ``cube_height`` (of its centre, m), ``cube_speed`` (m/s), ``gripped`` (0, 1).
        """
        metrics = {
            "distance_to_cube": torch.linalg.vector_norm(self.to_cube(), dim=1),
            "cube_height": self.cube.pos[:, 2].clone(),
            "cube_speed": torch.linalg.vector_norm(self.velocity(), dim=1),
            "gripped": self.is_gripped().float(),
        }
        return self.held_steps >= self.hold_steps, self._never, metrics

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return penalties that are 0 at best if ``shaped_reward`` is set, plus the config's terms.

        They are -tanh(5 distance) for the way to the cube; -1/2 until the cube is gripped; -1 until it is lifted, too,
        and less the nearer it is to a little above ``success_height``; and costs of a tool that does not point straight
        down and of fingers that are not along the cube's faces.
        """
        reward = super().get_reward(obs, action, info)
        if not self.shaped_reward:
            return reward
        metrics = info["metrics"]
        reach = -torch.tanh(5.0 * metrics["distance_to_cube"])
        grip = 0.5 * (metrics["gripped"] - 1.0)
        best = self.success_height + _ABOVE
        lifted = (metrics["cube_height"] - self._rest_height) / (best - self._rest_height)
        lift = metrics["gripped"] * lifted.clamp(0.0, 1.0) - 1.0
        align = 0.5 * (-1.0 - self.robot.get_eef_pose()[:, 2, 2] - self.turn_to_faces().abs() / math.pi)
        info["rewards"] |= {"reach": reach, "grip": grip, "lift": lift, "align": align}
        return reward + reach + grip + lift + align

    def expert_action(self) -> Tensor:
        """Return the action of a scripted expert, [N, 7] for ``DeltaQposTerm`` of the arm and ``GripperTerm``.

        With open fingers the tool moves above the cube, turns to its faces, descends and grips it; then it lifts.
        """
        arm = expert_arm(self, DeltaQposTerm)
        aside = torch.linalg.vector_norm(self.to_cube()[:, :2], dim=1)
        is_over = (aside < _OVER) & (self.turn_to_faces().abs() < _TURNED)
        is_around = torch.linalg.vector_norm(self.to_cube(), dim=1) < _AROUND
        height = self.cube.pos[:, 2] + torch.where(is_over, 0.0, _HOVER)
        height = torch.where(self.is_gripped(), self.success_height + _ABOVE, height)
        present = self.robot.get_qpos("arm")
        _, target = self.robot.compute_ik(self._expert_pose(height), present, "arm", _IK_ITERATIONS)
        move = (target - present) / arm.scale
        # The fastest joint at its limit, and the others in proportion, so that the tool keeps its way.
        move = move / move.abs().amax(dim=1, keepdim=True).clamp(min=1.0)
        return torch.cat((move, torch.where(is_around | self.is_gripped(), _CLOSED, _OPEN).unsqueeze(1)), dim=1)

    def _expert_pose(self, height: Tensor) -> Tensor:
        """Return the pose of the tool over the cube at a height [N], straight down, along its faces, [N, 4, 4]."""
        tool = self.robot.get_eef_pose()
        yaw = torch.atan2(tool[:, 1, 0], tool[:, 0, 0]) + self.turn_to_faces()
        still = torch.zeros_like(yaw)
        pose = tool.clone()
        pose[:, :3, :3] = matrix_from_euler(torch.stack((still + math.pi, still, yaw), dim=1))
        pose[:, :2, 3], pose[:, 2, 3] = self.cube.pos[:, :2], height
        return pose


def is_gripped(env: EmbodiedEnv, fingers: tuple[str, str], grip_force: float) -> Tensor:
    """Return whether both fingers press on something between them, [N] bool; ``PickCubeEnv`` explains the arguments."""
    line = env.robot.get_eef_pose()[:, :3, 0]
    one, two = fingers
    return _is_pressed(env, one, line, grip_force) & _is_pressed(env, two, -line, grip_force)


def finger_problems(cfg: EmbodiedEnvCfg, fingers: tuple[str, str], task: str) -> list[str]:
    """Return why a config does not let :func:`is_gripped` measure a task's grip, one per line.

    The config's ``extensions`` may name other fingers than the task's.
    """
    given = [] if cfg.robot is None else cfg.robot.sense_contacts
    named = cfg.extensions.get("fingers", fingers)
    missing = [link for link in named if not any(re.fullmatch(pattern, link) for pattern in given)]
    return [f"robot.sense_contacts: '{link}' is missing, whose grip {task} measures" for link in missing]


def expert_arm(env: EmbodiedEnv, kind: type[Arm]) -> Arm:
    """Return the first action term, for a scripted expert that acts by one of this kind, and then the gripper's."""
    arm = next(iter(env.action_manager.terms.values()))
    if not isinstance(arm, kind):
        raise ConfigError(f"env.actions: the scripted expert acts by {kind.__name__}, got {type(arm).__name__}")
    return arm


def _is_pressed(env: EmbodiedEnv, finger: str, outwards: Tensor, grip_force: float) -> Tensor:
    """Return whether a finger is pushed along a direction [N, 3], [N] bool."""
    force = env.sim.get_contact_force(env.robot.uid, finger)
    along = (force * outwards).sum(dim=1)
    across = torch.linalg.vector_norm(force - along.unsqueeze(1) * outwards, dim=1)
    # The ground under fingers that close pushes them outwards too, by friction, but upwards more.
    return (along > grip_force) & (along > _STEEPEST * across)
