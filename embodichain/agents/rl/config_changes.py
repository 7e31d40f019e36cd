"""Checks the config of a resumed run: which settings may differ from the run's own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config
from embodichain.lab.gym.env_sources import env_sources
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.utils import ConfigError, placed
from embodichain.utils.configclass import changeable
from embodichain.utils.utility import load_config_file

MAY_CHANGE = (
    *changeable(TrainerCfg, "trainer"),
    *changeable(EmbodiedEnvCfg, "gym_config.env"),
    *(path for source in env_sources() for path in changeable(source.cfg_class, "gym_config")),
)
"""Paths in ``RunConfig.resolved`` of the settings that are ``MayChange`` in their config classes."""
_RECORDERS = ("record_camera_data", "record_camera_data_async")  # events without influence on the training


def check_resumed_config(
    before: dict[str, Any], run: RunConfig, target: str, allowed_imports: Sequence[str] = ()
) -> None:
    """Compare the config of a checkpoint with the one to continue with.

    Args:
        target: the run to resume, for the message.

    Raises:
        ConfigError: they differ in settings that are not ``MayChange``, a line each, or the checkpoint's is invalid.
    """
    own = json.loads(json.dumps(before))
    for path in MAY_CHANGE:
        *blocks, key = path.split(".")
        own_block, block = _block(own, *blocks), _block(run.resolved, *blocks)
        own_block.pop(key, None)
        if key in block:
            own_block[key] = block[key]
    with placed(f"{target}: the run's own config: "):
        saved = load_checkpoint_config(own, (), allowed_imports)
    lines = differences(_without_recorders(saved.resolved), _without_recorders(run.resolved), "")
    if lines:
        raise ConfigError("\n".join([f"{target}: the config is not that of the run:", *lines]))


def changes_of_env_file(
    config: dict[str, Any], overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> list[str]:
    """Return how the file that a run's environment config came from differs from it now, a line each.

    Args:
        config: checkpoint's config. A missing file does not differ; of one that is no config any more,
            the first error is the line.
        overrides: overrides of both.
        allowed_imports: prefixes as for :func:`load_checkpoint_config`.
    """
    path = config["trainer"].get("gym_config")
    if not isinstance(path, str) or not Path(path).is_file():
        return []
    own = load_checkpoint_config(config, overrides, allowed_imports)
    try:
        now = load_checkpoint_config(config | {"gym_config": load_config_file(path)}, overrides, allowed_imports)
    except ConfigError as error:
        return [str(error).partition("\n")[0]]
    return differences(own.resolved["gym_config"], now.resolved["gym_config"], "")


def _without_recorders(config: dict[str, Any]) -> dict[str, Any]:
    """Return a resolved config without the training's recorders, and another library's ``render_mode``."""
    plain: dict[str, Any] = json.loads(json.dumps(config))
    for events in (_block(plain, "trainer", "events", "train"), _block(plain, "gym_config", "env", "events")):
        for name in [name for name, event in events.items() if event["func"] in _RECORDERS]:
            del events[name]
    _block(plain, "gym_config", "kwargs").pop("render_mode", None)
    return plain


def _block(node: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return an inner block, or an empty one where there is none."""
    for key in path:
        inner = node.get(key)
        node = inner if isinstance(inner, dict) else {}
    return node


def differences(before: Any, now: Any, place: str, owner: str = "the run") -> list[str]:
    """Return where two JSON values differ, a line each.

    Args:
        place: path of both, for the lines.
        owner: owner of the first one, for the lines.
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{place}: {json.dumps(before)} in {owner}, {json.dumps(now)} now"]
    lines = []
    for key in dict.fromkeys((*before, *now)):
        inner = f"{place}.{key}".lstrip(".")
        if key in before and key in now:
            lines += differences(before[key], now[key], inner, owner)
        elif key in before:
            lines.append(f"{inner}: {json.dumps(before[key])} in {owner}, not there now")
        else:
            lines.append(f"{inner}: not there in {owner}, {json.dumps(now[key])} now")
    return lines
