"""MicroDuck walks, and stands up. Shapes: N environments."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import state_values
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.gym.registry import register_env

_LEAST_PATH = 0.1  # m, commanded so far, from which a robot may have stood still


class MicroDuckEnv(LocomotionEnv):
    """The base is to move with the commanded velocity: a robot that stands still instead has failed.

    Success needs, in addition to small errors, at least ``least_progress`` of the commanded way.
    """

    max_velocity_error = 0.15
    least_progress: float = 0.5
    """Share of the commanded way, along the command, that success needs."""
    _num_sums = 4

    @override
    def _values_to_sum(self) -> Tensor:
        """Return velocity errors, and the commanded way and the way made along the command, m."""
        command = self.command_manager.get_tracked(self.command_name)[:, :2]
        speed = torch.linalg.vector_norm(command, dim=1)
        along = (self.robot.base.linear_velocity()[:, :2] * command).sum(dim=1) / speed.clamp(min=1e-6)
        return torch.cat((super()._values_to_sum(), torch.stack((speed, along), dim=1) * self.step_dt), dim=1)

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure and metrics; ``standing_rate`` is 1 where the robot stands under a command."""
        success, fail, metrics = super().compute_task_state(**kwargs)
        wanted, made = self._sums[:, 2:].unbind(1)
        stands = (wanted > _LEAST_PATH) & (made < self.least_progress * wanted)
        return success & ~stands, fail, metrics | {"standing_rate": stands.float()}


@register_env("MicroDuckFlatRL", max_episode_steps=500, override=True, default_cfg=default_cfg("microduck_flat"))
class MicroDuckFlatEnv(MicroDuckEnv):
    """MicroDuck on a plane."""


@register_env("MicroDuckRoughRL", max_episode_steps=500, override=True, default_cfg=default_cfg("microduck_rough"))
class MicroDuckRoughEnv(MicroDuckEnv):
    """MicroDuck on a terrain with levels."""


@register_env("MicroDuckStandUpRL", max_episode_steps=250, override=True, default_cfg=default_cfg("microduck_stand_up"))
class MicroDuckStandUpEnv(LocomotionEnv):
    """MicroDuck stands up from any pose. Success: at the end of the episode it is upright and at its height."""

    least_height: float = 0.1
    """Height of the base above the ground of a robot that stands, m."""
    largest_lean: float = 0.25
    """Largest lean of a robot that stands, rad."""

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never), and the metrics ``lean`` (rad) and ``height`` (m) of the base."""
        base = self.robot.base
        lean = torch.acos((-base.projected_gravity()[:, 2]).clamp(-1.0, 1.0))
        height = state_values.height_above_ground(self, base.get()[:, :3])
        stands = (lean < self.largest_lean) & (height > self.least_height)
        return stands, self._never, {"lean": lean, "height": height}
