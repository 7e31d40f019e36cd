"""Scenery: markers, lights, the terrain, and the bodies of a scene in one file.

Shapes: N environments, n in ``env_ids`` (None: all), L levels and C columns of a terrain, ``...`` any batch.
"""

from collections.abc import Sequence

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.cfg import LightCfg, MarkerCfg
from embodichain.lab.sim.math import pose_from_pos_matrix, pose_from_row, row_from_pose
from embodichain.lab.sim.model.terrain import FULL_INTENSITY, TerrainHeights
from embodichain.lab.sim.objects.articulation import BasePose
from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rendering.renderer import Appearance

_TRAVELLING = (int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE))


class SceneBody:
    """The pose of a body by its name in the file; ``travels``: a joint of its own moves it, not only turns it."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.uid = name
        self._backend = backend
        model = backend.model
        self._body = int(model.body(name).id)
        own = model.jnt_type[model.jnt_bodyid == self._body]
        self.travels = any(kind in own for kind in _TRAVELLING)

    def get_user_ids(self) -> Tensor:
        """Return its number in the model, [N] int32."""
        return torch.full((self._backend.num_envs,), self._body, dtype=torch.int32, device=self._backend.device)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the world pose, [N, 7] (x, y, z, qw, qx, qy, qz) or [N, 4, 4]."""
        row = torch.cat([self._backend.read(name)[:, self._body] for name in ("xpos", "xquat")], dim=1)
        return pose_from_row(row) if to_matrix else row


class Marker:
    """Marks a place in every environment, for example a goal."""

    def __init__(self, cfg: MarkerCfg, backend: Backend) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._backend = backend
        row = int(backend.model.body(cfg.uid).mocapid[0])
        self._row = slice(row, row + 1)

    def set_pos(self, pos: Tensor, env_ids: Tensor | None = None) -> None:
        """Move the marker to world positions [n, 3] in environments [n] (None: all)."""
        self._backend.write("mocap_pos", self._row, pos[:, None], env_ids)

    def set_quat(self, quat: Tensor, env_ids: Tensor | None = None) -> None:
        """Turn the marker to world orientations [n, 4] (w, x, y, z) in environments [n] (None: all)."""
        self._backend.write("mocap_quat", self._row, quat[:, None], env_ids)


class Light:
    """One light of every environment."""

    state_names = ("_color", "_intensity")

    def __init__(self, cfg: LightCfg, model: mujoco.MjModel, appearance: Appearance) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._appearance = appearance
        self._row = int(model.light(cfg.uid).id)
        self._color = torch.tensor(cfg.color).repeat(len(appearance.version), 1)
        self._intensity = torch.full((len(appearance.version), 1), cfg.intensity)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return its pose, without a rotation: [N, 7] (x, y, z, 1, 0, 0, 0), or [N, 4, 4]."""
        pos = torch.from_numpy(self._appearance.read("light_pos")[:, self._row].copy()).float()
        pose = pose_from_pos_matrix(pos)
        return pose if to_matrix else row_from_pose(pose)

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move it to the position of [n, 3], [n, 7] or [n, 4, 4], m, in environments [n] (None: all)."""
        pos = pose[:, :3, 3] if pose.dim() == 3 else pose[:, :3]
        self._appearance.write("light_pos", self._row, pos, env_ids)

    def set_direction(self, direction: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the direction, [n, 3], of any length but zero."""
        self._appearance.write("light_dir", self._row, torch.nn.functional.normalize(direction, dim=-1), env_ids)

    def set_color(self, color: Tensor, env_ids: Tensor | None = None) -> None:
        """Set red, green and blue, [n, 3], 0 to 1."""
        self._set(self._color, color, env_ids)

    def set_intensity(self, intensity: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the intensity, [n]; 100 is full brightness."""
        self._set(self._intensity, intensity[:, None], env_ids)

    def _set(self, where: Tensor, values: Tensor, env_ids: Tensor | None) -> None:
        which: slice | Tensor = slice(None) if env_ids is None else env_ids.cpu()
        where[which] = values.cpu()
        diffuse = self._color[which] * self._intensity[which] / FULL_INTENSITY
        self._appearance.write("light_diffuse", self._row, diffuse, env_ids)


class Terrain:
    """The ground's surface, and the cell of each environment; robots walk on it without meeting each other.

    Attributes:
        origins: [L, C, 3] where robots start, m: the middles of the cells' platforms.
        levels: [N] int64, the level (row) of each environment.
        columns: [N] int64, its column.
        starts: [N, 2], where the episode of each environment's robot began, m.
    """

    state_names = ("levels", "columns", "starts")

    def __init__(self, surface: TerrainHeights, num_envs: int, device: torch.device) -> None:
        """Put all environments at level 0 and column 0; :meth:`assign` distributes them."""
        self.cfg = surface.cfg
        self.origins: Tensor = torch.tensor(surface.origins, dtype=torch.float32, device=device)
        self.levels = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.columns = torch.zeros_like(self.levels)
        self.starts = torch.zeros(num_envs, 2, device=device)
        rows, self._num_x = surface.heights.shape
        self._heights = torch.tensor(surface.heights, device=device).flatten()
        self._last = (self._num_x - 1.0, rows - 1.0)  # number of the last vertex along x and along y

    @property
    def env_origins(self) -> Tensor:
        """Start of each environment's robot, [N, 3], m."""
        return self.origins[self.levels, self.columns]

    def height_at(self, xy: Tensor) -> Tensor:
        """Return the height of the ground at points [..., 2] of the world, [...], m.

        Between its vertices the surface consists of triangles, as the engine's does: each square is divided along the
        diagonal from its lowest x and y. Outside the grid is the border, at 0.
        """
        x, y = (
            torch.clamp(along / self.cfg.resolution + last / 2, 0.0, last)
            for along, last in zip(xy.unbind(-1), self._last, strict=True)
        )
        left, lower = x.floor().clamp_(max=self._last[0] - 1), y.floor().clamp_(max=self._last[1] - 1)
        in_x, in_y = x - left, y - lower
        first = torch.add(left, lower, alpha=self._num_x).int()
        # The third corner of the triangle: to the right of the diagonal the one along x, else the one along y.
        third = torch.where(in_x >= in_y, first + 1, first + self._num_x)
        low, middle, high = map(self._vertices, (first, third, first + self._num_x + 1))
        return low + (middle - low) * torch.maximum(in_x, in_y) + (high - middle) * torch.minimum(in_x, in_y)

    def _vertices(self, index: Tensor) -> Tensor:
        """Return the heights of vertices by their numbers, both [...]; m."""
        # Several times faster than indexing, on the processor.
        return self._heights.index_select(0, index.flatten()).view(index.shape)

    def assign(self, random: CounterRandom, env_ids: Tensor) -> None:
        """Distribute environments [n]: evenly over the columns by their ids, and at random levels.

        Both follow from an environment's stream, so that they do not depend on N, and a group shares its cell.
        """
        highest = self.cfg.num_levels - 1 if self.cfg.max_init_level is None else self.cfg.max_init_level
        with random.stream("hooks.terrain"):
            draw = random.uniform(env_ids, 0.0, 1.0, 1).squeeze(1)
        columns = random.stream_ids[env_ids] % self.cfg.num_columns
        self.levels = self.levels.index_copy(0, env_ids, (draw * (highest + 1)).long())
        self.columns = self.columns.index_copy(0, env_ids, columns)

    def move(self, env_ids: Tensor, up: Tensor, down: Tensor, draw: Tensor) -> None:
        """Move environments [n] one level ``up`` or ``down``, [n] bool; the lowest level has none below.

        Beyond the last level they move to a random one (``draw`` [n] in [0, 1)), so that none is forgotten (Rudin et
        al., "Learning to walk in minutes using massively parallel deep reinforcement learning", 2022).
        """
        level = self.levels[env_ids] + up.long() - down.long()
        is_beyond = level >= self.cfg.num_levels
        level = torch.where(is_beyond, (draw * self.cfg.num_levels).long(), level.clamp(min=0))
        self.levels = self.levels.index_copy(0, env_ids, level)

    def begin(self, base: BasePose, env_ids: Tensor) -> None:
        """Note where the episodes of environments [n] begin, after the events that move the robot."""
        self.starts = self.starts.index_copy(0, env_ids, base.get()[env_ids, :2])

    def distance_walked(self, base: BasePose) -> Tensor:
        """Return how far a free base is from where its episode began, along the ground, [N], m."""
        return torch.linalg.vector_norm(base.get()[:, :2] - self.starts, dim=1)

    def place(self, bases: Sequence[BasePose], env_ids: Tensor) -> None:
        """Put free bases of robots, at rest, where environments [n] start: their origins and configured poses."""
        for base in bases:
            # The scene's initial state has it on the first cell.
            pos = self.env_origins[env_ids] + (base.initial[:3] - self.origins[0, 0])
            base.set(torch.cat((pos, base.initial[3:].expand(len(env_ids), 4)), dim=1), env_ids)
