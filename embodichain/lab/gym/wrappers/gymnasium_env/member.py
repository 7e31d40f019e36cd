"""One of the environments of a vector environment, in the process that steps it."""

from __future__ import annotations

import signal
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
from embodichain.lab.gym.wrappers.gymnasium_env.spaces import has_images
from embodichain.lab.sim.backend.single_data import draw_without_shadows, is_model
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
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise CommandFailedError(
            f"info['{key}']: must be one boolean or number, or None where it is not known, got {value!r}"
        )
    return float(array.item())


class Member(gym.Wrapper[Any, Any, Any, Any]):
    """Environment number ``index`` of a vector environment; of the infos it passes on success alone."""

    def __init__(self, env: gym.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index
        self._simulations: Simulations = {}
        self._problem = ""

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = self.env.reset(seed=seed, options=options or None)
        return obs, {}

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        said = {key: success_of(key, info[key]) for key in SUCCESS_KEYS if info.get(key) is not None}
        return obs, float(reward), bool(terminated), bool(truncated), said

    def first_image(self) -> np.ndarray | None:
        """Return an image [H, W, 3] uint8 of environment 0, None of the others."""
        image: Any = self.env.render() if self._index == 0 else None
        return image

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


@dataclass(frozen=True)
class MakeMember:
    """Makes environment number ``index``, in this process or another one.

    Attributes:
        spec: what Gymnasium has registered.
        kwargs: of its constructor.
        max_episode_steps: time limit; None: the registered one.
        folders: where modules of the entry point are looked for, too.
    """

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
        model = getattr(env.unwrapped, "model", None)
        # Images that a policy sees stay as they are.
        if self.kwargs.get("render_mode") == RENDER_MODE and is_model(model) and not has_images(env.observation_space):
            draw_without_shadows(model)
        return Member(env, self.index)
