"""The surroundings of a scene: the sky, the lights, and level ground or a terrain. Lengths in metres.

Shapes: L levels, C columns, V vertices along a cell's edge, both ends included.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import mujoco
import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from embodichain.lab.sim.cfg import EmissionLightCfg, LightCfg
from embodichain.utils import configclass

FULL_INTENSITY = 100.0
"""Intensity of a light that shines with its full colour."""
_AMBIENT = 0.35  # the default
ByLevel = tuple[NonNegativeFloat, NonNegativeFloat]
"""A value at the easiest and at the hardest level; between them it grows in equal parts."""
_WHOLE = 1e-6  # how far from a whole number a ratio of lengths may be
_MOST_VERTICES = 2**24  # 64 MiB, and as much again for rendering
GROUND = "ground"
"""Name of the geom, and of its height field."""
_BASE = 0.5  # m of solid ground below the lowest vertex
_FLAT = 0.01  # m; the engine wants an elevation even of a flat height field
_CLOSE = 1e-9  # vertices at a step's edge belong to the step


@configclass
class _KindCfg:
    """The fields of all kinds of ground."""

    kind: str
    """Kind of ground."""
    share: NonNegativeFloat = 1.0
    """Share of the columns, relative to the other kinds."""


@configclass
class FlatTerrainCfg(_KindCfg):
    """Level ground."""

    kind: Literal["flat"] = "flat"


@configclass
class RoughTerrainCfg(_KindCfg):
    """Uniform noise, drawn for each vertex."""

    kind: Literal["rough"] = "rough"
    amplitude: ByLevel = (0.01, 0.06)
    """Largest height above and below zero at the easiest and the hardest level, m."""


@configclass
class SlopeTerrainCfg(_KindCfg):
    """A pyramid with smooth sides."""

    kind: Literal["slope"] = "slope"
    incline: ByLevel = (0.0, 0.4)
    """Rise over run of the sides at the easiest and the hardest level."""
    inverted: bool = False
    """A pit, with the platform at its bottom."""


@configclass
class StepsTerrainCfg(_KindCfg):
    """Square blocks of random heights."""

    kind: Literal["steps"] = "steps"
    height: ByLevel = (0.02, 0.15)
    """Height of the highest block, and so of the highest step, at the easiest and the hardest level, m."""
    block: PositiveFloat = 0.5
    """Edge of a block, m."""


@configclass
class StairsTerrainCfg(_KindCfg):
    """A pyramid of stairs."""

    kind: Literal["stairs"] = "stairs"
    height: ByLevel = (0.03, 0.15)
    """Height of a step at the easiest and the hardest level, m."""
    depth: PositiveFloat = 0.3
    """Depth of a step, m."""
    inverted: bool = False
    """A pit, with the platform at its bottom."""


SubTerrainCfg = Annotated[
    FlatTerrainCfg | RoughTerrainCfg | SlopeTerrainCfg | StepsTerrainCfg | StairsTerrainCfg, Field(discriminator="kind")
]


@configclass
class TerrainCfg:
    """A grid of square cells in place of the level ground, centred at the origin of the world.

    A cell's level is its row, along x: level 0 is the easiest. Its column, along y, decides its kind of ground. In
    the middle of each cell is a level platform, where a robot starts; the edges of all cells are at height 0.
    """

    kinds: Annotated[list[SubTerrainCfg], Field(min_length=1)] = [
        FlatTerrainCfg(),
        RoughTerrainCfg(),
        SlopeTerrainCfg(),
        SlopeTerrainCfg(inverted=True),
        StepsTerrainCfg(),
        StairsTerrainCfg(),
        StairsTerrainCfg(inverted=True),
    ]
    """Kinds of ground, in the order of their columns; the default is each of them, as hills and as pits."""
    num_levels: PositiveInt = 8
    """Rows; a single one is of the hardest level."""
    num_columns: PositiveInt = 8
    """Columns, divided among the kinds by their shares."""
    cell_size: PositiveFloat = 8.0
    """Edge of a cell, m; a multiple of ``resolution``."""
    platform: PositiveFloat = 2.0
    """Edge of the platforms, m."""
    border: NonNegativeFloat = 20.0
    """Width of the level ground around the grid, m."""
    resolution: PositiveFloat = 0.1
    """Distance between neighbouring vertices, m. The side of a step is as wide."""
    seed: NonNegativeInt = 0
    """Seed of the random heights."""
    max_init_level: NonNegativeInt | None = None
    """Highest level at which environments start; each draws its own. None: all levels."""

    @model_validator(mode="after")
    def _has_cells(self) -> Self:
        if self.platform >= self.cell_size:
            raise ValueError(f"platform {self.platform} m must be smaller than cell_size {self.cell_size} m")
        vertices = self.cell_size / self.resolution
        if vertices < 2 or abs(vertices - round(vertices)) > _WHOLE * vertices:
            raise ValueError(
                f"cell_size {self.cell_size} m must be a multiple of resolution {self.resolution} m, at least 2 of it"
            )
        if self.num_levels * self.num_columns * vertices**2 > _MOST_VERTICES:
            raise ValueError(
                f"{self.num_levels} x {self.num_columns} cells of {vertices:,.0f} x {vertices:,.0f} vertices are more "
                f"than {_MOST_VERTICES:,}: fewer or smaller cells, or a larger resolution"
            )
        if self.max_init_level is not None and self.max_init_level >= self.num_levels:
            raise ValueError(f"max_init_level {self.max_init_level} must be below num_levels {self.num_levels}")
        if sum(kind.share for kind in self.kinds) == 0.0:
            raise ValueError("kinds: at least one share must be above 0")
        chosen = set(kinds_of_columns(self))
        for i, kind in enumerate(self.kinds):
            edge = getattr(kind, "depth", getattr(kind, "block", self.resolution))
            if edge < self.resolution - _CLOSE:
                raise ValueError(f"kinds[{i}]: steps of {edge} m are less than resolution {self.resolution} m")
            if kind.share > 0.0 and i not in chosen:
                raise ValueError(
                    f"kinds[{i}]: share {kind.share} of num_columns {self.num_columns} is less than a column: more "
                    "columns, or a larger share"
                )
        return self


def kinds_of_columns(cfg: TerrainCfg) -> list[int]:
    """Return the index in ``cfg.kinds`` of each column: the kind with the column's middle in its share."""
    ends = np.cumsum([kind.share for kind in cfg.kinds])
    middles = (np.arange(cfg.num_columns) + 0.5) / cfg.num_columns * ends[-1]
    return [int(kind) for kind in np.searchsorted(ends, middles, side="right")]


@dataclass(frozen=True)
class TerrainHeights:
    """The surface of a terrain.

    Attributes:
        heights: [rows along y, columns along x] float32, m, of the vertices; the outermost are at 0.
        origins: [L, C, 3] the middles of the cells' platforms, m.
    """

    cfg: TerrainCfg
    heights: np.ndarray
    origins: np.ndarray


def make_heights(cfg: TerrainCfg) -> TerrainHeights:
    """Return the surface of a terrain; the same config has the same."""
    cells = round(cfg.cell_size / cfg.resolution)
    heights = np.zeros((cfg.num_columns * cells + 1, cfg.num_levels * cells + 1))
    origins = np.zeros((cfg.num_levels, cfg.num_columns, 3))
    for column, kind in enumerate(kinds_of_columns(cfg)):
        for level in range(cfg.num_levels):
            cell = _cell(cfg, cfg.kinds[kind], level, column)
            x, y = level * cells, column * cells
            heights[y + 1 : y + cells, x + 1 : x + cells] = cell[1:-1, 1:-1]
            middle = np.array([level + 0.5 - cfg.num_levels / 2, column + 0.5 - cfg.num_columns / 2])
            origins[level, column] = [*(middle * cfg.cell_size), cell[cells // 2, cells // 2]]
    return TerrainHeights(cfg, heights.astype(np.float32), origins)


def lay_terrain(spec: mujoco.MjSpec, surface: TerrainHeights) -> None:
    """Replace the plane ``ground`` by a height field, and by boxes for the border around it."""
    cfg, heights = surface.cfg, surface.heights.astype(float)
    lowest, highest = float(heights.min()), float(heights.max())
    x, y = cfg.num_levels * cfg.cell_size / 2, cfg.num_columns * cfg.cell_size / 2
    # The engine stretches the vertices' heights from 0 to 1, and back by the elevation.
    (rows, columns), size = heights.shape, [x, y, (highest - lowest) or _FLAT, _BASE]
    spec.add_hfield(name=GROUND, nrow=rows, ncol=columns, size=size, userdata=heights.ravel())
    ground = spec.geom(GROUND)
    ground.type, ground.hfieldname, ground.pos = mujoco.mjtGeom.mjGEOM_HFIELD, GROUND, [0.0, 0.0, lowest]
    if cfg.border:  # boxes with their upper edges at 0: two along all of x, two between them
        half = cfg.border / 2
        for i, (along_x, along_y) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
            pos = along_x * (x + half), along_y * (y + half)
            box = spec.worldbody.add_geom(name=f"{GROUND}/border{i}", type=mujoco.mjtGeom.mjGEOM_BOX)
            box.pos = [*pos, -_BASE / 2]
            box.size = [*((half, y) if along_x else (x + cfg.border, half)), _BASE / 2]
            for name in ("material", "friction", "contype", "conaffinity"):
                setattr(box, name, getattr(ground, name))
    # On uneven ground it is shading that shows the shape: calmer squares, and a lower sun.
    texture, sun = spec.texture(GROUND), spec.light("sun")
    texture.rgb1, texture.rgb2 = [0.76, 0.75, 0.72], [0.70, 0.69, 0.66]
    if sun is not None:  # no light of the config has replaced it
        sun.dir = [0.35, -0.5, -1.0]


def _cell(cfg: TerrainCfg, kind: SubTerrainCfg, level: int, column: int) -> np.ndarray:
    """Return the heights of a cell, [V, V], m; the platform in its middle is level."""
    count = round(cfg.cell_size / cfg.resolution) + 1
    # Distances of the vertices from the cell's nearest edge, along one axis and of the square rings.
    edge = np.minimum(np.arange(count), np.arange(count)[::-1]) * cfg.resolution
    ring = np.minimum(edge[:, None], edge[None])
    reach = (cfg.cell_size - cfg.platform) / 2  # from the cell's edge to its platform
    random = np.random.default_rng([cfg.seed, level, column])
    match kind:
        case FlatTerrainCfg():
            return np.zeros((count, count))
        case RoughTerrainCfg():
            amplitude = _at(kind.amplitude, level, cfg)
            heights = random.uniform(-amplitude, amplitude, (count, count))
        case StepsTerrainCfg():
            block = np.floor(np.arange(count) * cfg.resolution / kind.block + _CLOSE).astype(int)
            highest = _at(kind.height, level, cfg)
            heights = random.uniform(0.0, highest, (block[-1] + 1, block[-1] + 1))[block[:, None], block[None]]
        case SlopeTerrainCfg():
            rise = _at(kind.incline, level, cfg) * np.minimum(ring, reach)
            return -rise if kind.inverted else rise
        case StairsTerrainCfg():
            steps = np.floor(np.minimum(ring, reach) / kind.depth + _CLOSE)
            rise = _at(kind.height, level, cfg) * steps
            return -rise if kind.inverted else rise
    return np.where(ring < reach - _CLOSE, heights, 0.0)  # with a level platform in the middle


def _at(values: tuple[float, float], level: int, cfg: TerrainCfg) -> float:
    """Return a value at a level, from its values at the easiest and the hardest one."""
    part = level / (cfg.num_levels - 1) if cfg.num_levels > 1 else 1.0
    return values[0] + part * (values[1] - values[0])


def add_surroundings(spec: mujoco.MjSpec) -> None:
    """Add the sky, the geom ``ground``, the light ``sun`` and ambient light, and set the quality of rendering."""
    headlight = spec.visual.headlight
    headlight.ambient, headlight.diffuse, headlight.specular = [_AMBIENT] * 3, [0.35] * 3, [0.1] * 3
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1080  # the largest image off screen
    # With these an image takes 40 ms on a software renderer, with the engine's defaults 60 ms. The wide extent
    # keeps the edge of the shadow map out of sight.
    spec.visual.quality.shadowsize, spec.visual.quality.offsamples = 2048, 0
    spec.stat.extent, spec.stat.center = 6.0, [-0.3, 0.0, 0.3]
    sky = spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=256, height=1536)
    sky.builtin, sky.rgb1, sky.rgb2 = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, [0.86, 0.91, 0.96], [0.45, 0.55, 0.68]
    floor = spec.add_texture(name="ground", type=mujoco.mjtTexture.mjTEXTURE_2D, width=512, height=512)
    floor.builtin, floor.rgb1, floor.rgb2 = mujoco.mjtBuiltin.mjBUILTIN_CHECKER, [0.83, 0.84, 0.85], [0.76, 0.78, 0.80]
    material = spec.add_material(name="ground", texrepeat=[2, 2], texuniform=True, specular=0.1, shininess=0.1)
    material.textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "ground"
    light = spec.worldbody.add_light(name="sun", pos=[-0.5, 0.5, 3.0], dir=[-0.1, -0.2, -1.0])
    light.type, light.diffuse = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, [0.5, 0.5, 0.47]
    # Of two touching geoms the larger friction counts: the ground leaves it to the object.
    ground = spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], material="ground")
    ground.friction = [0.0, 0.005, 0.0001]


def add_light(spec: mujoco.MjSpec, cfg: LightCfg) -> None:
    """Add a light; the first one replaces the sun."""
    if spec.light("sun") is not None:
        spec.delete(spec.light("sun"))
    light = spec.worldbody.add_light(name=cfg.uid, pos=cfg.init_pos, dir=cfg.direction)
    kind = "DIRECTIONAL" if cfg.light_type in ("sun", "direction") else cfg.light_type.upper()
    light.type = getattr(mujoco.mjtLightType, f"mjLIGHT_{kind}")
    light.diffuse = [part * cfg.intensity / FULL_INTENSITY for part in cfg.color]
    light.castshadow = cfg.enable_shadow
    light.cutoff = cfg.spot_angle_outer


def ambient_of(cfg: EmissionLightCfg) -> list[float]:
    """Return MuJoCo's ambient light, [3], of an emission light."""
    return [part * cfg.intensity / FULL_INTENSITY * _AMBIENT for part in cfg.color]
