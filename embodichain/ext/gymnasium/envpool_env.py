"""EnvPool's environments as ones that our learner trains in: C++, stepped in threads. Legend: N envs."""

import importlib
import warnings
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.ext.gymnasium.foreign_env import ForeignEnv, ForeignEnvCfg, RawStep, rendered
from embodichain.utils import ConfigError, configclass, install_extra, replace

_NO_METRICS = ("env_id", "players", "elapsed_step")


@configclass
class EnvPoolCfg(ForeignEnvCfg):
    """The config of EnvPool's environments."""

    num_threads: int = 0
    """Threads of the pool; 0: EnvPool's own number. A training in several processes shares the processor."""

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes."""
        return replace(self, num_envs=num_envs, first_env_id=first_env_id, num_threads=num_threads)


class EnvPoolEnv(ForeignEnv):
    """N environments of EnvPool.

    The pool has its seeds: a reset of all environments makes a new one, whose environment i draws all its
    episodes from one seed.
    """

    def __init__(self, cfg: EnvPoolCfg) -> None:
        self._envpool = import_envpool()
        self._name = cfg.id.partition(":")[2]
        self._settings: dict[str, Any] = {"num_threads": cfg.num_threads, **cfg.kwargs}
        if cfg.max_episode_steps is not None:
            self._settings["max_episode_steps"] = cfg.max_episode_steps
        self._pool: Any = None
        pool = self._make([0])  # one environment, for the spaces alone: some take long to make
        super().__init__(cfg, pool.observation_space, pool.action_space)
        pool.close()

    @override
    def close(self) -> None:
        self.stop_recording()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _make(self, seeds: list[int]) -> Any:
        settings = {"num_envs": len(seeds), "env_seed": seeds, **self._settings}
        pool = self._envpool.make(self._name, env_type="gymnasium", **settings)
        with warnings.catch_warnings(action="ignore"):  # of bounds that are not of the space's type
            _ = pool.observation_space, pool.action_space  # made now, and kept
        return pool

    @override
    def _reset_all(self) -> Any:
        if self._pool is not None:
            self._pool.close()
        self._pool, self._is_resetting = self._make(self._seeds(torch.arange(self.num_envs))), False
        return self._pool.reset()[0]

    @override
    def _start_reset(self, rows: Tensor) -> None:
        self._pool._reset(rows.numpy().astype(np.int32))  # the pool's ``reset`` without its wait
        self._is_resetting = True

    @override
    def _reset_rows(self, rows: Tensor) -> TensorDict:
        if not self._is_resetting:
            self._start_reset(rows)
        self._is_resetting = False
        return self._observe(self._pool.recv(reset=True)[0])

    @override
    def _step(self, action: np.ndarray) -> RawStep:
        raw, reward, terminated, truncated, info = self._pool.step(action)
        numbers = {
            name: values
            for name, values in info.items()
            if name not in _NO_METRICS and isinstance(values, np.ndarray) and values.ndim == 1
        }
        return raw, reward, terminated, truncated, {k: v for k, v in numbers.items() if v.dtype.kind in "biuf"}

    @override
    def _render(self) -> Any:
        return rendered(lambda: self._pool.render(env_ids=0)[0])


def import_envpool() -> Any:
    """Import EnvPool; a ConfigError if it is not installed."""
    try:
        return importlib.import_module("envpool")
    except ImportError as error:
        raise ConfigError(
            f"id: EnvPool cannot be imported ({error}); to install it: {install_extra('envpool')}"
        ) from error
