"""What Gymnasium's MuJoCo tasks have in common. Shapes: N environments, n in ``env_ids``, O observation, A action.

The tasks are those of Gymnasium's version 5 with its default arguments, computed for N environments together: with the
same first state and actions they return the same observations, rewards and terminations. Their arguments are the
attributes of the classes, which a config sets in ``extensions``. The model files are those of the installed package
gymnasium (Towers et al., "Gymnasium: a standard interface for reinforcement learning environments", 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.scene_env import SceneEnv
from embodichain.utils.errors import unknown_name


def v5_defaults(file: str, frame_skip: int) -> Mapping[str, Any]:
    """Return a task's ``config_defaults``: the scene's file in gymnasium, and its substeps in a control step."""
    env = {**SceneEnv.config_defaults["env"], "sim_steps_per_control": frame_skip}
    return {"scene": f"gymnasium/{file}", "env": env}


class V5Env(SceneEnv):
    """A task of Gymnasium's: one flat observation, a reward of terms, and an end where the robot is not healthy.

    The actions are clipped to their limits, where Gymnasium's robots are moved by clipped ones and pay for the others.
    An episode whose physics diverges is terminated; Gymnasium's continues from MuJoCo's own reset.
    """

    base_entries = ("observation",)
    terminate_when_unhealthy: bool = True
    """Whether an episode ends where the robot is not healthy."""

    @classmethod
    @override
    def config_problems(cls, cfg: EmbodiedEnvCfg) -> list[str]:
        """Return also which ``extensions`` the task has no argument for: Gymnasium's own refuse them, too."""
        bases = [base for base in cls.__mro__ if issubclass(base, SceneEnv)]
        known = {name for base in bases for name, value in vars(base).items() if _is_argument(name, value)}
        return super().config_problems(cfg) + [
            f"env.extensions.{name}: {unknown_name('argument', name, known)}"
            for name in cfg.extensions
            if not hasattr(cls, name)
        ]

    def observe(self) -> Tensor:
        """Return the observation, [N, O] float64."""
        raise NotImplementedError

    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        """Return what the reward is the sum of for actions [N, A] float64, by name, [N] float64 each."""
        raise NotImplementedError

    def is_healthy(self) -> Tensor:
        """Return which robots are in a state that the task allows, [N] bool."""
        return ~self._never

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success (these tasks have none), failure, and no metrics."""
        return self._never, ~self.is_healthy() if self.terminate_when_unhealthy else self._never, {}

    @override
    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the sum of the terms, and of those of the config."""
        reward = super().get_reward(obs, action, info)
        terms = self.reward_terms(action.double())
        info["rewards"] |= {name: value.float() for name, value in terms.items()}
        return reward + torch.stack([*terms.values()]).sum(dim=0).float()

    @override
    def _base_obs(self) -> dict[str, Tensor]:
        return {"observation": self.observe().float()} | self._images()


class ForwardEnv(V5Env):
    """A task that rewards velocity: how far a position moves in a control step.

    Attributes:
        velocity: of the last step, [N, D], m/s.
    """

    forward_reward_weight: float = 1.0
    """Of the velocity along x, s/m."""
    ctrl_cost_weight: float = 1e-3
    """Of the sum of the squared actions."""
    velocity: Tensor

    def position(self) -> Tensor:
        """Return the position that moves, [N, D] float64, m: x first."""
        return self.qpos[:, :1]

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": self.forward_reward_weight * self.velocity[:, 0],
            "ctrl": -self.ctrl_cost_weight * action.square().sum(dim=1),
        }

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success (these tasks have none), failure, and the metric ``x_velocity`` (m/s)."""
        success, fail, metrics = super().compute_task_state(**kwargs)
        return success, fail, metrics | {"x_velocity": self.velocity[:, 0].float()}

    @override
    def _take_robot(self) -> None:
        super()._take_robot()
        self._position = self.position()
        self.velocity = torch.zeros_like(self._position)

    @override
    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        position = self.position()
        self.velocity = (position - self._position) / self.step_dt
        self._position = position

    @override
    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self._position = self._position.index_copy(0, env_ids, self.position()[env_ids])
        self.velocity = self.velocity.index_fill(0, env_ids, 0.0)


def _is_argument(name: str, value: object) -> bool:
    """Return whether an attribute of a class is one that a config may set."""
    is_number = isinstance(value, bool | int | float)
    is_range = isinstance(value, tuple) and len(value) == 2 and all(isinstance(end, float) for end in value)
    return not name.startswith("_") and (is_number or is_range)


def normal_noise(env: SceneEnv, env_ids: Tensor, like: Tensor) -> Tensor:
    """Return normal noise with the std ``reset_noise_scale`` in the shape of a tensor [n, ...], float64."""
    return env.reset_noise_scale * env.random.normal(env_ids, like.shape[1]).double()
