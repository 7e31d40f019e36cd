"""Mapping of our observation's entries to a LeRobot policy's features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from embodichain.ext.vla.gaussian_vla import IMAGE, INSTRUCTION
from embodichain.ext.vla.gaussian_vla import STATE as STATE_ENTRY
from embodichain.ext.vla.lerobot.config import ACTION, STATE, LeRobotCfg
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

PLACE = "policy.vla_config.features"
_CHANNELS = 3


def find_entries(cfg: LeRobotCfg, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the entry for each image feature that is used, in the policy's order.

    Args:
        given: entries by feature, as the user wrote; None: the image is left out, which a clone of the policy has not
            any more. A feature ``observation.images.x`` that is not in it is the entry ``image/x``.

    Raises:
        ConfigError: a feature with an entry is unknown, an entry is no image, or none is left.
    """
    for name, entry in given.items():
        if name not in cfg.images and entry is not None:
            raise ConfigError(f"{PLACE}: {unknown_name('image feature', name, cfg.images)}")
        if entry is not None and not entry.startswith(IMAGE):
            raise ConfigError(f"{PLACE}.{name}: must be an entry '{IMAGE}<camera>' or null, got '{entry}'")
    entries = {name: given.get(name, _same_name(name)) for name in cfg.images}
    used = {name: entry for name, entry in entries.items() if entry is not None}
    if not used:
        raise ConfigError(f"{PLACE}: leaves out all images of the policy: {', '.join(cfg.images)}")
    return used


def _same_name(feature: str) -> str:
    return IMAGE + feature.removeprefix("observation.").removeprefix("images.")


def check_entries(
    cfg: LeRobotCfg, entries: Mapping[str, str], observed: Mapping[str, spaces.Space[Any]], action_dim: int, place: str
) -> None:
    """Check that an environment has a policy's inputs and accepts its actions.

    Args:
        entries: result of ``find_entries``.
        observed: the environment's observation by entry.
        place: the config's key and the policy's folder, for the message.

    Raises:
        ConfigError: both sides and the mismatch.
    """
    shapes = {name: list(space.shape or ()) for name, space in observed.items()}
    state, action = cfg.input_features[STATE].shape, cfg.output_features[ACTION].shape
    problems = [f"{name} needs an image '{entry}'" for name, entry in entries.items() if not _is_image(shapes, entry)]
    if shapes.get(STATE_ENTRY) != state:
        problems.append(f"{STATE} {state} needs '{STATE_ENTRY}' of this shape")
    if INSTRUCTION not in shapes:
        problems.append(f"the task needs '{INSTRUCTION}'")
    if action != [action_dim]:
        problems.append(f"{ACTION} {action} differs from the environment's [{action_dim}]")
    if not problems:
        return
    read = ", ".join(f"{name} {feature.shape}" for name, feature in cfg.input_features.items())
    there = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    raise ConfigError(
        f"{place}: {'; '.join(problems)}. The policy reads {read} and gives {ACTION} "
        f"{action}; the environment has {there} and takes actions [{action_dim}]. Name images in {PLACE}"
    )


def _is_image(shapes: Mapping[str, list[int]], entry: str) -> bool:
    shape = shapes.get(entry, [])
    return len(shape) == 3 and shape[2] == _CHANNELS
