"""Our environments as Stable-Baselines3's; needs the extra ``sb3``. Shapes: N environments."""

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from embodichain.lab.gym.envs.base_env import BaseEnv
from embodichain.lab.gym.utils.arrays import outside_space, to_action, to_array
from embodichain.utils.observations import flatten_dict_observation


class SB3VecEnv(VecEnv):
    """N environments for Stable-Baselines3, with flat observations [N, O].

    Environments that are done reset themselves in the same step. Their infos have ``terminal_observation`` and
    ``TimeLimit.truncated``, from which its algorithms bootstrap; ``is_success``, which its evaluation counts; and
    ``episode``, the return ``r`` and length ``l``, which its logger averages.
    """

    def __init__(self, env: BaseEnv) -> None:
        self.env = env
        self.render_mode = None
        super().__init__(env.num_envs, env.flattened_observation_space, outside_space(env.single_action_space))
        self._returns = np.zeros(env.num_envs)
        self._action: Tensor

    def reset(self) -> np.ndarray:
        """Begin new episodes everywhere, from the seed that ``seed()`` was given since the last time."""
        obs, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._returns[:] = 0.0
        return to_array(flatten_dict_observation(obs))

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions [N, A] of the next step."""
        self._action = to_action(actions, self.env)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Advance every environment by one control step.

        Returns:
            ``(observations [N, O], rewards [N], dones [N], infos)``.
        """
        obs, reward, terminated, truncated, info = self.env.step(self._action)
        rewards, dones = to_array(reward), to_array(terminated | truncated)
        self._returns += rewards
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            final = to_array(flatten_dict_observation(info["final_obs"]))
            cut = to_array(truncated & ~terminated)
            success, length = to_array(info["success"]), to_array(info["elapsed_steps"])
            for i in np.flatnonzero(dones):
                infos[i] = {
                    "terminal_observation": final[i],
                    "TimeLimit.truncated": bool(cut[i]),
                    "is_success": bool(success[i]),
                    "episode": {"r": float(self._returns[i]), "l": int(length[i])},
                }
            self._returns[dones] = 0.0
        return to_array(flatten_dict_observation(obs)), rewards, dones, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute of the environment, once for each index: they are one object."""
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of the environment, for all at once."""
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the environment once, and return its result for each index."""
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: int | Iterable[int] | None = None
    ) -> list[bool]:
        """Return that no environment is wrapped by Gymnasium's wrappers, for each index."""
        return [False for _ in self._get_indices(indices)]
