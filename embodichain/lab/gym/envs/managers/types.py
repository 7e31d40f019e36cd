"""Types of terms' parameters, which say what a config may write; names in the scene are checked by ``checks``.

The description of a type is its parameters', where a term's docstring has none of its own.
"""

from collections.abc import Sequence
from copy import copy
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from embodichain.utils import configclass

GROUND_UID = "default_plane"
"""Name of the ground for terms that take it as an entity."""
ALL_SENSORS = "all_sensors"
"""Stands for every camera where a term takes cameras by name."""
Floats = tuple[float, ...]
Number = TypeVar("Number", int, float)
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveShare = Annotated[float, Field(gt=0.0, le=1.0)]
Vec3 = tuple[float, float, float]


def _check_range(bounds: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    low, high = bounds
    if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("must be [lowest, highest] of equal length, with no lowest value above its highest")
    return bounds


def _check_bounds(bounds: tuple[Number, Number]) -> tuple[Number, Number]:
    if bounds[0] > bounds[1]:
        raise ValueError("must be [lowest, highest], with the lowest not above the highest")
    return bounds


def _check_interval(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] >= bounds[1]:
        raise ValueError("must be [lowest, highest], with the lowest below the highest")
    return bounds


Range = Annotated[tuple[Floats, Floats], AfterValidator(_check_range)]
"""``[lowest, highest]``, each a list of as many numbers."""
ScaleRange = Annotated[tuple[tuple[PositiveFloat, ...], tuple[PositiveFloat, ...]], AfterValidator(_check_range)]
"""The same of numbers above 0."""
Range2 = Annotated[tuple[tuple[float, float], tuple[float, float]], AfterValidator(_check_range)]
"""The same for two axes."""
Range3 = Annotated[tuple[Vec3, Vec3], AfterValidator(_check_range)]
"""The same for three axes."""
Range1 = Annotated[tuple[float, float], AfterValidator(_check_bounds)]
"""``[lowest, highest]`` of one number."""
PositiveRange = Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(_check_bounds)]
"""``[lowest, highest]`` of one number above 0."""
FactorRange = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], AfterValidator(_check_bounds)]
"""``[lowest, highest]`` of one factor, 0 or more."""
StepRange = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_check_bounds)]
"""``[lowest, highest]`` of a number of steps, 1 or more."""
Delay = Annotated[tuple[NonNegativeInt, NonNegativeInt], AfterValidator(_check_bounds)]
"""``[lowest, highest]`` number of control steps, 0 or more."""
Interval = Annotated[tuple[float, float], AfterValidator(_check_interval)]
"""``[lowest, highest]`` of one number, not the same."""


@configclass
class SceneEntityCfg:
    """An entity of the scene, by name."""

    kind: ClassVar[str] = ""
    """Required kind of entity; "": any."""

    uid: str
    """Entity's name."""
    control_parts: list[str] | str | None = None
    """Control parts of a robot; None: all of it, or the arm."""
    joint_names: list[str] | str | None = None
    """Joints of an articulation, by names or regular expressions; None: all."""
    link_names: list[str] | None = None
    """Entity's links, by names or regular expressions; None: all."""


class SceneName(str):
    """A name in the scene or the config."""

    kind: str
    """Kind of the named thing; ``"joint"``: a name, or a regular expression, of the robot's joints."""

    @classmethod
    def of(cls, kind: str) -> AfterValidator:
        """Return the validator that turns a text into the name of such a thing."""
        return AfterValidator(lambda text: cls.named(kind, text))

    @classmethod
    def named(cls, kind: str, text: str) -> Self:
        """Return the name of a thing of a kind."""
        name = cls(text)
        name.kind = kind
        return name


def _of_kind(kind: str) -> AfterValidator:
    """Return the validator that turns an entity into one that must be of a kind."""

    def marked(cfg: SceneEntityCfg) -> SceneEntityCfg:
        entity = copy(cfg)
        vars(entity)["kind"] = kind
        return entity

    return AfterValidator(marked)


Entity = Annotated[SceneEntityCfg, Field(description="the entity.")]
RigidEntity = Annotated[SceneEntityCfg, _of_kind("rigid object"), Field(description="the body.")]
"""A parameter that must name an entity of a kind, which :mod:`~embodichain.lab.gym.envs.managers.checks` checks."""
GroupEntity = Annotated[SceneEntityCfg, _of_kind("rigid object group"), Field(description="the group.")]
RobotEntity = Annotated[SceneEntityCfg, _of_kind("robot")]
ArticulationEntity = Annotated[SceneEntityCfg, _of_kind("articulation")]
JointedEntity = Annotated[
    SceneEntityCfg, _of_kind("articulation or robot"), Field(description="the articulation or robot.")
]
LightEntity = Annotated[SceneEntityCfg, _of_kind("light"), Field(description="the light.")]
CameraEntity = Annotated[SceneEntityCfg, _of_kind("camera"), Field(description="the camera.")]
CameraName = Annotated[str, SceneName.of("camera")]
"""A parameter that must name a camera."""
PartName = Annotated[str, Field(description="the control part.")]
Part = Annotated[str, Field(description="the control part; None: the environment's active joints.")]
PoseKey = Annotated[str, Field(description="key of the target pose.")]
SensorName = Annotated[str, SceneName.of("contact sensor"), Field(description="the contact sensor.")]

BASE_VELOCITY = SceneName.named("command", "base_velocity")
"""The command that terms of locomotion follow by default."""
FeetSensor = Annotated[str, SceneName.of("contact sensor"), Field(description="the feet's contact sensor.")]
CommandName = Annotated[str, SceneName.of("command"), Field(description="command's name in `env.commands`.")]

JointName = Annotated[str, SceneName.of("joint")]
"""A key that must name joints of the environment's robot."""


class JointRanges(tuple[Floats, Floats]):
    """``[lowest, highest]`` of each joint of the term, or of all."""

    __slots__ = ()


JointRange = Annotated[tuple[Floats, Floats], AfterValidator(_check_range), AfterValidator(JointRanges)]
"""``[lowest, highest]``, each a list with a number for each of the term's joints, or with one for all."""


class JointNumbers(tuple[int, ...]):
    """Joints of the term's robot, by their indices."""

    __slots__ = ()


JointIds = Annotated[Sequence[int], AfterValidator(JointNumbers)]
"""Indices of joints of the term's robot."""


class LinkNumbers(list[float]):
    """A number for each link of the term's contact sensor."""


PerLink = Annotated[list[float], AfterValidator(LinkNumbers)]
"""A list with a number for each link of the term's contact sensor."""
