"""Live view of some environments of a simulation in a viser page, side by side or on one terrain."""

from __future__ import annotations

import copy
import math
from typing import Any

import mujoco
import numpy as np

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.visible_shapes import (
    body_shapes,
    geom_looks,
    has_terrain,
    seen_box,
    texture_colours,
)

MAX_SHOWN = 4
_GAP = 0.6  # m between neighbours, where arms may reach
_LINE = 0.01  # m of the ground left out at each edge, so that the border of an environment is visible
_VIEW = np.array([0.62, -0.62, 0.48])  # the direction from which a page first looks
_SAME = 1e-5  # m, and of quaternions: smaller motions are not sent


def places_in_grid(count: int, pitch: tuple[float, float]) -> np.ndarray:
    """Return the places of ``count`` environments, [count, 3] m, in rows around the origin; x grows first.

    Args:
        pitch: distance from one to the next, in x and in y, m.
    """
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    places = np.zeros((count, 3))
    places[:, 0] = (np.arange(count) % columns - (columns - 1) / 2) * pitch[0]
    places[:, 1] = (np.arange(count) // columns - (rows - 1) / 2) * pitch[1]
    return places


class LiveScene:
    """The first environments of a simulation, in a viser server's scene. Use it from the thread that steps them.

    Attributes:
        places: origins of the K shown environments, [K, 3], m.
    """

    def __init__(self, server: Any, backend: Backend, appearance: Appearance) -> None:
        """Show them.

        Args:
            server: a ``viser.ViserServer``.
        """
        self._scene = server.scene
        self._backend = backend
        self._appearance = appearance
        self._model = copy.copy(backend.visual_model)
        self._data = mujoco.MjData(self._model)
        self._textures = texture_colours(self._model)
        self._load(0)
        low, high = seen_box(self._model, self._data, geom_looks(self._model, self._textures))
        size, middle = high - low + _GAP, (low + high)[:2] / 2
        count = min(MAX_SHOWN, backend.num_envs)
        # Environments on a terrain share it: their robots are in different cells, or pass through each other.
        self._is_on_terrain = has_terrain(self._model)
        self.places = np.zeros((count, 3)) if self._is_on_terrain else places_in_grid(count, (size[0], size[1]))
        self.places[:, :2] -= middle  # the origin need not be in the middle of the scene
        # Infinite planes are cut off just before the next environment.
        self._endless = np.stack([middle - size[:2] / 2 + _LINE, middle + size[:2] / 2 - _LINE])
        self._looks: list[np.ndarray | None] = [None] * count
        self._poses = np.full((count, self._model.nbody, 7), np.nan)
        self._frames: list[dict[int, Any]] = [{} for _ in range(count)]
        self._meshes: list[dict[int, list[Any]]] = [{} for _ in range(count)]
        for env_id, place in enumerate(self.places):
            self._scene.add_frame(f"/env_{env_id}", show_axes=False, position=place)
        self._place_camera(server, size, float(high[2]), middle)
        self.update()

    def update(self) -> None:
        """Show the environments as they are."""
        for env_id in range(len(self.places)):
            self._load(env_id)
            looks = geom_looks(self._model, self._textures)
            if self._is_on_terrain and env_id > 0:
                looks[self._model.geom_bodyid == 0, 3] = 0.0  # the ground is there already
            before = self._looks[env_id]
            changed = np.ones(len(looks), dtype=bool) if before is None else (looks != before).any(axis=1)
            if changed.any():
                self._draw(env_id, looks, set(self._model.geom_bodyid[changed].tolist()))
                self._looks[env_id] = looks
            poses = np.concatenate([self._data.xpos, self._data.xquat], axis=1)
            moved = ~(np.abs(poses - self._poses[env_id]) <= _SAME).all(axis=1)
            for body in np.flatnonzero(moved).tolist():
                frame = self._frames[env_id].get(body)
                if frame is not None:
                    frame.position, frame.wxyz = poses[body, :3], poses[body, 3:]
                    self._poses[env_id, body] = poses[body]

    def _load(self, env_id: int) -> None:
        self._appearance.load(env_id, self._model)
        self._backend.load_render_data(env_id, self._data)

    def _draw(self, env_id: int, looks: np.ndarray, bodies: set[int]) -> None:
        """Replace the shapes of bodies in the scene."""
        frames, meshes = self._frames[env_id], self._meshes[env_id]
        for body, shapes in body_shapes(self._model, looks, bodies, self._endless).items():
            for mesh in meshes.pop(body, []):
                mesh.remove()
            name = f"/env_{env_id}/body_{body}"
            if shapes and body not in frames:
                frames[body] = self._scene.add_frame(name, show_axes=False)
            meshes[body] = [
                self._scene.add_mesh_simple(
                    f"{name}/shape_{i}",
                    shape.vertices,
                    shape.faces,
                    color=tuple(round(255 * min(1.0, channel)) for channel in shape.rgba[:3]),
                    opacity=None if shape.rgba[3] >= 1 else shape.rgba[3],
                )
                for i, shape in enumerate(shapes)
            ]

    def _place_camera(self, server: Any, size: np.ndarray, height: float, middle: np.ndarray) -> None:
        """Set the initial camera so that all environments are visible."""
        reach = np.abs(self.places[:, :2] + middle).max(axis=0) + size[:2] / 2
        target = np.array([0.0, 0.0, height / 4])
        distance = 1.9 * float(np.hypot(*reach)) + height
        server.initial_camera.look_at = target
        server.initial_camera.position = target + distance * _VIEW
        server.initial_camera.fov = math.radians(45)
