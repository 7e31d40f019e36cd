"""The methods that a task may write, and the check of its state. Shapes: N environments, n in ``env_ids``, A action."""

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import gymnasium as gym
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.env_cfg import EnvCfg
from embodichain.lab.gym.envs.managers.base import kind_of
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.objects import StateCache
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import MISSPELT, closest

TaskState = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Success [N] bool, failure [N] bool, metrics [N] by name."""


def checked_task_state(value: object, num_envs: int, task: type) -> TaskState:
    """Return the value of a task's ``compute_task_state``; ConfigError if it has another type or shape."""
    got = kind_of(value)
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], dict):
        success, fail, metrics = value
        for name, each in (("success", success), ("fail", fail), *metrics.items()):
            is_right = isinstance(each, Tensor) and each.shape == (num_envs,)
            if not is_right or ((each is success or each is fail) and each.dtype != torch.bool):
                got = f"{kind_of(each)} as {name}"
                break
        else:
            return success, fail, metrics
    wanted = f"two bool tensors [N] = [{num_envs}] and a dict of tensors [N]"
    raise ConfigError(
        f"{task.__qualname__}.compute_task_state must return (success, fail, metrics): {wanted}. Got {got}"
    )


class TaskHooks(gym.Env[Any, Any]):
    """The hooks of an environment. Call ``super()`` in hooks with a leading underscore."""

    cfg: EnvCfg
    sim: SimulationManager
    num_envs: int
    device: torch.device
    elapsed_steps: Tensor
    """[N] int64, steps in the current episode."""
    success_terminates = True
    """Whether an episode ends when the task is achieved."""
    _never: Tensor
    """[N] bool, false everywhere."""
    _has_success = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Warn of methods of a new class that are nearly named like a hook: nothing would call them."""
        super().__init_subclass__(**kwargs)
        hooks = [name for name, value in vars(TaskHooks).items() if isinstance(value, FunctionType)]
        for name, value in vars(cls).items():
            is_new = isinstance(value, FunctionType) and not any(hasattr(base, name) for base in cls.__bases__)
            if is_new and (meant := closest(name, hooks, MISSPELT)):
                logger.log_warning(
                    f"{cls.__qualname__}.{name}: no hook has this name, so only your own code can call it. "
                    f"Did you mean '{meant}'?"
                )

    def compute_task_state(self, **kwargs: Any) -> TaskState:
        """Return whether the task is achieved [N] bool, whether it has failed [N] bool, and metrics [N] by name.

        Called once in each control step, and once in each ``reset()``, so counters belong in ``_update_sim_state``. A
        task that has no success returns ``self._never`` for it, and is then measured by its return.
        """
        return self._never, self._never, {}

    def knows_success(self) -> bool:
        """Return whether the task has a success, as its ``compute_task_state`` has said."""
        return self._has_success

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the reward [N]; ``info["rewards"]`` may be filled with its terms."""
        return torch.zeros(self.num_envs, device=self.device)

    def check_truncated(self, obs: TensorDict, info: dict[str, Any]) -> Tensor:
        """Return the episodes to truncate [N] bool, in addition to the time limit's."""
        return self._never

    def _setup_robot(self) -> None:
        """Add the robots to ``self.sim``."""

    def _prepare_scene(self) -> None:
        """Add everything else to ``self.sim``."""

    def _setup_sensors(self) -> None:
        """Add sensors."""

    def _init_sim_state(self) -> None:
        """Initialise once after the simulation is built."""

    def _update_sim_state(self) -> None:
        """Change the state after the physics and before it is observed; once in each control step, never in a reset.

        ``elapsed_steps`` counts the present step already.
        """

    def _step_action(self, action: Tensor) -> None:
        """Turn actions [N, A] into controls of the simulation."""
        raise NotImplementedError

    def _join_action(self, action: Mapping[str, Tensor]) -> Tensor:
        """Return an action given by name as one tensor [N, A], or a chunk of them as one [N, H, A]."""
        raise NotImplementedError

    def _action_limits(self) -> tuple[Tensor, Tensor]:
        """Return the lowest and the highest action, [A] each."""
        raise NotImplementedError

    def _base_obs(self) -> dict[str, Tensor]:
        """Return the observation by slash-separated name, [N, ...] each."""
        raise NotImplementedError

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add to the observation."""
        return obs

    def _extend_reward(self, reward: Tensor, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Change the reward [N]."""
        return reward

    def _apply_interval_events(self) -> Tensor | None:
        """Change the state after the rewards; return the changed environments [N] bool, or None if none is."""
        return None

    def _record(self, action: Tensor, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Record a step before the environments that are done reset."""

    def _begin_step(self, obs: TensorDict) -> None:
        """Record the observation from which the next step starts."""

    def _restart(self) -> None:
        """Reset counters, since the random streams start again."""

    def _end_episodes(self, env_ids: Tensor) -> None:
        """Use the last state of environments [n] with ended episodes, before they reset themselves."""

    def _initialize_episode(self, env_ids: Tensor) -> None:
        """Set up the new episodes of environments [n]; the scene is in its initial state."""

    @property
    def state_cache(self) -> StateCache:
        """Cached values of the present state, see :func:`~embodichain.lab.sim.objects.cached_per_state`."""
        return self.sim.state_cache

    @property
    def max_episode_steps(self) -> int | None:
        """The config's time limit."""
        return self.cfg.max_episode_steps

    @property
    def _elapsed_steps(self) -> Tensor:
        """The name of ``elapsed_steps`` in tasks written for EmbodiChain."""
        return self.elapsed_steps
