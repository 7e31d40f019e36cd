"""Which links touch anything: two links with a sphere each, and a link with a named foot that is no link."""

from __future__ import annotations

import mujoco
import pytest

from embodichain.lab.sim.model.collisions import limit_collisions
from embodichain.utils import ConfigError

LINKS = {"trunk": "x/trunk", "calf": "x/calf", "bare": "x/bare"}
ALL = {"trunk_shape", "shin", "foot"}


def touching(*patterns: str) -> set[str]:
    """The names of the shapes that still touch."""
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="x/trunk"><geom name="trunk_shape" size="1"/>'
        '<geom name="seen" size="1" contype="0" conaffinity="0"/><body name="x/calf"><geom name="shin" size="1"/>'
        '<geom name="foot" size="1"/></body><body name="x/bare"/></body></worldbody></mujoco>'
    )
    limit_collisions(spec, LINKS, patterns, "here")
    return {geom.name for geom in spec.geoms if geom.contype or geom.conaffinity}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((".*",), ALL),
        (("calf",), {"shin", "foot"}),
        (("foot",), {"foot"}),
        (("trunk", "fo+t"), {"trunk_shape", "foot"}),
        ((), set()),
    ],
)
def test_only_named_links_and_named_shapes_touch(patterns: tuple[str, ...], names: set[str]) -> None:
    assert touching(*patterns) == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("foott", r"here: unknown link or collision shape 'foott'\. Did you mean 'foot'\? Known: calf, foot, shin, tr"),
        ("bare", "here: unknown link or collision shape 'bare'"),  # a link without a collision shape
        ("seen", "here: unknown link or collision shape 'seen'"),  # a shape without collisions
        ("fo(t", r"here: 'fo\(t' is no regular expression"),
    ],
)
def test_pattern_without_a_collision_shape_is_an_error(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        touching(pattern)
