"""Recording of whole episodes, for replay. Shapes: T steps, A action size, Q generalised positions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import EventCfg, FunctorCfg
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import reason_of
from embodichain.utils.output import SavePath
from embodichain.utils.rows import row_numbers


@dataclass(frozen=True)
class Trajectory:
    """One episode of one environment. Its random draws follow from the counters, so it can be replayed.

    Attributes:
        action: [T, A] float32, within the action space's limits.
        qpos: [T + 1, Q] float32, the positions before the first and after each step, for comparison.
        seed: seed of the random streams.
        stream_id, episode: keys of the episode's random streams.
        tick: interval events' count of steps at its start.
        env_id: environment's id.
    """

    action: np.ndarray
    qpos: np.ndarray
    seed: int
    stream_id: int
    episode: int
    tick: int
    env_id: int

    def save(self, path: Path) -> None:
        """Write it to a file, and create the folder; OSError if that fails."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        np.savez_compressed(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it from a file.

        Raises:
            OSError: there is no such file.
            ValueError: the file is not a trajectory.
        """
        names = [f.name for f in fields(cls)]
        with np.load(path, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise ValueError(f"{path} is not a trajectory: it has no {', '.join(missing)}")
            values: dict[str, Any] = {name: file[name] for name in names}
        return cls(**values | {name: int(value) for name, value in values.items() if not value.ndim})


class record_trajectory(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Write episodes of the first environments to ``<save_path>/env<number>_episode<count>.npz``.

    An interval event at every step. An episode is written when the next one begins; if that fails, a warning is logged
    and the run continues. :class:`~embodichain.lab.gym.wrappers.ReplayEnv` replays it.

    Args:
        save_path: folder of the files, inside the run's folder.
        max_env_num: number of environments.
    """

    only_reads = True

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        assert isinstance(cfg, EventCfg)
        if (cfg.mode, cfg.interval_step) != ("interval", 1):
            raise ConfigError(
                f"record_trajectory: mode 'interval' with interval_step 1 is needed, got '{cfg.mode}' with "
                f"{cfg.interval_step}"
            )
        count = min(cfg.params.get("max_env_num", 1), env.num_envs)
        self._actions: list[list[Tensor]] = [[] for _ in range(count)]
        self._qpos: list[list[Tensor]] = [[] for _ in range(count)]
        self._counters = [(0, 0, 0, 0)] * count
        self._written = 0

    @override
    def __call__(self, env: TermEnv, env_ids: Tensor, save_path: SavePath, max_env_num: int = 1) -> None:
        """Record one step."""
        qpos = env.sim.backend.qpos
        for i in row_numbers(env_ids).tolist():
            if i < len(self._actions):
                self._actions[i].append(env.last_action[i])
                self._qpos[i].append(qpos[i])

    @override
    def reset(self, env_ids: Tensor) -> None:
        for i in row_numbers(env_ids).tolist():
            if i < len(self._actions):
                if self._actions[i]:
                    self._write(i)
                random = self.env.random
                counters = (random.seed, int(random.stream_ids[i]), int(random.episode[i]))
                self._counters[i] = (*counters, self.env.event_manager.steps)
                self._actions[i] = []
                self._qpos[i] = [self.env.sim.backend.qpos[i]]

    def _write(self, i: int) -> None:
        action, qpos = (torch.stack(rows).cpu().numpy() for rows in (self._actions[i], self._qpos[i]))
        path = self.env.output.place(self.cfg.params["save_path"]) / f"env{i}_episode{self._written}.npz"
        try:
            Trajectory(action, qpos, *self._counters[i], i).save(path)
        except OSError as error:
            logger.log_warning(f"trajectory {path} could not be written: {reason_of(error)}")
        self._written += 1
