"""One way of resetting for all of Gymnasium's vector environments. Legend: N envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.wrappers.gymnasium_env.spaces import ObservationAdapter
from embodichain.utils import ConfigError

VectorEnv = Any
"""A ``gymnasium.vector.VectorEnv``; that type lacks ``call``, ``get_attr`` and lists of seeds."""


class SameStepReset:
    """Resets the environments of a vector environment in the step in which their episodes end.

    - ``SAME_STEP``: the vector environment does so itself, and has the last observations in ``infos["final_obs"]``.
    - ``DISABLED``: it is told to, by ``options["reset_mask"]``.
    - ``NEXT_STEP``: in the next step it would ignore the action, and return a first observation with reward 0, which
      is no transition. Gymnasium's own are told to reset before that, by ``reset_mask``; others cannot be.

    Args:
        envs: the vector environment.
        observe: turns its observations into ours.

    Raises:
        ConfigError: its ``metadata`` do not have a mode that can be used.
    """

    def __init__(self, envs: VectorEnv, observe: ObservationAdapter) -> None:
        self._envs = envs
        self._observe = observe
        self._name = f"its vector environment {type(envs.unwrapped).__name__}"
        mode = envs.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigError(
                f"{self._name} does not say how it resets: metadata['autoreset_mode'] must be an AutoresetMode, got "
                f"{mode!r}"
            )
        self._is_gymnasiums = isinstance(envs.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        if mode == AutoresetMode.NEXT_STEP and not self._is_gymnasiums:
            raise ConfigError(
                f"{self._name} resets one step after an episode's end (AutoresetMode.NEXT_STEP); supported are "
                "SAME_STEP and DISABLED: if it takes no argument for that, use vectorization 'sync' or 'async'"
            )
        self._resets_itself = mode == AutoresetMode.SAME_STEP

    def final_obs(self, obs: TensorDict, infos: dict[str, Any], done: Tensor) -> TensorDict:
        """Return every environment's observation [N] before any reset.

        Args:
            obs: of the step.
            infos: of the step.
            done: [N] bool, whose episodes have ended.

        Raises:
            ConfigError: they lack the observation of an episode that has ended.
        """
        if not self._resets_itself or not done.any():
            return obs
        if "final_obs" not in infos:
            raise ConfigError(
                f"{self._name} resets in the step in which an episode ends (AutoresetMode.SAME_STEP), and its infos "
                f"have no 'final_obs' with the last observation; they have {', '.join(map(repr, infos)) or 'nothing'}"
            )
        final = obs.clone()
        final[done] = self._observe(self._rows(infos["final_obs"], done))
        return final

    def begin_episodes(self, obs: TensorDict, done: Tensor, seeds: Sequence[int] | None) -> TensorDict:
        """Begin new episodes where the mask ``done`` [N] is true; return the observation for the next step.

        Arguments and errors are those of :meth:`reset_rows`.
        """
        return obs if self._resets_itself or not done.any() else self.reset_rows(obs, done, seeds)

    def reset_rows(self, obs: TensorDict, rows: Tensor, seeds: Sequence[int] | None) -> TensorDict:
        """Reset some environments; return the observation for the next step.

        Args:
            obs: the present one.
            rows: [N] bool, which ones.
            seeds: of the new episodes, [N]; None: the environment's own.

        Raises:
            RuntimeError: the vector environment has reset others, too.
        """
        new, _ = self._envs.reset(
            seed=None if seeds is None else list(seeds), options={"reset_mask": rows.numpy().copy()}
        )
        now = self._observe(new)
        if not self._is_gymnasiums:
            self._check_others(obs, now, ~rows)
        obs = obs.clone()  # after a resume, Gymnasium's own still have the other rows' observations of before
        obs[rows] = now[rows]
        return obs

    def _check_others(self, before: TensorDict, now: TensorDict, others: Tensor) -> None:
        for name in now.keys(include_nested=True, leaves_only=True):
            expected, got = (obs.get(name)[others] for obs in (before, now))
            if not torch.equal(got.nan_to_num(), expected.nan_to_num()):
                raise RuntimeError(
                    f"{self._name} has reset more environments than options['reset_mask'] says: use vectorization "
                    "'sync' or 'async'"
                )

    def _rows(self, final: Any, done: Tensor) -> Any:
        """Return the last observations of some environments, batched.

        ``final``: an array of objects [N], as Gymnasium's own vector environments have it, or batched already.
        """
        space: spaces.Space[Any] = self._envs.single_observation_space
        is_batched = not (isinstance(final, np.ndarray) and final.dtype == object)
        rows = list(iterate(self._envs.observation_space, final)) if is_batched else final
        chosen = [rows[i] for i in done.nonzero().squeeze(1).tolist()]
        if any(row is None for row in chosen):
            raise ConfigError(f"{self._name}: its infos' 'final_obs' is None for an episode that has ended")
        batch: Any = create_empty_array(space, len(chosen))
        return concatenate(space, chosen, batch)
