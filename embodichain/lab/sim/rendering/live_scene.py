"""Live view of some environments of a simulation in a viser page, side by side or on one terrain.

Legend: G geoms, V vertices, F triangles.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.model.terrain import GROUND
from embodichain.lab.sim.rendering.shot import Appearance

MAX_SHOWN = 4
_GAP = 0.6  # m between neighbours, where arms may reach
_LINE = 0.01  # m of the ground left out at each edge, so that the border of an environment is visible
_VIEW = np.array([0.62, -0.62, 0.48])  # the direction from which a page first looks
_SAME = 1e-5  # m, and of quaternions: smaller motions are not sent
_GEOM = mujoco.mjtGeom
_SEGMENTS = 24  # of a circle
_UNSET = (0.5, 0.5, 0.5, 1.0)  # the colour of a geom that is given none; its material's counts then
_SEEN_GROUPS = 3  # of geoms: 0, 1 and 2, as in the engine's own rendering
Mesh = tuple[np.ndarray, np.ndarray]
"""Vertices [V, 3], m, and triangles [F, 3] of their indices, counter-clockwise as seen from outside."""


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


@dataclass(frozen=True)
class VisibleShape:
    """All surfaces of a body that have one colour.

    Attributes:
        vertices: [V, 3] float32, m, in the body's frame.
        faces: [F, 3] uint32, counter-clockwise as seen from outside.
        rgba: 0 to 1.
    """

    vertices: np.ndarray
    faces: np.ndarray
    rgba: tuple[float, float, float, float]


def texture_colours(model: mujoco.MjModel) -> np.ndarray:
    """Return the mean colour of each texture, [textures, 3], 0 to 1."""
    means = np.ones((model.ntex, 3))
    for texture in range(model.ntex):
        channels, first = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
        size = int(model.tex_width[texture]) * int(model.tex_height[texture]) * channels
        means[texture] = model.tex_data[first : first + size].reshape(-1, channels)[:, :3].mean(axis=0) / 255.0
    return means


def geom_looks(model: mujoco.MjModel, textures: np.ndarray) -> np.ndarray:
    """Return the appearance of geoms that may change: colour, size and group, [G, 8].

    The colour is the geom's own or else its material's, times the mean of its texture.

    Args:
        textures: result of :func:`texture_colours`.
    """
    colours = model.geom_rgba.astype(float)
    with_material = np.flatnonzero(model.geom_matid >= 0)
    unset = with_material[(colours[with_material] == _UNSET).all(axis=1)]
    colours[unset] = model.mat_rgba[model.geom_matid[unset]]
    texture_of = model.mat_texid[model.geom_matid[with_material], mujoco.mjtTextureRole.mjTEXROLE_RGB]
    textured = with_material[texture_of >= 0]
    colours[textured, :3] *= textures[texture_of[texture_of >= 0]]
    return np.concatenate([colours, model.geom_size, model.geom_group[:, None]], axis=1)


def has_terrain(model: mujoco.MjModel) -> bool:
    """Return whether the ground is a terrain."""
    ground = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, GROUND)
    return ground >= 0 and model.geom_type[ground] == _GEOM.mjGEOM_HFIELD


def seen_box(model: mujoco.MjModel, data: mujoco.MjData, looks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners [3] and [3], m, of the box around the origin and all visible geoms except planes.

    On a terrain it is around the last body and the visible geoms of bodies, which may be far from the origin.
    """
    is_on_terrain = has_terrain(model)
    is_inside = _is_seen(looks) & (model.geom_type != _GEOM.mjGEOM_PLANE)
    if is_on_terrain:
        is_inside &= model.geom_bodyid > 0
    rotation = data.geom_xmat[is_inside].reshape(-1, 3, 3)
    centre, half = model.geom_aabb[is_inside].reshape(-1, 2, 3).transpose(1, 0, 2)
    middle = data.geom_xpos[is_inside] + np.einsum("gij,gj->gi", rotation, centre)
    reach = np.einsum("gij,gj->gi", np.abs(rotation), half)
    point = data.xpos[-1:] if is_on_terrain else np.zeros((1, 3))
    return np.concatenate([middle - reach, point]).min(axis=0), np.concatenate([middle + reach, point]).max(axis=0)


def _is_seen(looks: np.ndarray) -> np.ndarray:
    is_seen: np.ndarray = (looks[:, 7] < _SEEN_GROUPS) & (looks[:, 3] > 0)
    return is_seen


def body_shapes(
    model: mujoco.MjModel, looks: np.ndarray, bodies: Collection[int], endless: np.ndarray
) -> dict[int, list[VisibleShape]]:
    """Return the visible shapes of bodies.

    Args:
        looks: result of :func:`geom_looks`.
        endless: lower and upper corners [2, 2] at which infinite planes are cut off, in their frame, m.
    """
    parts: dict[tuple[int, tuple[float, ...]], list[Mesh]] = defaultdict(list)
    for geom in np.flatnonzero(_is_seen(looks)):
        body = int(model.geom_bodyid[geom])
        mesh = _geom_mesh(model, int(geom), endless) if body in bodies else None
        if mesh is not None:
            rotation = np.zeros(9)
            mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
            vertices = mesh[0] @ rotation.reshape(3, 3).T + model.geom_pos[geom]
            parts[body, tuple(looks[geom, :4].tolist())].append((vertices, mesh[1]))
    shapes: dict[int, list[VisibleShape]] = {body: [] for body in bodies}
    for (body, rgba), meshes in parts.items():
        vertices, faces = _joined(meshes)
        shapes[body].append(VisibleShape(vertices.astype(np.float32), faces.astype(np.uint32), rgba))  # type: ignore[arg-type]
    return shapes


def _geom_mesh(model: mujoco.MjModel, geom: int, endless: np.ndarray) -> Mesh | None:
    """Return a geom in its own frame; None for kinds that no model file has."""
    size = model.geom_size[geom]
    match _GEOM(model.geom_type[geom]):
        case _GEOM.mjGEOM_PLANE:
            (left, near), (right, far) = np.where(size[:2] > 0, np.stack([-size[:2], size[:2]]), endless)
            return _patch([(left, near, 0), (right, near, 0), (right, far, 0), (left, far, 0)])
        case _GEOM.mjGEOM_BOX:
            return _box(size)
        case _GEOM.mjGEOM_SPHERE:
            return _revolve(_arc(-90, 90) * size[0])
        case _GEOM.mjGEOM_ELLIPSOID:
            vertices, faces = _revolve(_arc(-90, 90))
            return vertices * size, faces
        case _GEOM.mjGEOM_CAPSULE:
            end = (0.0, float(size[1]))
            return _revolve(np.concatenate([_arc(-90, 0) * size[0] - end, _arc(0, 90) * size[0] + end]))
        case _GEOM.mjGEOM_CYLINDER:
            radius, half = float(size[0]), float(size[1])
            outline = [(0.0, -half), (radius, -half), (radius, half), (0.0, half)]
            # Faces that share no vertices have an edge between them.
            return _joined([_revolve(np.array(outline[i : i + 2])) for i in range(3)])
        case _GEOM.mjGEOM_MESH | _GEOM.mjGEOM_SDF:
            return _mesh(model, int(model.geom_dataid[geom]))
        case _GEOM.mjGEOM_HFIELD:
            return _height_field(model, int(model.geom_dataid[geom]))
        case _:
            return None


def _height_field(model: mujoco.MjModel, field: int) -> Mesh:
    """Return the upper surface of a height field, divided into triangles as the engine does for collisions."""
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    x, y, elevation, _ = model.hfield_size[field]
    first = int(model.hfield_adr[field])
    heights = model.hfield_data[first : first + rows * columns] * elevation
    across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
    index = np.arange(rows * columns).reshape(rows, columns)
    corner, right, up, opposite = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    faces = [np.stack(corners, axis=-1) for corners in ((corner, right, opposite), (corner, opposite, up))]
    vertices = np.stack([across.ravel(), along.ravel(), heights], axis=1)
    return vertices, np.concatenate(faces).reshape(-1, 3)


def _arc(first: float, last: float) -> np.ndarray:
    """Return points (radius, height) of the unit circle between two latitudes (degrees)."""
    angles = np.radians(np.linspace(first, last, 1 + int((last - first) * _SEGMENTS / 360)))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _revolve(outline: np.ndarray) -> Mesh:
    """Turn an outline [P, 2] of radius and height, upwards, around the z axis."""
    angles = np.linspace(0, 2 * np.pi, _SEGMENTS, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ring = outline[:, None, :1] * circle  # [P, segments, 2]
    vertices = np.concatenate([ring, np.broadcast_to(outline[:, None, 1:], (*ring.shape[:2], 1))], axis=2)
    index = np.arange(len(outline) * _SEGMENTS).reshape(len(outline), _SEGMENTS)
    low, high = index[:-1], index[1:]
    low_next, high_next = np.roll(low, -1, axis=1), np.roll(high, -1, axis=1)
    faces = [np.stack(corners, axis=-1) for corners in ((low, low_next, high_next), (low, high_next, high))]
    return vertices.reshape(-1, 3), np.concatenate(faces).reshape(-1, 3)


def _box(half: np.ndarray) -> Mesh:
    upper = np.array([(-1.0, -1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, 1.0), (-1.0, 1.0, 1.0)])
    # The axes in turn keep the direction around a side; its mirror image has the opposite one.
    sides = [np.roll(upper, axis, axis=1) for axis in range(3)]
    return _joined([_patch(corners * half) for side in sides for corners in (side, -side[::-1])])


def _patch(corners: object) -> Mesh:
    return np.array(corners, dtype=float), np.array([(0, 1, 2), (0, 2, 3)])


def _mesh(model: mujoco.MjModel, mesh: int) -> Mesh:
    """Return a mesh with a vertex of its own for each normal, so that edges stay edges."""
    first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    corners = model.mesh_face[first : first + count].reshape(-1)
    normals = model.mesh_facenormal[first : first + count].reshape(-1)
    pairs, faces = np.unique(np.stack([corners, normals], axis=1), axis=0, return_inverse=True)
    start = int(model.mesh_vertadr[mesh])
    return model.mesh_vert[start + pairs[:, 0]].astype(float), faces.reshape(-1, 3)


def _joined(meshes: list[Mesh]) -> Mesh:
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
    faces = [faces + start for (_, faces), start in zip(meshes, starts, strict=False)]
    return np.concatenate([vertices for vertices, _ in meshes]), np.concatenate(faces)
