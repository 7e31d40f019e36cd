"""Shapes of rigid objects. Lengths are in metres, in the object's own frame."""

from typing import Annotated, Literal

from pydantic import Field

from embodichain.utils import configclass

__all__ = ["CapsuleCfg", "CubeCfg", "CylinderCfg", "MeshCfg", "PlaneCfg", "ShapeCfg", "SphereCfg"]

Positive = Annotated[float, Field(gt=0)]


@configclass
class CubeCfg:
    """A box with its centre at the origin."""

    shape_type: Literal["Cube"] = "Cube"
    """Kind of shape."""
    size: tuple[Positive, Positive, Positive] = (0.1, 0.1, 0.1)
    """Full edge lengths, m."""


@configclass
class SphereCfg:
    """A ball with its centre at the origin."""

    shape_type: Literal["Sphere"] = "Sphere"
    """Kind of shape."""
    radius: Positive = 0.05
    """m."""


@configclass
class CylinderCfg:
    """A cylinder along z with its centre at the origin."""

    shape_type: Literal["Cylinder"] = "Cylinder"
    """Kind of shape."""
    radius: Positive = 0.05
    """m."""
    height: Positive = 0.1
    """m."""


@configclass
class CapsuleCfg:
    """A capsule along z with its centre at the origin."""

    shape_type: Literal["Capsule"] = "Capsule"
    """Kind of shape."""
    radius: Positive = 0.05
    """m."""
    height: Positive = 0.1
    """Height of the cylindrical part, m."""


@configclass
class PlaneCfg:
    """An endless horizontal plane through the origin; static only."""

    shape_type: Literal["Plane"] = "Plane"
    """Kind of shape."""


@configclass
class MeshCfg:
    """A triangle mesh; collides as its convex hull."""

    fpath: str
    """File (.obj, .stl), relative to the working directory or absolute."""
    shape_type: Literal["Mesh"] = "Mesh"
    """Kind of shape."""


ShapeCfg = Annotated[
    CubeCfg | SphereCfg | CylinderCfg | CapsuleCfg | PlaneCfg | MeshCfg, Field(discriminator="shape_type")
]
