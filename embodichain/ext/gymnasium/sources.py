"""The doors of these environments: the ids ``gymnasium:...`` and ``envpool:...``."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
from typing_extensions import override

from embodichain.ext.gymnasium.envpool_env import EnvPoolCfg, EnvPoolEnv, import_envpool
from embodichain.ext.gymnasium.foreign_env import RENDER_MODE, ForeignEnv, ForeignEnvCfg, file_data
from embodichain.ext.gymnasium.gymnasium_env import PREFIX, GymnasiumEnv, GymnasiumEnvCfg, check_gymnasium_id
from embodichain.lab.gym.env_sources import EnvSource, ParsedTask
from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError, collected, device, nearest, parse, unknown_key


class _ForeignSource(EnvSource):
    """Environments whose config's file has the fields of ``cfg_class`` that are ``keys``."""

    env_class: ClassVar[type[Any]]

    def parse(self, data: Mapping[str, Any], allowed_imports: Sequence[str]) -> ParsedTask[Any]:
        """Turn a parsed config into a typed one and check it; see ``EnvSource.parse``."""
        known = (*self.keys, "$schema")
        problems = [f"{key}: {unknown_key(key, self.keys)}" for key in data if key not in known]
        cfg, wrong = parse(self.cfg_class, {key: data[key] for key in self.keys if key in data}, "")
        problems += [f"{path}: {problem}" for path, problem in wrong.items()]
        cfg, limit = cfg or self.cfg_class(self.prefix), None
        with collected(problems):
            limit = self.registered_limit(cfg.id, allowed_imports)
        mode = cfg.kwargs.get("render_mode", RENDER_MODE)
        if mode != RENDER_MODE:
            problems.append(f"kwargs.render_mode: must be '{RENDER_MODE}', for videos of evaluations, got {mode!r}")
        return ParsedTask(cfg, cfg.id, cfg.max_episode_steps or limit, problems, partial(file_data, cfg))

    def registered_limit(self, env_id: str, allowed_imports: Sequence[str]) -> int | None:
        """Return the registered time limit of an id's environment, steps; None if there is none."""
        raise NotImplementedError

    def build(self, cfg: ForeignEnvCfg) -> ForeignEnv:
        """Build the environments; see ``EnvSource.build``."""
        device.check_memory("num_envs", f"{cfg.num_envs:,} environments", cfg.num_envs * _MIN_BYTES)
        env: ForeignEnv = self.env_class(cfg)
        return env


class GymnasiumSource(_ForeignSource):
    """Gymnasium's registered environments; the package that an id names is imported."""

    prefix = PREFIX
    cfg_class, env_class = GymnasiumEnvCfg, GymnasiumEnv
    keys = ("id", "kwargs", "num_envs", "vectorization", "max_episode_steps")

    @override
    def registered_limit(self, env_id: str, allowed_imports: Sequence[str]) -> int | None:
        return check_gymnasium_id(env_id, allowed_imports).max_episode_steps

    def suggested_id(self, env_id: str) -> str | None:
        """Return the id of an environment that was named without the prefix."""
        return f"{PREFIX}{env_id}" if env_id in gym.registry and find_env_spec(env_id) is None else None

    def problems_beside_updates(self, cfg: GymnasiumEnvCfg) -> list[str]:
        """Return the reason why environments of this process cannot step while another thread draws."""
        if cfg.vectorization == "async":
            return []
        return [
            "vectorization: asynchronous collection steps these environments during the updates, whose random draws "
            "they could change: use 'async', which gives each a process of its own"
        ]


class EnvPoolSource(_ForeignSource):
    """EnvPool's environments, which bring their own MuJoCo."""

    prefix = "envpool:"
    cfg_class, env_class = EnvPoolCfg, EnvPoolEnv
    keys = ("id", "kwargs", "num_envs", "max_episode_steps")

    @override
    def registered_limit(self, env_id: str, allowed_imports: Sequence[str]) -> int | None:
        envpool, name = import_envpool(), env_id.removeprefix(self.prefix)
        known = envpool.list_all_envs()
        if name not in known:
            raise ConfigError(f"id: EnvPool has no environment '{name}'.{nearest(name, known)}")
        limit: int = envpool.make_spec(name).config.max_episode_steps
        return limit if limit < _NO_LIMIT else None


_MIN_BYTES = 5_000  # of an environment: its object and its spaces
_NO_LIMIT = 2**31 - 1  # EnvPool's
GYMNASIUM = GymnasiumSource()
ENVPOOL = EnvPoolSource()
