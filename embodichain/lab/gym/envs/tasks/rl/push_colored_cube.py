"""Push the cube that an instruction names. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.tasks.rl.colored_cubes import ColoredCubesEnv
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env

# The scripted expert's farthest push from a cube's centre, sideways, and its distance behind the row until
# then, m.
_BESIDE, _BEHIND = 0.012, 0.05


@register_env("PushColoredCubeRL", max_episode_steps=40, override=True, default_cfg=default_cfg("push_colored_cube"))
class PushColoredCubeEnv(ColoredCubesEnv):
    """One of several cubes, the one that the instruction names, is to be pushed away; the others are to stay.

    Success: the named cube is ``push_distance`` from where it began. Failure: another has moved ``max_disturbance``.
    """

    skills = ("push",)
    push_distance: float = 0.1
    """Horizontal distance of success, m."""

    def _init_sim_state(self) -> None:
        self._pushed = torch.zeros(self.num_envs, device=self.device)  # share of the push that was rewarded
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        self._pushed = self._pushed.index_fill(0, env_ids, 0.0)
        super()._initialize_episode(env_ids)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure, and the metrics ``pushed`` (the named cube, m) and ``disturbed`` (others, m)."""
        moved = self.displacement()
        pushed = self.of_named(moved)
        disturbed = moved.scatter(1, self.named.unsqueeze(1), 0.0).amax(dim=1)
        fail = disturbed >= self.max_disturbance
        return (pushed >= self.push_distance) & ~fail, fail, {"pushed": pushed, "disturbed": disturbed}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the step's progress in pushing the named cube, 1 for ``push_distance``, plus the config's terms.

        Failure only ends the episode: with a penalty, a policy that often pushes the wrong cube would first learn to
        touch none.
        """
        reward = super().get_reward(obs, action, info)
        share = (info["metrics"]["pushed"] / self.push_distance).clamp(max=1.0)
        push = share - self._pushed
        self._pushed = share
        info["rewards"]["push"] = push
        return reward + push

    def expert_action(self) -> Tensor:
        """Return the action of a scripted expert that knows the cubes' positions, [N, 2] for ``EefPlaneTerm``.

        The tool moves behind the row, then past the others to the named cube's line, then ahead along it.
        """
        tool = self.robot.get_eef_pose()[:, :2, 3]
        aside = self.of_named(self.positions())[:, 1] - tool[:, 1]
        near = self._begun[..., 0].amax(dim=1) + self.cube_size / 2 + _BEHIND  # the line behind the row
        is_ahead = (tool[:, 0] < near) & (aside.abs() < 2 * _BESIDE)
        ahead = torch.where((aside.abs() < _BESIDE) | is_ahead, -1.0, ((near - tool[:, 0]) / self._reach).clamp(-1, 1))
        return torch.stack((ahead, (aside / self._reach).clamp(-1, 1)), dim=1)

    @property
    def _reach(self) -> float:
        """The tool's largest shift in a step, m."""
        return float(next(iter(self.cfg.actions.values())).params.get("scale", 0.02))
