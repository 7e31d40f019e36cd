"""Push a cube to a goal on the ground. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.managers.state_values import range_to_target
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.cfg import MarkerCfg
from embodichain.lab.sim.shapes import CylinderCfg

_MARKER_HEIGHT = 0.002


@register_env("PushCubeRL", max_episode_steps=80, override=True, default_cfg=default_cfg("push_cube"))
class PushCubeEnv(EmbodiedEnv):
    """The rigid object ``cube`` is to come within ``success_threshold`` (m, horizontally) of ``goal_pose``.

    The goal is drawn as a disc of the threshold's radius on the ground.
    """

    added_uids = ("goal",)
    needed_uids = {"cube": "rigid object"}
    success_threshold: PositiveFloat = 0.05
    goal_pose: Tensor
    """[N, 4, 4], stored by the event ``randomize_target_pose``."""

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        disc = CylinderCfg(radius=self.success_threshold, height=_MARKER_HEIGHT)
        self.sim.add_marker(MarkerCfg("goal", shape=disc))

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        pos = self.goal_pose[:, :3, 3].index_select(0, env_ids)
        pos[:, 2].fill_(_MARKER_HEIGHT / 2)
        self.sim.get_marker("goal").set_pos(pos, env_ids)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and the metric ``distance_to_goal`` (m)."""
        distance = range_to_target(self, "cube", "goal_pose", use_xy_only=True)
        return distance < self.success_threshold, self._never, {"distance_to_goal": distance}
