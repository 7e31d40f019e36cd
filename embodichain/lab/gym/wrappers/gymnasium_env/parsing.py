"""From the data of a Gymnasium environment's config to the typed, checked one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embodichain.lab.gym.envs.managers.scene_names import SceneNames
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import (
    GYMNASIUM_KEYS,
    OWN_FORM,
    PREFIX,
    RENDER_MODE,
    GymnasiumEnvCfg,
    file_data,
)
from embodichain.lab.gym.wrappers.gymnasium_env.registry import check_gymnasium_id
from embodichain.utils.errors import collected, raise_problems, unknown_key
from embodichain.utils.validation import parse


@dataclass(frozen=True)
class ParsedGymnasiumEnv:
    """A Gymnasium environment's config, typed and checked.

    Attributes:
        cfg: the typed config, without what is wrong.
        time_limit: of episodes, steps; None if there is none.
        problems: what is wrong, a line each.
        names: what terms may name in its scene, which is unknown.
    """

    cfg: GymnasiumEnvCfg
    time_limit: int | None
    problems: list[str]
    names: SceneNames = field(default_factory=lambda: SceneNames(None, None))

    def data(self) -> dict[str, Any]:
        """Return the content of a file that is parsed to the same config."""
        return file_data(self.cfg)


def gymnasium_cfg(data: Mapping[str, Any], allowed_imports: Sequence[str] = ()) -> GymnasiumEnvCfg:
    """Return the typed config of a file's content.

    Raises:
        ConfigError: with every error found, a line each.
    """
    parsed = parse_gymnasium(data, allowed_imports)
    raise_problems(parsed.problems)
    return parsed.cfg


def parse_gymnasium(data: Mapping[str, Any], allowed_imports: Sequence[str] = ()) -> ParsedGymnasiumEnv:
    """Turn a parsed config into a typed one and check it; the package that its ``id`` names is imported.

    Args:
        data: whose ``id`` begins with ``gymnasium:``.
        allowed_imports: prefixes of the packages that ``id`` may name.
    """
    known = (*GYMNASIUM_KEYS, "$schema")
    problems = [f"{key}: {unknown_key(key, GYMNASIUM_KEYS)}" for key in data if key not in known]
    cfg, wrong = parse(GymnasiumEnvCfg, {key: data[key] for key in GYMNASIUM_KEYS if key in data}, "")
    problems += [f"{path}: {problem}" for path, problem in wrong.items()]
    cfg, limit = cfg or GymnasiumEnvCfg(PREFIX), None
    with collected(problems):
        spec = check_gymnasium_id(cfg.id, allowed_imports)
        limit = spec.max_episode_steps
        if cfg.vectorization == OWN_FORM and spec.vector_entry_point is None:
            problems.append(f"vectorization: '{spec.id}' has no vector form of its own; use 'sync' or 'async'")
        if cfg.vectorization != OWN_FORM and spec.entry_point is None:
            problems.append(f"vectorization: '{spec.id}' has a vector form alone; use '{OWN_FORM}'")
    mode = cfg.kwargs.get("render_mode", RENDER_MODE)
    if mode != RENDER_MODE:
        problems.append(f"kwargs.render_mode: must be '{RENDER_MODE}', for videos of evaluations, got {mode!r}")
    return ParsedGymnasiumEnv(cfg, cfg.max_episode_steps or limit, problems)
