"""The environment's mirror map from the config block ``env.symmetry``."""

from collections.abc import Mapping
from typing import Literal

from gymnasium import spaces

from embodichain.utils import ConfigError, collected, configclass, raise_problems, unknown_name
from embodichain.utils.observations import Mirror, MirrorMap, entry_columns


@configclass
class MirrorCfg:
    """The mirror image of a vector: component i becomes ``signs[i] * x[permutation[i]]``."""

    permutation: list[int]
    """Source of each component, an index from 0."""
    signs: list[Literal[-1, 1]]
    """Factor of each component."""


@configclass
class EnvSymmetryCfg:
    """Mirror images of observations and actions, left and right exchanged."""

    observations: dict[str, MirrorCfg] = {}
    """Entries of the flat observation by name, such as ``joints/pos``: all of them."""
    actions: dict[str, MirrorCfg] = {}
    """Action terms by name: all of them."""


def build_mirror_map(cfg: EnvSymmetryCfg, observation: spaces.Dict, action_dims: Mapping[str, int]) -> MirrorMap:
    """Return the mirror map of an environment, on the CPU.

    Args:
        observation: one environment's observation space.
        action_dims: size of each action term, in their order.

    Raises:
        ConfigError: a line for each entry or action term that is missing, unknown or of another size, or a mirror
            image of a mirror image that is not the vector itself.
    """
    problems: list[str] = []
    entry_dims = {name: columns.stop - columns.start for name, columns in entry_columns(observation).items()}
    parts = {
        "observations": _mirrors(cfg.observations, entry_dims, "env.symmetry.observations", problems),
        "actions": _mirrors(cfg.actions, action_dims, "env.symmetry.actions", problems),
    }
    raise_problems(problems)
    return MirrorMap(Mirror.joined(parts["observations"]), Mirror.joined(parts["actions"]))


def _mirrors(cfg: Mapping[str, MirrorCfg], sizes: Mapping[str, int], place: str, problems: list[str]) -> list[Mirror]:
    problems += [f"{place}: {unknown_name('name', name, sizes)}" for name in cfg if name not in sizes]
    problems += [f"{place}.{name}: required, but missing" for name in sizes if name not in cfg]
    found = []
    for name in (name for name in sizes if name in cfg):
        with collected(problems):
            mirror = Mirror.of(cfg[name].permutation, cfg[name].signs, f"{place}.{name}")
            if mirror.size != sizes[name]:
                raise ConfigError(f"{place}.{name}: has {mirror.size} components, needed are {sizes[name]}")
            found.append(mirror)
    return found
