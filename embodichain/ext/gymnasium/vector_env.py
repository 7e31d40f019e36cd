"""Our environments as Gymnasium's vector environments. Shapes: N environments, O flattened observation size."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.base_env import BaseEnv
from embodichain.lab.gym.registry import make
from embodichain.lab.gym.utils.arrays import outside_space, to_action, to_array, to_arrays
from embodichain.utils.observations import flatten_dict_observation


def make_vec(env_id: str, num_envs: int = 1, flat: bool = False, **kwargs: Any) -> "GymnasiumVectorEnv":
    """Build a registered environment for Gymnasium; ``gym.make_vec`` calls this.

    Args:
        flat: observations as one array [N, O].
        kwargs: as :func:`~embodichain.lab.gym.registry.make` takes them.
    """
    return GymnasiumVectorEnv(make(env_id, num_envs=num_envs, **kwargs), flat)


class GymnasiumVectorEnv(gym.vector.VectorEnv[Any, np.ndarray, np.ndarray]):
    """N environments with NumPy arrays, as code for ``gymnasium.vector`` expects them.

    Environments that are done reset themselves in the same step (``AutoresetMode.SAME_STEP``): ``infos["final_obs"]``
    has their last observations, ``infos["final_info"]`` the other infos of the ended episodes.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, env: BaseEnv, flat: bool = False) -> None:
        """Wrap an environment.

        Args:
            flat: observations as one array [N, O] float32, which most learners want, instead of nested dictionaries.
                Images are not part of it.
        """
        self.env = env
        self.num_envs = env.num_envs
        self._flat = flat
        self.single_action_space = outside_space(env.single_action_space)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)
        self.single_observation_space = env.flattened_observation_space if flat else env.single_observation_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: start the random streams again from this seed; environment i then draws by (seed, i).
            options: as :meth:`~embodichain.lab.gym.envs.BaseEnv.reset` takes them, or Gymnasium's ``reset_mask``: [N]
                bool, which environments.

        Returns:
            ``(observations, infos)``, of all environments.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        which = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        if which.dtype != np.bool_ or which.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be {self.num_envs} bools, got {which}")
        if not which.all():
            options["reset_ids"] = np.flatnonzero(which)
        obs, info = self.env.reset(seed=seed, options=options)
        return self._observations(obs), _infos(info, which)

    @override
    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every environment by one control step.

        Returns:
            ``(observations, rewards [N], terminations [N], truncations [N], infos)``.
        """
        obs, reward, terminated, truncated, info = self.env.step(to_action(actions, self.env))
        terminations, truncations = to_array(terminated), to_array(truncated)
        done = terminations | truncations
        final_obs = info.pop("final_obs")
        infos = _infos(info, ~done)
        if done.any():
            infos |= {"final_obs": self._rows(final_obs, done), "_final_obs": done}
            infos |= {"final_info": _infos(info, done), "_final_info": done}
        return self._observations(obs), to_array(reward), terminations, truncations, infos

    @override
    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self.env.close()

    def _observations(self, obs: TensorDict) -> Any:
        return to_array(flatten_dict_observation(obs)) if self._flat else to_arrays(obs)

    def _rows(self, obs: TensorDict, which: np.ndarray) -> np.ndarray:
        """Return the observations of some environments as Gymnasium does: objects, [N], None for the others."""
        rows = np.full(self.num_envs, None, dtype=object)
        batch = self._observations(obs)
        for i in np.flatnonzero(which).tolist():
            rows[i] = _row(batch, i)
        return rows


def _row(batch: Any, i: int) -> Any:
    return {name: _row(value, i) for name, value in batch.items()} if isinstance(batch, dict) else batch[i]


def _infos(info: Mapping[str, Any], which: np.ndarray) -> dict[str, Any]:
    """Return infos as arrays [N, ...], each with the mask ``_<name>`` of the environments that it describes."""
    infos: dict[str, Any] = {}
    for name, value in info.items():
        if isinstance(value, Tensor):
            infos[name] = to_array(value)
        elif isinstance(value, Mapping):
            infos[name] = _infos(value, which)
        else:
            continue
        infos[f"_{name}"] = which.copy()
    return infos
