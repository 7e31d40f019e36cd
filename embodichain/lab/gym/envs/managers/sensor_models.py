"""Observation terms that imitate a real sensor's report: ``func(env, data, **params)``, mode ``modify``.

They act in the order of the config, so that a history of noisy values is noise first, then history. An exported policy
computes histories itself; noise and delays are the real sensors' own there. Delayed actions use the same delay lines.
Shapes: N environments, n in ``env_ids``, D size of an entry, K frames, oldest first; ... of one value.
"""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import measurements, types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, ObservationCfg
from embodichain.lab.sim.random import CounterRandom
from embodichain.utils import ConfigError
from embodichain.utils.device import constant


@measurements.deployed_as(lambda env, **params: measurements.Recipe([]))
class observation_noise(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Add noise to an entry, drawn for each of its numbers at each control step.

    Either ``bound`` or ``std``, in the entry's unit.

    Args:
        bound: bound of uniform noise, from -bound to bound.
        std: standard deviation of Gaussian noise.
    """

    cfg: ObservationCfg
    is_stateful = False  # a draw depends on the episode and its step alone

    @classmethod
    @override
    def check_params(cls, params: Mapping[str, Any]) -> list[str]:
        if (params["bound"] is None) == (params["std"] is None):
            got = ", ".join(f"{name}={params[name]}" for name in ("bound", "std") if params[name] is not None)
            return [f"bound: give either bound (uniform noise) or std (Gaussian noise), got {got or 'neither'}"]
        return []

    @override
    def __call__(
        self, env: TermEnv, data: Tensor, bound: PositiveFloat | None = None, std: PositiveFloat | None = None
    ) -> Tensor:
        if not data.is_floating_point():
            raise ConfigError(
                f"env.observations: observation_noise cannot change '{self.cfg.name}', whose numbers are {data.dtype}: "
                "only floating-point ones"
            )
        ids, size = env.all_env_ids, data[0].numel()
        if std is not None:
            noise = std * env.random.normal(ids, size)
        else:
            assert bound is not None
            noise = env.random.uniform(ids, -bound, bound, size)
        return data + noise.view_as(data)


class _Frames(Functor):
    """A term that remembers the last values of an entry."""

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._frames = torch.zeros(env.num_envs, 0, device=env.device)  # [N, K, ...] from the first call on
        self._count = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)  # values of the episode so far

    @override
    def reset(self, env_ids: Tensor) -> None:
        self._count = self._count.index_fill(0, env_ids, 0)


@measurements.deployed_as(lambda env, **params: measurements.Recipe([]))
class observation_delay(_Frames):  # noqa: N801 (named like a function, as configs name it)
    """Return an entry as it was some control steps ago; before the first value has come through, the first value.

    Args:
        delay: ``[lowest, highest]`` control steps, drawn for each episode.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._lag = torch.zeros_like(self._count)

    @override
    def reset(self, env_ids: Tensor) -> None:
        super().reset(env_ids)
        drawn = draw_delay(self.env.random, env_ids, self.cfg.params["delay"])
        self._lag = self._lag.index_copy(0, env_ids, drawn)

    @override
    def __call__(self, env: TermEnv, data: Tensor, delay: types.Delay) -> Tensor:
        self._frames = push(frames_for(self._frames, data, 1 + delay[1]), data)
        lag = torch.minimum(self._lag, self._count)
        self._count = self._count + 1
        return read(self._frames, lag)


@measurements.deployed_as(lambda env, length: measurements.Recipe([{"history": length}]))
class observation_history(_Frames):  # noqa: N801 (named like a function, as configs name it)
    """Return an entry's last values side by side, the oldest first, [N, length * D].

    The first observation of an episode stands for earlier ones.

    Args:
        length: number of values, the present one included.
    """

    @override
    def __call__(self, env: TermEnv, data: Tensor, length: PositiveInt) -> Tensor:
        self._frames = push(frames_for(self._frames, data, length), data)
        lags = constant(tuple(range(length - 1, -1, -1)), env.device)
        lags = torch.minimum(lags, self._count[:, None])
        self._count = self._count + 1
        return read(self._frames, lags).flatten(1)


def draw_delay(random: CounterRandom, env_ids: Tensor, delay: types.Delay) -> Tensor:
    """Return whole numbers of control steps from lowest to highest, equally likely, [n] int64."""
    lowest, highest = delay
    return (lowest + random.uniform(env_ids, 0.0, float(highest - lowest + 1), 1)[:, 0].floor()).long()


def frames_for(frames: Tensor, value: Tensor, length: int) -> Tensor:
    """Return frames [N, K, ...] as they are, or K = ``length`` zeros for values [N, ...] where there are none yet."""
    return frames if frames.shape[1] else value.new_zeros(len(value), length, *value.shape[1:])


def push(frames: Tensor, value: Tensor) -> Tensor:
    """Return frames [N, K, ...] with a value [N, ...] as the newest, without the oldest."""
    return torch.cat((frames[:, 1:], value[:, None]), dim=1)


def read(frames: Tensor, lag: Tensor) -> Tensor:
    """Return the frames from ``lag`` steps ago, for lags [N] or [N, L]: [N, ...] or [N, L, ...]; 0 is the newest.

    A lag up to the number of values before in the episode reads none of an older one.
    """
    rows = torch.arange(len(frames), device=frames.device).view(-1, *[1] * (lag.dim() - 1))
    return frames[rows, frames.shape[1] - 1 - lag]
