"""Recording of steps into datasets. Shapes: N environments, A action size."""

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, TermEnv
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.utils import face

__all__ = ["LeRobotRecorder"]  # noqa: F822 (resolved by __getattr__)
__getattr__ = face(__name__, {"LeRobotRecorder": "embodichain.ext.lerobot.recorder"})


class DatasetManager(Manager):
    """Passes every step to the recorders, ``func(env, action, reward, done, info, **params)``, before any reset."""

    def __init__(self, cfgs: Mapping[str, DatasetCfg], env: TermEnv) -> None:
        self._terms = build_terms(cfgs, env, "env.dataset")
        super().__init__(env, self._terms)
        self.is_recording = bool(self._terms)
        """Whether there is any recorder."""

    def record(self, action: Tensor, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Record one step: its reward [N], the episodes that it ends [N] bool, and its info."""
        for term in self._terms:
            term(self._env, action, reward, done, info)

    def begin(self, obs: TensorDict) -> None:
        """Pass on the observation after resets, from which the next step starts."""
        for term in self._terms:
            term.func.begin(obs)
