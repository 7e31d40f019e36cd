"""The older layout in which a training config has the environment's inside: ``"env": {"id": ..., "cfg": {...}}``.

``cfg`` has differences from the task's packaged config, with the blocks of the file's ``env`` next to the others. It
is converted to a whole environment config in the present layout, with the path of each part in the user's file.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodichain.lab.gym.config.env_config import ENV_KEYS, TOP_KEYS, ConfigFile, defaults_of
from embodichain.lab.gym.config.scene_checks import has_config_robot
from embodichain.lab.gym.registry import EnvSpec, find_env_spec
from embodichain.utils import logger
from embodichain.utils.errors import unknown_key

_PLACE = "env.cfg"
_OLDEST = ("obs_mode", "episode_length", "action_scale", "success_threshold")
_MERGED = "extensions"  # a task reads all of its own, so keys that cfg leaves out keep the packaged values


@dataclass
class InlineEnv:
    """An environment's config from inside a training config.

    Attributes:
        data: the whole of it, in the present layout.
        problems: errors of the layout, a line each.
        written: path in ``data`` -> path in the user's file, of each part that the user gave.
        missing: paths in ``data`` that a line of ``problems`` reports as missing.
        packaged: task with the packaged config for the rest; None: there is none.
        folder: folder of the packaged config.
    """

    data: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    packaged: str | None = None
    folder: Path = Path()

    def in_users_words(self, lines: Sequence[str]) -> list[str]:
        """Return lines about ``data`` with the paths of the user's file, without the lines of ``missing``."""
        return [self._placed(line) for line in lines if line.partition(":")[0] not in self.missing]

    def _placed(self, line: str) -> str:
        if "(set by the override '" in line:
            return line  # with the path that the override has
        path = line.partition(":")[0]
        for inner in sorted(self.written, key=len, reverse=True):
            if path == inner or path.startswith((f"{inner}.", f"{inner}[")):
                return self.written[inner] + line[len(inner) :]
        if self.packaged is None:
            return f"{_PLACE}.{line}"
        return f"{_PLACE}, with the rest of it from {self.packaged}'s packaged config: {line}"


def read_inline_env(block: Any) -> InlineEnv:
    """Return the environment's config that a training config's ``env`` block means.

    Where ``cfg`` gives a block (``actions``, ``rewards``, ``robot``, ...), it takes the place of the packaged config's;
    ``extensions`` are put into the packaged ones one by one.

    Args:
        block: ``{"id": ..., "cfg": {...}}``.
    """
    found = InlineEnv()
    if not isinstance(block, dict):
        found.problems.append(f"env: must be an object with 'id' and 'cfg', got {block!r}")
        block = {}
    found.problems += [f"env.{key}: {unknown_key(key, ('id', 'cfg'))}" for key in block if key not in ("id", "cfg")]
    cfg = block.get("cfg", {})
    if not isinstance(cfg, dict):
        found.problems.append(f"{_PLACE}: must be an object, got {cfg!r}")
        cfg = {}
    top, env, oldest = _sorted(copy.deepcopy(cfg), found)
    _take_id(block, top, found)
    spec = find_env_spec(found.data["id"])
    default = None if spec is None else spec.default_cfg
    packaged: dict[str, Any] | None = None
    if isinstance(default, ConfigFile):
        packaged, found.folder = default.read(), default.path.parent
        found.packaged = found.data["id"]
    _translate(oldest, top, env, found)
    found.data = _completed(packaged or {}, found.data | top, env)
    if "action_scale" in oldest:
        _scale_actions(oldest["action_scale"], found)
    _check_missing(spec, found)
    return found


def _sorted(cfg: dict[str, Any], found: InlineEnv) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split ``cfg`` into keys of the config's top, of its ``env`` block, and of the oldest form."""
    cfg.pop("$schema", None)
    env = cfg.pop("env", {})
    if not isinstance(env, dict):
        found.problems.append(f"{_PLACE}.env: must be an object, got {env!r}")
        env = {}
    top = {key: env.pop(key) for key in TOP_KEYS if key in env and key in ENV_KEYS}  # as num_envs, in either place
    found.written |= {key: f"{_PLACE}.env.{key}" for key in top}
    found.written |= {f"env.{key}": f"{_PLACE}.env.{key}" for key in env}
    oldest: dict[str, Any] = {}
    for key, value in cfg.items():
        place = f"{_PLACE}.{key}"
        block, path = (top, key) if key in TOP_KEYS else (env, f"env.{key}")
        if key in _OLDEST:
            oldest[key] = value
        elif key not in TOP_KEYS and key not in ENV_KEYS:
            found.problems.append(f"{place}: {unknown_key(key, dict.fromkeys((*TOP_KEYS, *ENV_KEYS)))}")
        elif path in found.written:
            found.problems.append(f"{place}: is given as '{found.written[path]}', too")
        else:
            block[key], found.written[path] = value, place
    return top, env, oldest


def _take_id(block: dict[str, Any], top: dict[str, Any], found: InlineEnv) -> None:
    """Set the task's id, which may also be in ``cfg``."""
    inner = top.pop("id", None)
    env_id = block.get("id", inner)
    if inner not in (None, env_id):
        found.problems.append(f"env.id: is {env_id!r}, and '{_PLACE}.id' is {inner!r}")
    found.data["id"] = env_id
    found.written["id"] = "env.id"


def _translate(oldest: dict[str, Any], top: dict[str, Any], env: dict[str, Any], found: InlineEnv) -> None:
    """Translate keys of the oldest form, except for the actions' scale."""
    if (mode := oldest.get("obs_mode", "state")) != "state":
        found.problems.append(
            f"{_PLACE}.obs_mode: must be 'state', got {mode!r}; images are observed where 'sensor' has cameras"
        )
    elif "obs_mode" in oldest:
        logger.log_warning(f"{_PLACE}.obs_mode: deprecated, leave it out: 'env.observations' says what is observed")
    if "episode_length" in oldest:
        _move(oldest["episode_length"], "episode_length", top, "max_episode_steps", "", found)
    extensions = env.setdefault(_MERGED, {}) if "success_threshold" in oldest else None
    if isinstance(extensions, dict):
        _move(
            oldest["success_threshold"], "success_threshold", extensions, "success_threshold", "env.extensions", found
        )


def _move(value: Any, key: str, block: dict[str, Any], name: str, place: str, found: InlineEnv) -> None:
    """Move the value of an oldest key into a block of the config, unless the block has one."""
    path = f"{place}.{name}".lstrip(".")
    if name in block:
        written = found.written.get(path) or f"{found.written[place]}.{name}"
        found.problems.append(f"{_PLACE}.{key}: is the older form of '{written}', which is given too")
        return
    logger.log_warning(f"{_PLACE}.{key}: deprecated, write '{path}'")
    block[name], found.written[path] = value, f"{_PLACE}.{key}"


def _completed(packaged: dict[str, Any], top: dict[str, Any], env: dict[str, Any]) -> dict[str, Any]:
    """Merge the user's parts into the packaged config."""
    inner = packaged.get("env", {})
    whole = inner | env
    extensions = env.get(_MERGED, {})
    if isinstance(extensions, dict) and (extensions or _MERGED in whole):
        whole[_MERGED] = inner.get(_MERGED, {}) | extensions
    return packaged | top | {"env": whole}


def _scale_actions(scale: Any, found: InlineEnv) -> None:
    """Move the oldest form's scale of the actions into the only action term."""
    place = f"{_PLACE}.action_scale"
    terms = found.data["env"].get("actions")
    if not isinstance(terms, dict) or not terms:
        return  # reported elsewhere
    if len(terms) > 1:
        found.problems.append(
            f"{place}: which of the actions {', '.join(terms)} is meant? Write 'env.actions.<name>.params.scale'"
        )
        return
    ((name, term),) = terms.items()
    params = term.setdefault("params", {}) if isinstance(term, dict) else None
    if not isinstance(params, dict):
        return  # reported elsewhere
    path = f"env.actions.{name}.params"
    if "scale" in params and "env.actions" in found.written:
        written = f"{found.written['env.actions']}.{name}.params.scale"
        found.problems.append(f"{place}: is the older form of '{written}', which is given too")
        return
    logger.log_warning(f"{place}: deprecated, write '{path}.scale'")
    params["scale"], found.written[f"{path}.scale"] = scale, place


def _check_missing(spec: EnvSpec | None, found: InlineEnv) -> None:
    """Add the one-line error for missing keys that only a packaged config could have; none for an unknown task."""
    needs_robot = spec is None or has_config_robot(spec.cls)
    missing = ["robot"] * (needs_robot and "robot" not in found.data)
    own = {} if spec is None else defaults_of(spec.cls).get("env", {})
    missing += ["actions"] * ("actions" not in {**own, **found.data["env"]})
    if missing and found.packaged is None:
        found.missing = [{"actions": "env.actions"}.get(name, name) for name in missing]
        if spec is not None:
            found.problems.append(
                f"{_PLACE}: lacks {' and '.join(missing)}, and '{spec.env_id}' has no packaged config to take the rest "
                "from: write it here, or name the task's environment config in 'trainer.gym_config'"
            )
