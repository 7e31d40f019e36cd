"""Gymnasium's environments as ones that our learner trains in: ``{"id": "gymnasium:HalfCheetah-v5", "num_envs": 8}``.

Legend: N envs.
"""

import importlib
import os
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Literal, Self

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.ext.gymnasium.foreign_env import RENDER_MODE, ForeignEnv, ForeignEnvCfg, RawStep, rendered
from embodichain.ext.gymnasium.spaces import action_sizes, columns_of, has_images, numbers_of
from embodichain.lab.gym.registry import find_env_spec
from embodichain.lab.sim.backend import draw_without_shadows
from embodichain.utils import CommandFailedError, ConfigError, MayChange, configclass, nearest, placed, replace, system
from embodichain.utils.choices import ACTION_MASK
from embodichain.utils.doors import install_command
from embodichain.utils.module_utils import folders_on_path, import_allowed_modules, import_folders

PREFIX = "gymnasium:"
VectorEnv = Any
"""A ``gymnasium.vector.VectorEnv``; that type lacks lists of seeds and the attributes of its two kinds."""

_END_SECONDS = 5.0  # within which a process whose pipe is closed has ended
_NUMBERS = "numbers"  # of an environment's info, in a tuple: Gymnasium would join dicts
_NORMALIZERS = {
    "NormalizeObservation": "policy.normalize_obs normalises observations",
    "NormalizeReward": "algorithm.cfg.normalize_returns normalises rewards",
}


@configclass
class GymnasiumEnvCfg(ForeignEnvCfg):
    """The config of Gymnasium's environments."""

    vectorization: MayChange[Literal["sync", "async"]] = "sync"
    """``"sync"``: one after the other; ``"async"``: each in a process of its own. Images are made by ``"sync"``."""

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> Self:
        """Return the config with an evaluation's number of environments; with images in this process."""
        changes = {"vectorization": "sync"} if "render_mode" in self.kwargs else {}
        return replace(self, num_envs=num_envs, **changes)

    def with_images(self) -> Self:
        """Return the config of environments that make images, for others to record."""
        return replace(super().with_images(), vectorization="sync")


class GymnasiumEnv(ForeignEnv):
    """N environments of Gymnasium's registry, one after the other or each in a process of its own."""

    def __init__(self, cfg: GymnasiumEnvCfg) -> None:
        # Processes of their own have their own generators.
        self._generators = ForeignGenerators() if cfg.vectorization == "sync" else None
        with self._generators or nullcontext():
            self._envs = _make(cfg)
        try:
            super().__init__(cfg, self._envs.single_observation_space, self._envs.single_action_space)
        except BaseException:
            self._envs.close()
            raise
        self.step_dt = self._envs.get_attr("control_period")[0]
        self.render_fps = self._envs.metadata.get("render_fps") or self.render_fps

    @override
    def close(self) -> None:
        self.stop_recording()
        self._envs.close()

    @override
    def _reset_all(self) -> Any:
        seeds = self._seeds(torch.arange(self.num_envs))
        if self._generators is not None:
            self._generators.seed(seeds[0])
        with self._context():
            return self._envs.reset(seed=seeds)[0]

    @override
    def _reset_rows(self, rows: Tensor) -> TensorDict:
        mask = np.zeros(self.num_envs, dtype=np.bool_)
        mask[rows.numpy()] = True
        seeds = self._seeds(rows)
        with self._context():
            obs, _ = self._envs.reset(seed=seeds, options={"reset_mask": mask})
        return self._observe(obs)[rows]

    @override
    def _step(self, action: np.ndarray) -> RawStep:
        with self._context():
            *results, infos = self._envs.step(action)
        rows = [{} if row is None else row[0] for row in infos.get(_NUMBERS, ())]
        return *results, columns_of(rows) if rows else {}

    @override
    def _render(self) -> Any:
        with self._context():
            return self._envs.envs[0].image() if self._generators else self._envs.call("image")[0]

    def _context(self) -> AbstractContextManager[None]:
        """Return the block in which foreign code runs."""
        return self._generators or self._naming_ended()

    @contextmanager
    def _naming_ended(self) -> Iterator[None]:
        """Name a process of an environment that has ended."""
        try:
            yield
        except (EOFError, OSError) as error:
            processes = self._envs.processes
            ended = wait([process.sentinel for process in processes], _END_SECONDS)
            for number, process in enumerate(processes):
                # Gymnasium has removed the pipe where it raises an environment's own error.
                if process.sentinel in ended and self._envs.parent_pipes[number] is not None:
                    process.join()
                    code = process.exitcode
                    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
                    for other in processes:
                        other.kill()  # they ignore the signal that Gymnasium sends
                    self._envs._state = AsyncState.DEFAULT  # nobody answers the pending call
                    self._envs.close(terminate=True)
                    message = f"{self.cfg.id}: the process of environment {number} has ended {how}"
                    raise CommandFailedError(message) from error
            raise


class _Member(gym.Wrapper[Any, Any, Any, Any]):
    """One of the environments; of its infos it passes on the numbers.

    Args:
        owner: process that makes the vector environment.
    """

    def __init__(self, env: gym.Env[Any, Any], owner: int) -> None:
        super().__init__(env)
        while isinstance(env, gym.Wrapper):
            name = type(env).__name__
            if name in _NORMALIZERS and type(env).__module__.startswith("gymnasium."):
                raise ConfigError(
                    f"its wrapper {name} has running statistics of its own, which an evaluation does not share: remove "
                    f"it; {_NORMALIZERS[name]}, with statistics that are saved and shared"
                )
            env = env.env
        self._has_mask, self._chooses = False, action_sizes(self.env.action_space) is not None
        if self._chooses:
            # Some libraries say in the info which actions there are; a policy reads observations.
            _, info = self.env.reset()
            self._has_mask = ACTION_MASK in info
        if self._has_mask:
            mask = gym.spaces.Box(0, 1, _flat_mask(info).shape, np.int8)
            self.observation_space = gym.spaces.Dict(observation=self.env.observation_space, action_mask=mask)
        self._is_worker = os.getpid() != owner
        if self._is_worker:
            for number in system.stop_signals():
                signal.signal(number, signal.SIG_IGN)  # the training ends the process
        model = getattr(env, "model", None)
        # Images that a policy sees stay as they are.
        if self.env.render_mode == RENDER_MODE and not has_images(self.env.observation_space):
            draw_without_shadows(model)

    @property
    def control_period(self) -> float | None:
        """The time between two actions, s: ``dt``, as MuJoCo's environments and others have it; None: not known."""
        try:
            return float(self.unwrapped.dt)  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001 (a property of foreign code, which may not work before a reset)
            return None

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._is_worker and seed is not None:  # all workers begin with the same global generators
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
        obs, info = self.env.reset(seed=seed, options=options or None)
        return self._observed(obs, info), {}

    def image(self) -> Any:
        """Return an image, or the reason why there is none."""
        return rendered(self.env.render)

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not isinstance(reward, float):
            reward = float(np.asarray(reward).item())
        obs = self._observed(obs, info)
        return obs, reward, terminated, truncated, {_NUMBERS: (numbers,)} if (numbers := numbers_of(info)) else {}

    def _observed(self, obs: Any, info: Mapping[str, Any]) -> Any:
        if self._chooses and (ACTION_MASK in info) != self._has_mask:
            raise ConfigError("its info has an action_mask after some resets and steps alone: it must have one always")
        return {"observation": obs, ACTION_MASK: _flat_mask(info)} if self._has_mask else obs


def _flat_mask(info: Mapping[str, Any]) -> np.ndarray:
    """Return the mask of an info, one array or, as ``MultiDiscrete.sample`` takes it, one for each component."""
    mask = info[ACTION_MASK]
    return np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple) else np.ravel(mask)


def _make(cfg: GymnasiumEnvCfg) -> VectorEnv:
    """Build the vector environment, which resets nothing by itself."""
    spec, kwargs = find_spec(cfg.id), dict(cfg.kwargs)
    settings: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}
    if cfg.vectorization == "async":
        settings["context"] = system.worker_start_method([__name__])
    if cfg.max_episode_steps is not None:
        kwargs["max_episode_steps"] = cfg.max_episode_steps
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    # The user allowed them. Not the working directory for others, whose missing packages a file there would replace.
    folders = import_folders([_parts(cfg.id)[0], module])
    with placed(f"{cfg.id}: "), folders_on_path(folders), system.starting_workers():
        try:
            return gym.make_vec(
                spec, cfg.num_envs, cfg.vectorization, settings, [partial(_Member, owner=os.getpid())], **kwargs
            )
        except (ModuleNotFoundError, gym.error.DependencyNotInstalled) as error:
            # Gymnasium names its extras as its packages: gymnasium.envs.mujoco, gymnasium.envs.box2d.
            package, _, rest = str(spec.entry_point).partition("gymnasium.envs.")
            if package or not rest:
                raise
            extra = rest.partition(".")[0].partition(":")[0]
            raise ConfigError(f"{error}; to install it: {install_command(f'gymnasium[{extra}]')}") from error


def check_gymnasium_id(env_id: str, allowed_imports: Sequence[str]) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a config, after importing the package that it names.

    Args:
        allowed_imports: prefixes of the packages that it may name.
    """
    module, _ = _parts(env_id)
    if module:
        import_allowed_modules([module], allowed_imports, "id")
    return find_spec(env_id)


def find_spec(env_id: str) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a checked config."""
    module, name = _parts(env_id)
    if module:
        with folders_on_path([os.getcwd()]):
            importlib.import_module(module)
    if find_env_spec(name) is not None:
        raise ConfigError(
            f"id: '{name}' is EmbodiChain's own environment: write \"id\": \"{name}\", without '{PREFIX}'"
        )
    spec = gym.registry.get(name)
    if spec is None:
        hint = "" if module else f" If a package registers it, write '{PREFIX}<package>:{name}'"
        raise ConfigError(f"id: Gymnasium has no environment '{name}'.{nearest(name, gym.registry)}{hint}")
    return spec


def _parts(env_id: str) -> tuple[str, str]:
    """Return the package that an id names, or "", and the name of the environment."""
    module, _, name = env_id.removeprefix(PREFIX).rpartition(":")
    return module, name


class ForeignGenerators:
    """Python's, NumPy's and torch's global generators of foreign code, which are in place inside the ``with`` block.

    A foreign ``reset`` or ``step`` that draws from them, or seeds them, neither repeats nor shifts the learner's draws.
    Not for blocks during which another thread draws.
    """

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed the foreign code's generators."""
        self._torch = [torch.Generator(g.device).manual_seed(seed).get_state() for g in _torch_generators()]
        self._numpy = np.random.MT19937(seed)
        self._python = random.Random(seed).getstate()

    def __enter__(self) -> None:
        generators = _torch_generators()
        self._learners_torch = [generator.get_state() for generator in generators]
        for generator, state in zip(generators, self._torch, strict=False):  # CUDA may have started since
            generator.set_state(state)
        self._learners_numpy = np.random.get_bit_generator()  # type: ignore[attr-defined]
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        self._learners_python = random.getstate()
        random.setstate(self._python)

    def __exit__(self, *error: object) -> None:
        generators = _torch_generators()
        self._torch = [generator.get_state() for generator in generators]
        for generator, state in zip(generators, self._learners_torch, strict=False):
            generator.set_state(state)
        np.random.set_bit_generator(self._learners_numpy)  # type: ignore[attr-defined]
        self._python = random.getstate()
        random.setstate(self._learners_python)


def _torch_generators() -> tuple[torch.Generator, ...]:
    return (torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ()))
