"""Follow a commanded velocity on legs. Shapes: N environments."""

from typing import Any, ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.locomotion_rewards import is_terminated
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.objects import cached_per_state
from embodichain.utils import logger


class LocomotionEnv(EmbodiedEnv):
    """The robot's base is to move with the velocity of the command ``base_velocity``; its observations are all terms.

    Success means that the robot has not fallen and moves about as commanded: the velocity errors, averaged over the
    episode so far, are within their thresholds. It does not end the episode.
    """

    success_terminates = False
    base_entries = ()
    command_name: str = types.BASE_VELOCITY
    """Name of the velocity command."""
    max_velocity_error: float = 0.3
    """Largest mean error of success, m/s."""
    max_yaw_rate_error: float = 0.4
    """Largest mean error of success, rad/s."""
    only_positive_rewards: bool = False
    """Whether a step's reward is at least 0, so that no policy gains from falling early; the penalty of the term
    ``is_terminated`` is not limited."""
    _num_sums: ClassVar[int] = 2
    _sums: Tensor
    """[N, _num_sums] sums over the episode of :meth:`_values_to_sum`."""

    def _init_sim_state(self) -> None:
        if self.cfg.robot is not None and self.cfg.robot.fix_base:
            logger.log_warning("robot.fix_base: is true, the default: the base hangs where it is, and cannot be moved")
        self._sums = torch.zeros(self.num_envs, self._num_sums, device=self.device)
        super()._init_sim_state()
        self.command_manager.get_term(self.command_name)  # or an error that names the missing term

    def velocity_errors(self) -> Tensor:
        """Return the base's errors to the command that the last action followed, [N, 2]: m/s (norm), rad/s."""
        return self._errors_to(self.command_manager.get_tracked(self.command_name))

    @cached_per_state
    def _errors_to(self, command: Tensor) -> Tensor:
        base = self.robot.base
        linear = torch.linalg.vector_norm(base.linear_velocity()[:, :2] - command[:, :2], dim=1)
        return torch.stack((linear, (base.angular_velocity()[:, 2] - command[:, 2]).abs()), dim=1)

    def _values_to_sum(self) -> Tensor:
        """Return the present step's values, first its velocity errors."""
        return self.velocity_errors()

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        self._sums = self._sums + self._values_to_sum()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self._sums = self._sums.index_fill(0, env_ids, 0.0)

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never: see the terminations), and the metrics of the present step.

        ``velocity_error_xy`` (m/s), ``velocity_error_yaw`` (rad/s).
        """
        linear, yaw = self.velocity_errors().unbind(1)
        mean = self._sums[:, :2] / self.elapsed_steps.clamp(min=1)[:, None]
        success = (mean[:, 0] < self.max_velocity_error) & (mean[:, 1] < self.max_yaw_rate_error)
        return success, self._never, {"velocity_error_xy": linear, "velocity_error_yaw": yaw}

    @override
    def get_info(self, **kwargs: Any) -> dict[str, Any]:
        info = super().get_info(**kwargs)
        info["metrics"]["fall_rate"] = info["fail"]
        return info

    def _extend_reward(self, reward: Tensor, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        if not self.only_positive_rewards:
            return reward
        for_ending = sum(info["rewards"][name] for name, term in self.cfg.rewards.items() if term.func is is_terminated)
        return (reward - for_ending).clamp(min=0.0) + for_ending


@register_env("Go2FlatRL", max_episode_steps=500, override=True, default_cfg=default_cfg("go2_flat"))
class Go2FlatEnv(LocomotionEnv):
    """A quadruped on a plane."""


@register_env("Go2RoughRL", max_episode_steps=500, override=True, default_cfg=default_cfg("go2_rough"))
class Go2RoughEnv(LocomotionEnv):
    """A quadruped on a terrain with levels, which it climbs in training."""


@register_env("G1FlatRL", max_episode_steps=500, override=True, default_cfg=default_cfg("g1_flat"))
class G1FlatEnv(LocomotionEnv):
    """A humanoid on a plane."""
