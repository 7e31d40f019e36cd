"""Typed configuration of sensors. Lengths in metres; images are described in pixels, as OpenCV does."""

from dataclasses import field
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from embodichain.utils import configclass

Vec3 = tuple[float, float, float]
Intrinsics = tuple[PositiveFloat, PositiveFloat, float, float]


@configclass
class ExtrinsicsCfg:
    """A camera's pose: by ``eye`` and ``target``, else by ``pos`` and ``quat``; in its parent's frame or the world's.

    A camera looks along its own -z axis, and +y is upwards in its image (OpenGL's and MuJoCo's convention).
    """

    parent: str | None = None
    """A link or site that carries the camera: its name, or ``<uid>/<name>`` where several things have one of that name.
    None: the world."""
    pos: Vec3 = (0.0, 0.0, 0.0)
    """m."""
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Unit quaternion (w, x, y, z)."""
    eye: Vec3 | None = None
    """Position, m."""
    target: Vec3 | None = None
    """The point in the middle of the view, m."""
    up: Vec3 = (0.0, 0.0, 1.0)
    """Direction that is upwards in the image."""

    @model_validator(mode="after")
    def _is_a_view(self) -> Self:
        if (self.eye is None) != (self.target is None):
            raise ValueError("eye and target belong together")
        if self.eye and self.target and not np.cross(np.subtract(self.target, self.eye), self.up).any():
            raise ValueError("the view from eye to target must not be zero or along up")
        if not np.linalg.norm(self.quat) > 0.0:
            raise ValueError("quat must not be zero")
        return self


@configclass
class CameraCfg:
    """A pinhole camera, in every environment."""

    uid: str
    """Name, unique in the scene; its images are ``sensor/<uid>/...`` in the observation."""
    sensor_type: Literal["Camera"] = "Camera"
    """Kind of sensor."""
    width: Annotated[PositiveInt, Field(le=4096)] = 640
    """Pixels."""
    height: Annotated[PositiveInt, Field(le=4096)] = 480
    """Pixels."""
    intrinsics: Intrinsics = (600.0, 600.0, 320.0, 240.0)
    """fx, fy, cx, cy, pixels."""
    extrinsics: ExtrinsicsCfg = field(default_factory=ExtrinsicsCfg)
    """Camera's pose."""
    near: PositiveFloat = 0.005
    """Nothing nearer is seen, m."""
    far: PositiveFloat = 100.0
    """Nothing further away is seen, m; also the depth of the sky."""
    enable_color: bool = True
    """Give ``color``."""
    enable_depth: bool = False
    """Give ``depth``."""
    enable_mask: bool = False
    """Give ``mask``."""
    enable_normal: Literal[False] = False
    """Accepted as false; normals are not rendered."""
    enable_position: Literal[False] = False
    """Accepted as false; positions follow from depth and intrinsics."""

    @model_validator(mode="after")
    def _has_depth(self) -> Self:
        if self.near >= self.far:
            raise ValueError("near must be less than far")
        return self


@configclass
class StereoCameraCfg(CameraCfg):
    """Two cameras side by side; the fields of :class:`CameraCfg` describe the left one."""

    sensor_type: Literal["StereoCamera"] = "StereoCamera"  # type: ignore[assignment]
    """Kind of sensor."""
    intrinsics_right: Intrinsics = (600.0, 600.0, 320.0, 240.0)
    """Intrinsics of the right camera."""
    left_to_right_pos: Vec3 = (0.05, 0.0, 0.0)
    """Position of the right camera in the left one's frame, m."""
    left_to_right_rot: Vec3 = (0.0, 0.0, 0.0)
    """Rotation of the right camera there about the fixed x, then y, then z axis, degrees."""
    enable_disparity: bool = False
    """Give ``disparity``; needs ``enable_depth``."""

    @model_validator(mode="after")
    def _can_have_disparity(self) -> Self:
        if self.enable_disparity and not self.enable_depth:
            raise ValueError("enable_disparity needs enable_depth")
        return self


@configclass
class ContactSensorCfg:
    """Contacts of a robot's or an articulation's links, in every environment; rewards and terminations read it."""

    uid: str
    """Name, unique in the scene."""
    sensor_type: Literal["Contact"] = "Contact"
    """Kind of sensor."""
    entity: str | None = None
    """The robot or articulation; None: the robot."""
    link_names: Annotated[list[str], Field(min_length=1)] = field(kw_only=True)
    """Links, by names or regular expressions; where the file has no link of a name, its named collision shapes. The
    sensor has them in the robot's order, whatever this one."""
    force_threshold: PositiveFloat = 1.0
    """A link is in contact where the force on it exceeds this, N."""


def sensor_type(value: object) -> object:
    """Return the ``sensor_type`` of a sensor's data, by default a camera."""
    return value.get("sensor_type", "Camera") if isinstance(value, dict) else getattr(value, "sensor_type", None)


SensorCfg = Annotated[
    Annotated[CameraCfg, Tag("Camera")]
    | Annotated[StereoCameraCfg, Tag("StereoCamera")]
    | Annotated[ContactSensorCfg, Tag("Contact")],
    Discriminator(sensor_type),
]
"""Any sensor, by its ``sensor_type``."""
