"""Bring the tool to a pose. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.cfg import MarkerCfg
from embodichain.lab.sim.math import quat_from_matrix, rotation_vector
from embodichain.lab.sim.objects import cached_per_state
from embodichain.lab.sim.shapes import CubeCfg

# Three bars along the goal's axes show its pose.
_BAR, _THICKNESS = 0.08, 0.008
_COLOURS = ((0.85, 0.2, 0.2, 0.9), (0.2, 0.7, 0.25, 0.9), (0.2, 0.35, 0.85, 0.9))


@register_env("ReachRL", max_episode_steps=60, override=True, default_cfg=default_cfg("reach"))
class ReachEnv(EmbodiedEnv):
    """The tool of control part ``arm`` is to come to ``goal_pose``: position and orientation.

    The entry ``task/pose_error`` of the observation is how far it still is, [N, 6]: position (m) and rotation vector
    (rad) from the tool to the goal, in the environment's frame.
    """

    added_uids = ("goal_x", "goal_y", "goal_z")
    base_entries = (*EmbodiedEnv.base_entries, "task/pose_error")
    pos_threshold: PositiveFloat = 0.01
    """Largest distance of success, m."""
    rot_threshold: PositiveFloat = 0.05
    """Largest angle of success, rad."""
    rot_scale: PositiveFloat = 0.2
    """Metres of distance that a radian counts as in the reward, m/rad."""
    goal_pose: Tensor
    """[N, 4, 4], stored by the event ``randomize_target_pose``."""

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        for axis, colour in zip("xyz", _COLOURS, strict=True):
            size = tuple(_BAR if name == axis else _THICKNESS for name in "xyz")
            self.sim.add_marker(MarkerCfg(f"goal_{axis}", shape=CubeCfg(size=size), rgba=colour))  # type: ignore[arg-type]

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        pose = self.goal_pose.index_select(0, env_ids)
        quat = quat_from_matrix(pose[:, :3, :3])
        for column, axis in enumerate("xyz"):
            marker = self.sim.get_marker(f"goal_{axis}")
            marker.set_pos(pose[:, :3, 3] + 0.5 * _BAR * pose[:, :3, column], env_ids)
            marker.set_quat(quat, env_ids)

    def pose_error(self) -> Tensor:
        """Return position (m) and rotation vector (rad) from the tool to the goal, [N, 6]; do not write into it."""
        return self._error_to(self.goal_pose)

    @cached_per_state
    def _error_to(self, goal: Tensor) -> Tensor:
        tool = self.robot.get_eef_pose()
        turn = rotation_vector(goal[:, :3, :3] @ tool[:, :3, :3].mT)
        return torch.cat((goal[:, :3, 3] - tool[:, :3, 3], turn), dim=1)

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs = super()._extend_obs(obs)
        obs["task/pose_error"] = self.pose_error()
        return obs

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and the metrics ``distance_to_goal`` (m) and ``angle_to_goal`` (rad)."""
        distance, angle = torch.linalg.vector_norm(self.pose_error().unflatten(1, (2, 3)), dim=2).unbind(1)
        success = (distance < self.pos_threshold) & (angle < self.rot_threshold)
        return success, self._never, {"distance_to_goal": distance, "angle_to_goal": angle}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return -tanh(3 (distance + rot_scale angle)), so that every step costs, plus the config's terms."""
        reward = super().get_reward(obs, action, info)
        metrics = info["metrics"]
        far = -torch.tanh(3.0 * (metrics["distance_to_goal"] + self.rot_scale * metrics["angle_to_goal"]))
        info["rewards"]["closeness"] = far
        return reward + far
