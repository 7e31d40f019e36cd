"""Tasks of single motions: balance a pole, push a cube, reach a pose, open a drawer.

Shapes: N environments, n in ``env_ids``.
"""

from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.config.env_config import ConfigFile
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.state_values import range_to_target
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.cfg import MarkerCfg
from embodichain.lab.sim.math import quat_from_matrix, rotation_vector
from embodichain.lab.sim.objects import cached_per_state
from embodichain.lab.sim.shapes import CubeCfg, CylinderCfg
from embodichain.utils import doors


def default_cfg(name: str) -> ConfigFile:
    """Return the shipped environment config of a task's folder; it is read when called."""
    return ConfigFile(doors.TASK_CONFIGS / name / "gym_config.json")


@register_env("CartPoleRL", max_episode_steps=500, override=True, default_cfg=default_cfg("basic/cart_pole"))
class CartPoleEnv(EmbodiedEnv):
    """The pole, control part ``hand``, is to stay upright until the time limit.

    Success means that the pole is upright at the moment; it does not end the episode, so that an episode succeeds when
    the pole is still upright at its last step. Falling beyond ``fail_angle`` ends it.
    """

    success_terminates = False
    success_angle: PositiveFloat = 0.1
    """Largest lean that counts as upright, rad."""
    fail_angle: PositiveFloat = 0.5
    """Lean at which the pole has fallen, rad."""

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure, and the metric ``pole_angle`` (rad)."""
        angle = self.robot.get_qpos("hand")[:, 0].abs()
        return angle < self.success_angle, angle > self.fail_angle, {"pole_angle": angle}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return 1 - (angle / fail_angle)^2 for standing, [0, 1], plus the config's terms."""
        reward = super().get_reward(obs, action, info)
        upright = (1.0 - (info["metrics"]["pole_angle"] / self.fail_angle).square()).clamp(min=0.0)
        info["rewards"]["upright"] = upright
        return reward + torch.where(info["fail"], torch.zeros_like(upright), upright)


@register_env("RobotRL", override=True)
class RobotEnv(EmbodiedEnv):
    """A robot and a task of a config's terms alone, such as a drone that hovers; it is measured by its return."""


class _GoalEnv(EmbodiedEnv):
    """A task with markers at ``goal_pose``."""

    goal_pose: Tensor
    """[N, 4, 4], stored by the event ``randomize_target_pose``."""

    def _show_goal(self, env_ids: Tensor) -> None:
        """Put the markers of environments [n] at their goals."""
        raise NotImplementedError

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self._show_goal(env_ids)

    def _apply_interval_events(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> Tensor | None:
        changed = super()._apply_interval_events(reward, done, info)
        if changed is not None:
            self._show_goal(self.all_env_ids)
        return changed


_MARKER_HEIGHT = 0.002


@register_env("PushCubeRL", max_episode_steps=80, override=True, default_cfg=default_cfg("push_cube"))
class PushCubeEnv(_GoalEnv):
    """The rigid object ``cube`` is to come within ``success_threshold`` (m, horizontally) of ``goal_pose``.

    The goal is drawn as a disc of the threshold's radius on the ground.
    """

    added_uids = ("goal",)
    needed_uids = {"cube": "rigid object"}
    success_threshold: PositiveFloat = 0.05

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        disc = CylinderCfg(radius=self.success_threshold, height=_MARKER_HEIGHT)
        self.sim.add_marker(MarkerCfg("goal", shape=disc))

    def _show_goal(self, env_ids: Tensor) -> None:
        pos = self.goal_pose[:, :3, 3].index_select(0, env_ids)
        pos[:, 2].fill_(_MARKER_HEIGHT / 2)
        self.sim.get_marker("goal").set_pos(pos, env_ids)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and the metric ``distance_to_goal`` (m)."""
        distance = range_to_target(self, "cube", "goal_pose", use_xy_only=True)
        return distance < self.success_threshold, self._never, {"distance_to_goal": distance}


# Three bars along the goal's axes show its pose.
_BAR, _THICKNESS = 0.08, 0.008
_COLOURS = ((0.85, 0.2, 0.2, 0.9), (0.2, 0.7, 0.25, 0.9), (0.2, 0.35, 0.85, 0.9))


@register_env("ReachRL", max_episode_steps=60, override=True, default_cfg=default_cfg("reach"))
class ReachEnv(_GoalEnv):
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

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        for axis, colour in zip("xyz", _COLOURS, strict=True):
            size = tuple(_BAR if name == axis else _THICKNESS for name in "xyz")
            self.sim.add_marker(MarkerCfg(f"goal_{axis}", shape=CubeCfg(size=size), rgba=colour))  # type: ignore[arg-type]

    def _show_goal(self, env_ids: Tensor) -> None:
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

    def _base_obs(self) -> dict[str, Tensor]:
        return super()._base_obs() | {"task/pose_error": self.pose_error()}

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


# From this speed on, opening the drawer faster is not rewarded more, m/s.
_FAST = 0.2


@register_env("OpenDrawerRL", max_episode_steps=100, override=True, default_cfg=default_cfg("open_drawer"))
class OpenDrawerEnv(EmbodiedEnv):
    """The drawer ``joint`` of articulation ``cabinet`` is to be open by ``success_opening``.

    The tool of control part ``arm`` should take the drawer's ``handle`` from above, a finger on either side of the bar.
    The observation has ``task/drawer``: how far the drawer is open (m), its velocity (m/s), and the vector from the
    tool to the place on the handle where it should be (m, world frame), [N, 5].
    """

    base_entries = (*EmbodiedEnv.base_entries, "task/drawer")
    needed_uids = {"cabinet": "articulation"}
    joint: str = "drawer_top_joint"
    handle: str = "drawer_top_handle"
    success_opening: float = 0.2
    """m."""
    grasp_depth: float = 0.03
    """Wanted depth of the tool centre point below the bar's middle, m."""

    def _init_sim_state(self) -> None:
        self.cabinet = self.sim.get_articulation("cabinet")
        self._joint_id = self.cabinet.joint_names.index(self.joint)
        self._below = torch.tensor([0.0, 0.0, -self.grasp_depth], device=self.device)
        self._opened = self._last_opening = torch.zeros(self.num_envs, device=self.device)
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self._last_opening = self._last_opening.index_copy(0, env_ids, self.opening()[env_ids])

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        opening = self.opening()
        self._opened, self._last_opening = opening - self._last_opening, opening

    def opening(self) -> Tensor:
        """Return how far the drawer is open, [N], m."""
        return self.cabinet.get_qpos()[:, self._joint_id]

    @cached_per_state
    def to_handle(self) -> Tensor:
        """Return the vector from the tool to where it should be on the handle, [N, 3], m; do not write into it."""
        place = self.cabinet.get_link_pose(self.handle, to_matrix=True)[:, :3, 3] + self._below
        return place - self.robot.get_eef_pose()[:, :3, 3]

    def _base_obs(self) -> dict[str, Tensor]:
        drawer = torch.stack((self.opening(), self.cabinet.get_qvel()[:, self._joint_id]), dim=1)
        return super()._base_obs() | {"task/drawer": torch.cat((drawer, self.to_handle()), dim=1)}

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and the metrics ``opening`` and ``distance_to_handle`` (m)."""
        opening = self.opening()
        distance = torch.linalg.vector_norm(self.to_handle(), dim=1)
        return opening > self.success_opening, self._never, {"opening": opening, "distance_to_handle": distance}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return -tanh(4 distance) for the way to the handle, the step's opening of the drawer, and the config's terms.

        Opening is rewarded by its mean speed over the step, 1 at 0.2 m/s and above, and closing costs in proportion
        without a limit: to shake the drawer wins nothing, which the speed at the step's end would not tell. A tool that
        does not point straight down costs, too, and so do fingers that do not close along the drawer's way.
        """
        reward = super().get_reward(obs, action, info)
        reach = -torch.tanh(4.0 * info["metrics"]["distance_to_handle"])
        pull = (self._opened / (_FAST * self.step_dt)).clamp(max=1.0)
        tool = self.robot.get_eef_pose()
        # 0 where the tool's z axis points down and its x axis, along which the fingers close, lies along the world's.
        align = tool[:, 0, 0].abs() - tool[:, 2, 2] - 2.0
        info["rewards"] |= {"reach": reach, "pull": pull, "align": align}
        return reward + reach + pull + align
