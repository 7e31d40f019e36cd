"""One of the environments of a vector environment, in the process that steps it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from embodichain.lab.gym.wrappers.gymnasium_env.cfg import RENDER_MODE
from embodichain.lab.gym.wrappers.gymnasium_env.member_state import (
    Simulations,
    State,
    UnknownStateError,
    copy_state,
    restore_state,
)
from embodichain.lab.gym.wrappers.gymnasium_env.registry import with_python
from embodichain.lab.gym.wrappers.gymnasium_env.spaces import has_images, observation_problem
from embodichain.lab.sim.backend.single_data import draw_without_shadows, is_model
from embodichain.utils import ConfigError
from embodichain.utils.errors import CommandFailedError
from embodichain.utils.module_search import folders_on_path
from embodichain.utils.system import stop_signals

SUCCESS_KEYS = ("is_success", "success")
"""Entries of ``info`` that say whether an episode is a success."""


def success_of(key: str, value: Any) -> float:
    """Return what an environment's ``info`` has under a key of ``SUCCESS_KEYS``.

    Raises:
        CommandFailedError: it is not one number or boolean.
    """
    return _number(value, f"info['{key}']: must be one boolean or number, or None where it is not known")


def _number(value: Any, rule: str) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise CommandFailedError(f"{rule}, got {value!r}")
    return float(array.item())


def control_period(env: Any) -> float | None:
    """Return the time between two actions, s: ``dt``, as MuJoCo's environments and others have it; None: not known."""
    try:
        return positive_number(env.dt)
    except Exception:  # noqa: BLE001 (a property of the environment's own code, which may not work before a reset)
        return None


def positive_number(value: Any) -> float | None:
    """Return a finite number above 0 as it is, else None."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 < value < np.inf else None


def image_of(render: Callable[[], Any]) -> np.ndarray | str:
    """Return the image [H, W, 3] uint8 that an environment's ``render`` makes, or the reason why there is none."""
    try:
        image = render()
    except Exception as error:  # noqa: BLE001 (the environment's own code; a training does not depend on its images)
        message = " ".join(str(error).split())
        return with_python(message) or f"its render() raised {type(error).__name__}"
    if isinstance(image, np.ndarray) and image.shape[2:] == (3,) and image.dtype == np.uint8:
        return image
    got = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else f"a {type(image).__name__}"
    return f"its render() must return an array [height, width, 3] of uint8, got {got}"


class Member(gym.Wrapper[Any, Any, Any, Any]):
    """Environment number ``index`` of a vector environment; of the infos it passes on success alone.

    Args:
        env_id: the config's, for errors.

    Raises:
        CommandFailedError: in ``reset`` and ``step``, what the environment returned cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], env_id: str, index: int) -> None:
        super().__init__(env)
        self._id = env_id
        self._index = index
        self._simulations: Simulations = {}
        self._problem = ""
        self._is_first_step = True

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = self.env.reset(seed=seed, options=options or None)
        self._check("reset", obs)
        self._is_first_step = True
        return obs, {}

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._is_first_step:  # of each episode, since it takes time
            self._check("step", obs)
            self._is_first_step = False
        said = {key: success_of(key, info[key]) for key in SUCCESS_KEYS if info.get(key) is not None}
        if not isinstance(reward, float):
            reward = _number(reward, f"{self._id}: step(): the reward must be one number")
        return obs, reward, bool(terminated), bool(truncated), said

    def _check(self, method: str, obs: Any) -> None:
        """Raise a CommandFailedError if an observation does not fit the observation space."""
        problem = observation_problem(self.observation_space, obs)
        if problem:
            raise CommandFailedError(f"{self._id}: {method}(): the observation {problem}")

    @property
    def control_period(self) -> float | None:
        """As the function."""
        return control_period(self.unwrapped)

    def first_image(self) -> np.ndarray | str:
        """Return an image [H, W, 3] uint8 of environment 0, or the reason why there is none; "" of the others."""
        return image_of(self.env.render) if self._index == 0 else ""

    def copy_state(self) -> State | str:
        """Return the state as plain data, or the reason why it is not known."""
        try:
            return copy_state(self.env, self._simulations)
        except UnknownStateError as error:
            return str(error)

    @property
    def restored(self) -> str:
        """Set to a state of ``copy_state`` to restore it; "" then, or the reason why it cannot be restored."""
        # A property, since vector environments set attributes, and do not call methods, with a value for each member.
        return self._problem

    @restored.setter
    def restored(self, state: State) -> None:
        self._problem = ""
        try:
            restore_state(self.env, state, self._simulations)
        except UnknownStateError as error:
            self._problem = str(error)


_NORMALIZERS = {
    "NormalizeObservation": "policy.normalize_obs normalises observations",
    "NormalizeReward": "algorithm.cfg.normalize_returns normalises rewards",
}


def check_wrappers(env: Any) -> None:
    """Refuse an environment with a wrapper of Gymnasium's that normalises, single or of a vector environment.

    An evaluation would build its own, with other statistics than the training's.

    Raises:
        ConfigError: it has one.
    """
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        name = type(env).__name__
        if name in _NORMALIZERS and type(env).__module__.startswith("gymnasium."):
            raise ConfigError(
                f"its wrapper {name} has running statistics of its own, which an evaluation does not share: remove it; "
                f"{_NORMALIZERS[name]}, with statistics that are saved and shared"
            )
        env = env.env


@dataclass(frozen=True)
class MakeMember:
    """Makes environment number ``index``, in this process or another one.

    Attributes:
        env_id: the config's.
        spec: what Gymnasium has registered.
        kwargs: of its constructor.
        max_episode_steps: time limit; None: the registered one.
        folders: where modules of the entry point are looked for, too.
    """

    env_id: str
    spec: EnvSpec
    kwargs: dict[str, Any]
    max_episode_steps: int | None
    index: int
    folders: list[str]

    def __call__(self) -> Member:
        """Return the environment."""
        if parent_process() is not None:
            for number in stop_signals():
                signal.signal(number, signal.SIG_IGN)  # the training ends the process
        with folders_on_path(self.folders):
            # One check of the environment's own mistakes is enough.
            env = gym.make(
                self.spec, self.max_episode_steps, disable_env_checker=True if self.index else None, **self.kwargs
            )
        check_wrappers(env)
        model = getattr(env.unwrapped, "model", None)
        # Images that a policy sees stay as they are.
        if self.kwargs.get("render_mode") == RENDER_MODE and is_model(model) and not has_images(env.observation_space):
            draw_without_shadows(model)
        return Member(env, self.env_id, self.index)
