"""The heights of a terrain, and its height field in the model.

Shapes: L levels, C columns, V vertices along a cell's edge, both ends included.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from embodichain.lab.sim.terrain_cfg import (
    FlatTerrainCfg,
    RoughTerrainCfg,
    SlopeTerrainCfg,
    StairsTerrainCfg,
    StepsTerrainCfg,
    SubTerrainCfg,
    TerrainCfg,
    kinds_of_columns,
)

GROUND = "ground"
"""Name of the geom, and of its height field."""
_BASE = 0.5  # m of solid ground below the lowest vertex
_FLAT = 0.01  # m; the engine wants an elevation even of a flat height field
_COLOURS = [0.76, 0.75, 0.72], [0.70, 0.69, 0.66]
_SUN = [0.35, -0.5, -1.0]
_CLOSE = 1e-9  # vertices at a step's edge belong to the step


@dataclass(frozen=True)
class TerrainHeights:
    """The surface of a terrain.

    Attributes:
        cfg: its config.
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
    spec.add_hfield(
        name=GROUND,
        nrow=heights.shape[0],
        ncol=heights.shape[1],
        size=[x, y, (highest - lowest) or _FLAT, _BASE],
        userdata=heights.ravel(),
    )
    ground = spec.geom(GROUND)
    ground.type, ground.hfieldname, ground.pos = mujoco.mjtGeom.mjGEOM_HFIELD, GROUND, [0.0, 0.0, lowest]
    if cfg.border:
        _add_border(spec, ground, x, y, cfg.border)
    # On uneven ground it is shading that shows the shape: calmer squares, and a lower sun.
    texture, sun = spec.texture(GROUND), spec.light("sun")
    texture.rgb1, texture.rgb2 = _COLOURS
    if sun is not None:  # no light of the config has replaced it
        sun.dir = _SUN


def _add_border(spec: mujoco.MjSpec, ground: mujoco.MjsGeom, x: float, y: float, width: float) -> None:
    """Put boxes around the height field, with its edges at 0: two along all of x, two between them."""
    half = width / 2
    sides = [
        ((0.0, y + half), (x + width, half)),
        ((0.0, -y - half), (x + width, half)),
        ((x + half, 0.0), (half, y)),
        ((-x - half, 0.0), (half, y)),
    ]
    for i, (pos, size) in enumerate(sides):
        spec.worldbody.add_geom(
            name=f"{GROUND}/border{i}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[*pos, -_BASE / 2],
            size=[*size, _BASE / 2],
            material=ground.material,
            friction=ground.friction,
            contype=ground.contype,
            conaffinity=ground.conaffinity,
        )


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
            noise = random.uniform(-amplitude, amplitude, (count, count))
            return np.where(ring < reach - _CLOSE, noise, 0.0)
        case StepsTerrainCfg():
            blocks = _blocks(random, _at(kind.height, level, cfg), edge_of=kind.block, cfg=cfg)
            return np.where(ring < reach - _CLOSE, blocks, 0.0)
        case SlopeTerrainCfg():
            rise = _at(kind.incline, level, cfg) * np.minimum(ring, reach)
            return -rise if kind.inverted else rise
        case StairsTerrainCfg():
            steps = np.floor(np.minimum(ring, reach) / kind.depth + _CLOSE)
            rise = _at(kind.height, level, cfg) * steps
            return -rise if kind.inverted else rise


def _at(values: tuple[float, float], level: int, cfg: TerrainCfg) -> float:
    """Return a value at a level, from its values at the easiest and the hardest one."""
    part = level / (cfg.num_levels - 1) if cfg.num_levels > 1 else 1.0
    return values[0] + part * (values[1] - values[0])


def _blocks(random: np.random.Generator, highest: float, edge_of: float, cfg: TerrainCfg) -> np.ndarray:
    """Return square blocks of heights uniform in [0, ``highest``], [V, V]."""
    count = round(cfg.cell_size / cfg.resolution) + 1
    block = np.floor(np.arange(count) * cfg.resolution / edge_of + _CLOSE).astype(int)
    return random.uniform(0.0, highest, (block[-1] + 1, block[-1] + 1))[block[:, None], block[None]]
