"""Converts the older layout of a training config with the environment's inside: ``"env": {"id": ..., "cfg": {...}}``.

``cfg`` has differences from the task's packaged config, with the blocks of the file's ``env`` next to the others.
"""

from __future__ import annotations

from typing import Any

from embodichain.ext.upstream.translation import Translation
from embodichain.lab.gym.config.env_config import TOP_KEYS, ConfigFile
from embodichain.lab.gym.registry import find_env_spec


def whole_env(block: Any, training: Translation) -> dict[str, Any]:
    """Return the environment's config that a training config's ``env`` block means.

    Where ``cfg`` gives a block (``actions``, ``rewards``, ``robot``, ...), it takes the place of the packaged config's;
    ``extensions`` are put into the packaged ones one by one. What is wrong is added to ``training.problems``.
    """
    given = block if isinstance(block, dict) else {}
    cfg = training.inside("env.cfg", given.get("cfg", {}))
    if not isinstance(block, dict) or set(block) - {"id", "cfg"} or cfg.data is not given.get("cfg", cfg.data):
        training.refuse("env", f"must be an object with 'id' and 'cfg', an object, got {block!r}")
    env = cfg.take_object("env").data
    top = {key: data.pop(key) for data in (cfg.data, env) for key in TOP_KEYS if key in data}
    _read_oldest(cfg, top)
    for key in cfg.data.keys() & env.keys():
        cfg.refuse(key, f"is given as 'env.cfg.env.{key}', too")
    env |= cfg.data
    env_id = given.get("id", top.get("id"))
    spec = find_env_spec(env_id)
    default = None if spec is None else spec.default_cfg
    packaged = default.read() if isinstance(default, ConfigFile) else {}
    inner = packaged.get("env", {})
    if isinstance(own := env.get("extensions"), dict):  # a task reads all of its own
        env["extensions"] = inner.get("extensions", {}) | own
    scale = env.pop("action_scale", None)
    data = packaged | top | {"id": env_id, "env": inner | env}
    if scale is not None:
        translation = Translation(data, "", training.problems, training.moved)
        _scale_actions(scale, translation, is_packaged="actions" not in env)
    return data


def _read_oldest(cfg: Translation, top: dict[str, Any]) -> None:
    """Translate keys of the oldest form, except for the actions' scale."""
    cfg.require("obs_mode", ("state",), "images are observed where 'sensor' has cameras")
    if (length := cfg.take("episode_length")) is not None:
        Translation(top, "env.cfg.", cfg.problems, cfg.moved).put("max_episode_steps", length, "episode_length")
    cfg.move("success_threshold", "extensions.success_threshold")


def _scale_actions(scale: Any, env: Translation, is_packaged: bool) -> None:
    """Move the oldest form's scale of the actions into the only action term."""
    terms = env.get("env.actions")
    names = list(terms) if isinstance(terms, dict) else []
    if len(names) == 1:
        if is_packaged:
            env.take(f"env.actions.{names[0]}.params.scale")
        env.put(f"env.actions.{names[0]}.params.scale", scale, "env.cfg.action_scale")
    else:
        env.refuse("env.cfg.action_scale", f"write 'env.actions.<name>.params.scale' of one of: {', '.join(names)}")
