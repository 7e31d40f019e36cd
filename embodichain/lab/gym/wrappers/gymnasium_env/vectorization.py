"""N Gymnasium environments as one of Gymnasium's vector environments."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from typing_extensions import override

from embodichain.lab.gym.wrappers.gymnasium_env.autoreset import VectorEnv
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import OWN_FORM, GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.member import MakeMember, check_wrappers
from embodichain.lab.gym.wrappers.gymnasium_env.registry import find_spec, named_modules, with_python
from embodichain.utils import ConfigError
from embodichain.utils.errors import CommandFailedError
from embodichain.utils.module_search import folders_on_path, import_folders
from embodichain.utils.parent import starting_workers
from embodichain.utils.system import worker_start_method

_END_SECONDS = 5.0  # within which a process whose pipe is closed has ended
# What constructors raise for wrong arguments or missing packages.
_CONSTRUCTOR_ERRORS = (
    gym.error.Error,
    AssertionError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
_PRELOAD = "embodichain.lab.gym.wrappers.gymnasium_env.member"


def make_vector_env(cfg: GymnasiumEnvCfg) -> VectorEnv:
    """Build the vector environment of a config. Gymnasium's own reset nothing by themselves; see ``SameStepReset``.

    Raises:
        ConfigError: the constructor does not take ``kwargs``, or something that it needs is not installed.
    """
    spec = find_spec(cfg.id)
    # Of modules that the user allowed. Files of the working directory must not run in place of missing packages.
    folders = import_folders([*named_modules(cfg.id), _entry_module(spec)])
    limit: dict[str, Any] = {} if cfg.max_episode_steps is None else {"max_episode_steps": cfg.max_episode_steps}
    members = [MakeMember(cfg.id, spec, cfg.kwargs, cfg.max_episode_steps, i, folders) for i in range(cfg.num_envs)]
    with _building(cfg), folders_on_path(folders):
        if cfg.vectorization == OWN_FORM:
            envs = gym.make_vec(spec, cfg.num_envs, cfg.vectorization, **limit, **cfg.kwargs)
            check_wrappers(envs)
            return envs
        if cfg.vectorization == "sync":
            return SyncVectorEnv(members, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        return _MembersInProcesses(cfg.id, members)


class _MembersInProcesses(AsyncVectorEnv):
    """Environments in a process each; a process that has ended is a CommandFailedError, in any call."""

    def __init__(self, env_id: str, members: Sequence[MakeMember]) -> None:
        self._id = env_id
        self.processes: list[Any] = []
        self.parent_pipes: list[Any] = []
        method = worker_start_method([_PRELOAD])
        with self._naming_ended(), starting_workers():
            super().__init__(members, copy=False, context=method, autoreset_mode=AutoresetMode.DISABLED)

    @override
    def reset(self, **kwargs: Any) -> Any:
        with self._naming_ended():
            return super().reset(**kwargs)

    @override
    def step(self, actions: Any) -> Any:
        with self._naming_ended():
            return super().step(actions)

    @override
    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self._naming_ended():
            return super().call(name, *args, **kwargs)

    @override
    def set_attr(self, name: str, values: Any) -> None:
        with self._naming_ended():
            super().set_attr(name, values)

    @contextmanager
    def _naming_ended(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            message = self._ended()
            if message is None:  # the environment itself has raised it
                raise
            for process in self.processes:
                process.kill()  # they ignore what terminate() sends
            self._state = AsyncState.DEFAULT  # nobody answers the pending call
            self.close(terminate=True)
            raise CommandFailedError(message) from error

    def _ended(self) -> str | None:
        """Return which process has ended, and how; None: none by itself."""
        ended = wait([process.sentinel for process in self.processes], _END_SECONDS)
        for number, (process, pipe) in enumerate(zip(self.processes, self.parent_pipes, strict=True)):
            # Gymnasium has removed the pipe where it raises an environment's own error.
            if process.sentinel in ended and pipe is not None:
                process.join()
                code = process.exitcode
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
                return f"{self._id}: the process of environment {number} has ended {how}"
        return None


def _entry_module(spec: EnvSpec) -> str:
    """Return the module that has an environment's class."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))


@contextmanager
def _building(cfg: GymnasiumEnvCfg) -> Iterator[None]:
    """Turn what a constructor raises for wrong arguments or missing packages into a ConfigError of one line."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{cfg.id}: {error}") from error
    except _CONSTRUCTOR_ERRORS as error:
        kwargs: Any = f" with the kwargs {cfg.kwargs}" if cfg.kwargs else ""
        last = traceback.extract_tb(error.__traceback__)[-1]
        reason = with_python(" ".join(str(error).split())) or f"{last.filename}, line {last.lineno}"
        if isinstance(error, TypeError) and "render_mode" in cfg.kwargs:
            reason += "; images need an environment whose constructor takes render_mode"
        raise ConfigError(f"{cfg.id}: cannot be built{kwargs}: {type(error).__name__}: {reason}") from error
