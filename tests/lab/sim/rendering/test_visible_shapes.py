"""What is seen of a model, as triangles."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.rendering.visible_shapes import (
    VisibleShape,
    body_shapes,
    geom_looks,
    seen_box,
    texture_colours,
)

ENDLESS = np.array([[-1.0, -2.0], [3.0, 4.0]])
TETRAHEDRON = '<mesh name="t" vertex="0 0 0  1 0 0  0 1 0  0 0 1" inertia="exact"/>'


def compiled(geoms: str, asset: str = "") -> mujoco.MjModel:
    body = f'<body name="b" pos="5 0 0">{geoms}</body>'
    return mujoco.MjModel.from_xml_string(f"<mujoco><asset>{asset}</asset><worldbody>{body}</worldbody></mujoco>")


def shapes_of(geoms: str, asset: str = "") -> list[VisibleShape]:
    model = compiled(geoms, asset)
    return body_shapes(model, geom_looks(model, texture_colours(model)), {1}, ENDLESS)[1]


def volume(shape: VisibleShape) -> float:
    """Of a closed surface, positive where its triangles are counter-clockwise as seen from outside."""
    a, b, c = (shape.vertices[shape.faces[:, i]].astype(float) for i in range(3))
    return float((a * np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize(
    ("geom", "expected", "roundness"),
    [
        ('type="box" size="0.1 0.2 0.3"', 8 * 0.1 * 0.2 * 0.3, 0.0),
        ('type="sphere" size="0.5"', 4 / 3 * math.pi * 0.5**3, 0.03),
        ('type="ellipsoid" size="0.1 0.2 0.3"', 4 / 3 * math.pi * 0.1 * 0.2 * 0.3, 0.03),
        ('type="cylinder" size="0.5 0.2"', math.pi * 0.5**2 * 0.4, 0.03),
        ('type="capsule" size="0.5 0.2"', math.pi * 0.5**2 * 0.4 + 4 / 3 * math.pi * 0.5**3, 0.03),
        ('type="mesh" mesh="t"', 1 / 6, 0.0),
    ],
)
def test_surface_is_closed_turned_outwards_and_as_large_as_the_geom(
    geom: str, expected: float, roundness: float
) -> None:
    (shape,) = shapes_of(f"<geom {geom}/>", TETRAHEDRON)
    # A circle of 24 corners lacks 1.1 % of its area, a ball of rings of them 2.3 %.
    assert expected * (1 - roundness) - 1e-6 <= volume(shape) <= expected + 1e-6
    assert shape.faces.max() < len(shape.vertices)


def test_vertices_are_in_the_frame_of_the_body() -> None:
    # Turned by 90 degrees about z, x and y change places: half sizes 0.2, 0.1, 0.3 around (1, 2, 3).
    (shape,) = shapes_of('<geom type="box" size="0.1 0.2 0.3" pos="1 2 3" euler="0 0 90"/>')
    assert shape.vertices.min(axis=0) == pytest.approx([0.8, 1.9, 2.7])
    assert shape.vertices.max(axis=0) == pytest.approx([1.2, 2.1, 3.3])


def test_mesh_is_where_its_file_has_it() -> None:
    # The engine keeps it around its centre of mass and along its axes of inertia.
    (shape,) = shapes_of('<geom type="mesh" mesh="t" pos="0 0 1"/>', TETRAHEDRON)
    assert shape.vertices.min(axis=0) == pytest.approx([0, 0, 1], abs=1e-6)
    assert shape.vertices.max(axis=0) == pytest.approx([1, 1, 2], abs=1e-6)


def test_plane_has_its_own_size_and_one_without_an_end_is_cut_off() -> None:
    geoms = '<geom type="plane" size="0.5 0 1" rgba="1 0 0 1"/>'
    (shape,) = shapes_of(geoms)
    assert shape.vertices.min(axis=0) == pytest.approx([-0.5, -2, 0])
    assert shape.vertices.max(axis=0) == pytest.approx([0.5, 4, 0])


def test_what_pictures_leave_out_is_left_out() -> None:
    hidden = '<geom type="sphere" size="1" group="3"/><geom type="sphere" size="1" rgba="1 1 1 0"/>'
    assert shapes_of(hidden) == []
    assert len(shapes_of(hidden + '<geom type="sphere" size="1" group="2"/>')) == 1


def test_geoms_of_one_colour_are_one_shape() -> None:
    red, blue = 'type="box" size="1 1 1" rgba="1 0 0 1"', 'type="box" size="1 1 1" rgba="0 0 1 0.5"'
    first, second = shapes_of(f'<geom {red}/><geom {blue}/><geom {red} pos="3 0 0"/>')
    assert (first.rgba, second.rgba) == ((1, 0, 0, 1), (0, 0, 1, 0.5))
    assert volume(first) == pytest.approx(16)
    assert volume(second) == pytest.approx(8)


def test_colour_is_the_geoms_own_else_its_materials_times_the_mean_of_the_texture() -> None:
    asset = """
        <texture name="t" type="2d" builtin="checker" width="8" height="8" rgb1="1 1 1" rgb2="0 0.2 1"/>
        <material name="plain" rgba="0.2 0.4 0.6 1"/>
        <material name="checked" texture="t" rgba="0.5 1 1 1"/>
    """
    ball = 'type="sphere" size="1"'
    model = compiled(
        f'<geom {ball} material="plain"/><geom {ball} material="plain" rgba="1 0 0 1"/>'
        f'<geom {ball} material="checked"/><geom {ball}/>',
        asset,
    )
    looks = geom_looks(model, texture_colours(model))
    assert looks[:, :4] == pytest.approx(
        np.array([[0.2, 0.4, 0.6, 1], [1, 0, 0, 1], [0.25, 0.6, 1, 1], [0.5, 0.5, 0.5, 1]]), abs=0.005
    )


def test_box_around_what_is_seen_knows_turned_geoms_and_no_planes() -> None:
    model = compiled('<geom type="box" size="0.1 0.2 0.3" euler="0 0 90"/><geom type="plane" size="0 0 1"/>')
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    low, high = seen_box(model, data, geom_looks(model, texture_colours(model)))
    # The body is at x = 5; the origin is in the box, too.
    assert low == pytest.approx([0, -0.1, -0.3])
    assert high == pytest.approx([5.2, 0.1, 0.3])
