"""Typed configuration of a terrain. Lengths in metres."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from embodichain.utils import configclass

__all__ = [
    "FlatTerrainCfg",
    "RoughTerrainCfg",
    "SlopeTerrainCfg",
    "StairsTerrainCfg",
    "StepsTerrainCfg",
    "SubTerrainCfg",
    "TerrainCfg",
]

ByLevel = tuple[NonNegativeFloat, NonNegativeFloat]
"""A value at the easiest and at the hardest level; between them it grows in equal parts."""
_WHOLE = 1e-6  # how far from a whole number a ratio of lengths may be
_MOST_VERTICES = 2**24  # 64 MiB, and as much again for rendering


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
    FlatTerrainCfg | RoughTerrainCfg | SlopeTerrainCfg | StepsTerrainCfg | StairsTerrainCfg,
    Field(discriminator="kind"),
]


@configclass
class TerrainCfg:
    """A grid of square cells in place of the level ground, centred at the origin of the world.

    A cell's level is its row, along x: level 0 is the easiest. Its kind of ground is that of its column, along y. In
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
        return self

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        if sum(kind.share for kind in self.kinds) == 0.0:
            raise ValueError("kinds: at least one share must be above 0")
        chosen = set(kinds_of_columns(self))
        for i, kind in enumerate(self.kinds):
            if kind.share > 0.0 and i not in chosen:
                raise ValueError(
                    f"kinds[{i}]: share {kind.share} of num_columns {self.num_columns} is less than a column: more "
                    "columns, or a larger share"
                )
        return self


def kinds_of_columns(cfg: TerrainCfg) -> list[int]:
    """Return the index in ``cfg.kinds`` of each column: the kind with the column's middle in its share."""
    shares = [kind.share for kind in cfg.kinds]
    whole, columns = sum(shares), []
    for column in range(cfg.num_columns):
        middle = (column + 0.5) / cfg.num_columns * whole
        ends = [sum(shares[: i + 1]) for i in range(len(shares))]
        columns.append(next(i for i, end in enumerate(ends) if middle < end))
    return columns
