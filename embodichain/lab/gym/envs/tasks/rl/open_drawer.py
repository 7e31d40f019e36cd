"""Open a drawer by its handle. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.objects import cached_per_state

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

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs = super()._extend_obs(obs)
        velocity = self.cabinet.get_qvel()[:, self._joint_id]
        obs["task/drawer"] = torch.cat((torch.stack((self.opening(), velocity), dim=1), self.to_handle()), dim=1)
        return obs

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
