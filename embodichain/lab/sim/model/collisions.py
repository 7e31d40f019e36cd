"""The collisions of an articulation's links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco

from embodichain.lab.sim.model.drives import match_names


def limit_collisions(spec: mujoco.MjSpec, links: Mapping[str, str], patterns: Sequence[str], place: str) -> None:
    """Disable the collisions of all shapes except the named ones and the named links'; no patterns: of all.

    Args:
        links: short name -> name in the spec.
        patterns: names or regular expressions of links that have collision shapes, or of such shapes.

    Raises:
        ConfigError: a pattern matches neither, or is no regular expression.
    """
    touching = [geom for geom in spec.geoms if geom.contype or geom.conaffinity]
    short = {full: name for name, full in links.items()}
    # A shape of the world, such as a floor in the file, has no link.
    owners = [short.get(geom.parent.name, "") for geom in touching]
    names = [name for name in links if name in owners] + [geom.name for geom in touching if geom.name]
    kept = set(match_names(patterns, names, place, "link or collision shape"))
    for geom, owner in zip(touching, owners, strict=True):
        if not kept & {owner, geom.name}:
            geom.contype = geom.conaffinity = 0
