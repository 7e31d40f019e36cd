"""Live view of some environments of a simulation in a viser page, side by side or on one terrain."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.model.model_files import SEEN_GROUPS
from embodichain.lab.sim.model.terrain import GROUND
from embodichain.lab.sim.rendering.renderer import Appearance, own_colors

MAX_SHOWN = 4
_GAP, _ROOM = 0.6, 2.5  # m between neighbours, where arms may reach, and around a robot that moves
_CELL = 0.5  # m of the ground's grid
_RISE = 0.05  # share of a change of height that the view follows at each update: stairs, but no gait
_ABOVE = 0.004  # m of the grid above its plane, so that browsers draw it
_CONTACT_COLOUR = (235, 90, 40)
_LINE = 0.01  # m of the ground left out at each edge, so that the border of an environment is visible
_VIEW = np.array([0.62, -0.62, 0.48])  # the direction from which a page first looks
_SAME = 1e-5  # m, and of quaternions: smaller motions are not sent
_GEOM = mujoco.mjtGeom
_PULLEY = -2  # among the objects of a tendon's path


def places_in_grid(count: int, pitch: tuple[float, float]) -> np.ndarray:
    """Return the places of environments, [count, 3] m, ``pitch`` apart in x and y around the origin; x grows first."""
    columns = math.ceil(math.sqrt(count))
    row, column = np.divmod(np.arange(count), columns)
    places = np.stack([column - (columns - 1) / 2, row - (math.ceil(count / columns) - 1) / 2, np.zeros(count)], axis=1)
    return places * (*pitch, 0.0)


class LiveScene:
    """The first environments of a simulation, in a viser server's scene. Use it from the thread that steps them.

    Nodes below ``/env_<i>`` are in the frame of environment i.

    Attributes:
        places: places in the page of the K environments' origins or followed entities, [K, 3], m.
        count: number of environments that are shown, at most K.
        follows: whether the followed entity stays in place, and the ground moves.
    """

    def __init__(
        self, server: Any, backend: Backend, appearance: Appearance, followed: Any = None, most: int = MAX_SHOWN
    ) -> None:
        """Show at most ``most`` in a ``viser.ViserServer``; the view follows the entity ``followed``, or stays."""
        self._followed, self.follows, self.shows_contacts = followed, followed is not None, False
        self.count = min(most, backend.num_envs)
        self._scene = server.scene
        self._backend = backend
        self._appearance = appearance
        self._model = copy.copy(backend.visual_model)
        self._data = mujoco.MjData(self._model)
        self._textures = texture_colours(self._model)
        self._load(0)
        low, high = seen_box(self._model, self._data, geom_looks(self._model, self._textures))
        # Environments on a terrain share it: their robots are in different cells, or pass through each other.
        self._is_on_terrain, count = has_terrain(self._model), self.count
        self._centres = self._followed_points()
        low, high = low - self._centres[0], high - self._centres[0]
        size, middle = high - low + (_ROOM if self.follows else _GAP), (low + high)[:2] / 2
        self.places = np.zeros((count, 3)) if self._is_on_terrain else places_in_grid(count, (size[0], size[1]))
        self.places[:, :2] -= middle  # the origin need not be in the middle of the scene
        # Infinite planes are cut off just before the next environment.
        self._endless = np.stack([middle - size[:2] / 2 + _LINE, middle + size[:2] / 2 - _LINE])
        self._looks: list[np.ndarray | None] = [None] * count
        self._poses = np.full((count, self._model.nbody, 7), np.nan)
        self._frames: list[dict[int, Any]] = [{} for _ in range(count)]
        self._nodes: list[dict[int, list[Any]]] = [{} for _ in range(count)]
        self._soft: dict[str, Any] = {}
        self._planes: dict[tuple[int, int], tuple[Any, Any]] = {}  # nodes of endless planes, and their grids
        self._origins = [
            self._scene.add_frame(f"/env_{env_id}", show_axes=False, position=place)
            for env_id, place in enumerate(self.places)
        ]
        look: dict[str, Any] = {"colors": _CONTACT_COLOUR, "point_size": 0.3 * self._model.stat.meansize}
        look |= {"points": np.zeros((0, 3)), "point_shape": "circle", "precision": "float32"}
        self._contacts = [self._scene.add_point_cloud(f"/env_{env_id}/contacts", **look) for env_id in range(count)]
        self._place_camera(server, high - low + _GAP, float(high[2]), middle)
        self.update()

    def update(self) -> None:
        """Show the environments as they are."""
        for env_id, origin in enumerate(self._origins):
            origin.visible = env_id < self.count
        for env_id in range(self.count):
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
            for name, call, props in soft_shapes(self._model, self._data):
                self._show_soft(f"/env_{env_id}/{name}", call, props)
            self._show_contacts(env_id)
        if self.follows:
            self._follow()

    def _followed_points(self) -> np.ndarray:
        """Return the point of each environment that stays in place, [K, 3], m; on a terrain one for all."""
        points = np.zeros((self.count, 3))
        if self._followed is not None:
            positions = self._followed.get_local_pose()[: self.count, :3].cpu().numpy()
            points[:, :2] = positions[:, :2]
            if self._is_on_terrain:
                points[:] = positions[0]
        return points

    def _follow(self) -> None:
        now = self._followed_points()
        now[:, 2] = self._centres[: self.count, 2] + _RISE * (now[:, 2] - self._centres[: self.count, 2])
        self._centres[: self.count] = now
        for env_id, centre in enumerate(now):
            self._origins[env_id].position = self.places[env_id] - centre
        for (env_id, geom), (plane, grid) in self._planes.items():
            shift = self._centres[env_id] * (1, 1, 0)
            plane.position = self._model.geom_pos[geom] + shift
            grid.position = (0.0, 0.0, _ABOVE) - shift % _CELL  # lines stay where they are in the world

    def _show_contacts(self, env_id: int) -> None:
        points = np.zeros((0, 3))
        if self.shows_contacts:
            mujoco.mj_collision(self._model, self._data)
            points = self._data.contact.pos[self._data.contact.dist <= 0]
        self._contacts[env_id].points = points.astype(np.float32)

    def _load(self, env_id: int) -> None:
        self._appearance.load(env_id, self._model)
        self._backend.load_render_data(env_id, self._data)

    def _draw(self, env_id: int, looks: np.ndarray, bodies: set[int]) -> None:
        """Replace the geoms of bodies in the scene."""
        frames, nodes = self._frames[env_id], self._nodes[env_id]
        for node in [node for body in bodies for node in nodes.pop(body, [])]:
            node.remove()
        for geom in np.flatnonzero(is_seen(looks)).tolist():
            body = int(self._model.geom_bodyid[geom])
            if body in bodies:
                name = f"/env_{env_id}/body_{body}"
                if body not in frames:
                    frames[body] = self._scene.add_frame(name, show_axes=False)
                node = add_geom(self._scene, f"{name}/geom_{geom}", self._model, geom, looks[geom], self._endless)
                nodes.setdefault(body, []).extend(node)
                is_plane = self._model.geom_type[geom] == _GEOM.mjGEOM_PLANE
                if self._followed is not None and is_plane and not self._model.geom_size[geom, :2].any():
                    width, depth = self._endless[1] - self._endless[0] - _CELL
                    grid = self._scene.add_grid(
                        f"{name}/geom_{geom}/grid", width=width, height=depth, cell_size=_CELL, section_size=_CELL
                    )
                    self._planes[env_id, geom] = node[0], grid

    def _show_soft(self, name: str, call: str, props: dict[str, Any]) -> None:
        """Add a shape of :func:`soft_shapes` to the scene, or move its points."""
        if name not in self._soft:
            self._soft[name] = getattr(self._scene, call)(name, **props)
            return
        points = "vertices" if "vertices" in props else "points"
        if (np.abs(getattr(self._soft[name], points) - props[points]) > _SAME).any():
            setattr(self._soft[name], points, props[points])

    def _place_camera(self, server: Any, size: np.ndarray, height: float, middle: np.ndarray) -> None:
        """Set the initial camera so that all environments are visible."""
        reach = np.abs(self.places[:, :2] + middle).max(axis=0) + size[:2] / 2
        target = np.array([0.0, 0.0, height / 4])
        distance = 1.9 * float(np.hypot(*reach)) + height
        server.initial_camera.look_at = target
        server.initial_camera.position = target + distance * _VIEW
        server.initial_camera.fov = math.radians(45)


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

    The colour is the geom's own or else its material's, times its texture's mean, see :func:`texture_colours`.
    """
    colours = own_colors(model, model.geom_rgba, model.geom_matid)
    with_material = np.flatnonzero(model.geom_matid >= 0)
    texture_of = model.mat_texid[model.geom_matid[with_material], mujoco.mjtTextureRole.mjTEXROLE_RGB]
    textured = with_material[texture_of >= 0]
    colours[textured, :3] *= textures[texture_of[texture_of >= 0]]
    return np.concatenate([colours, model.geom_size, model.geom_group[:, None]], axis=1)


def soft_shapes(model: mujoco.MjModel, data: mujoco.MjData) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the visible flexes and spatial tendons: name, viser's method to add one, and arguments with world points.

    Triangles are without their thickness. A shape has the same number of points at all times.
    """
    colours = own_colors(model, model.flex_rgba, model.flex_matid[: model.nflex])  # the array is longer
    for flex in np.flatnonzero((model.flex_group < SEEN_GROUPS) & (model.flex_rgba[:, 3] > 0)).tolist():
        vertices = data.flexvert_xpos[_part(model.flex_vertadr, model.flex_vertnum, flex)].astype(np.float32)
        paint = _paint(colours[flex])
        if model.flex_dim[flex] == 1:
            lines = vertices[model.flex_edge[_part(model.flex_edgeadr, model.flex_edgenum, flex)]]
            yield f"flex_{flex}", "add_line_segments", _lines(lines, paint, 2 * model.flex_radius[flex])
            continue
        kind, count = ("elem", model.flex_elemnum) if model.flex_dim[flex] == 2 else ("shell", model.flex_shellnum)
        faces = getattr(model, f"flex_{kind}")[_part(getattr(model, f"flex_{kind}dataadr"), 3 * count, flex)]
        props = {"vertices": vertices, "faces": faces.reshape(-1, 3), "side": "double", **paint}
        yield f"flex_{flex}", "add_mesh_simple", props
    colours = own_colors(model, model.tendon_rgba, model.tendon_matid)
    for tendon in np.flatnonzero((model.tendon_group < SEEN_GROUPS) & (model.tendon_rgba[:, 3] > 0)).tolist():
        own = _part(data.ten_wrapadr, data.ten_wrapnum, tendon)
        points, is_pulley = data.wrap_xpos.reshape(-1, 3)[own], data.wrap_obj.reshape(-1)[own] == _PULLEY
        lines = np.stack([points[:-1], points[1:]], axis=1)[~(is_pulley[:-1] | is_pulley[1:])]
        if len(lines):  # it has at most two points for each site, geom and pulley
            missing = 2 * int(model.tendon_num[tendon]) - len(lines)
            lines = np.concatenate([lines, lines[-1:].repeat(missing, axis=0)]).astype(np.float32)
            paint = _paint(colours[tendon])
            yield f"tendon_{tendon}", "add_line_segments", _lines(lines, paint, 2 * model.tendon_width[tendon])


def soft_points(model: mujoco.MjModel, data: mujoco.MjData) -> list[np.ndarray]:
    """Return the world points of each of :func:`soft_shapes`, [points, 3], m."""
    shapes = soft_shapes(model, data)
    return [props["vertices" if "vertices" in props else "points"].reshape(-1, 3) for _, _, props in shapes]


def _part(first: np.ndarray, count: np.ndarray, index: int) -> slice:
    return slice(int(first[index]), int(first[index] + count[index]))


def _paint(colour: np.ndarray) -> dict[str, Any]:
    """Return viser's colour and opacity of RGBA, 0 to 1."""
    rgb = tuple(round(255 * min(1.0, float(part))) for part in colour[:3])
    return {"color": rgb, "opacity": float(colour[3]) if colour[3] < 1 else None}


def _lines(lines: np.ndarray, paint: dict[str, Any], thickness: float) -> dict[str, Any]:
    return {"points": lines, "colors": paint["color"], "thickness": float(thickness)}


def has_terrain(model: mujoco.MjModel) -> bool:
    """Return whether the ground is a terrain."""
    ground = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, GROUND)
    return ground >= 0 and model.geom_type[ground] == _GEOM.mjGEOM_HFIELD


def seen_box(model: mujoco.MjModel, data: mujoco.MjData, looks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners [3] and [3], m, of the box around the origin, visible geoms except planes, and flexes.

    On a terrain it is around the last body and the visible geoms of bodies, which may be far from the origin.
    """
    is_on_terrain = has_terrain(model)
    is_inside = is_seen(looks) & (model.geom_type != _GEOM.mjGEOM_PLANE)
    if is_on_terrain:
        is_inside &= model.geom_bodyid > 0
    point = data.xpos[-1:] if is_on_terrain else np.zeros((1, 3))
    points = np.concatenate([box_corners(model, data, is_inside), *soft_points(model, data), point])
    return points.min(axis=0), points.max(axis=0)


def is_seen(looks: np.ndarray) -> np.ndarray:
    """Return which geoms are visible, [G] bool, by their :func:`geom_looks`."""
    seen: np.ndarray = (looks[:, 7] < SEEN_GROUPS) & (looks[:, 3] > 0)
    return seen


def box_corners(model: mujoco.MjModel, data: mujoco.MjData, which: np.ndarray) -> np.ndarray:
    """Return the corners of the boxes around some geoms (mask [G]), [8 per geom, 3], m, world frame."""
    centre, half = model.geom_aabb[which].reshape(-1, 2, 1, 3).swapaxes(0, 1)
    signs = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), axis=-1).reshape(8, 3)
    rotation = data.geom_xmat[which].reshape(-1, 3, 3)
    corners = data.geom_xpos[which][:, None] + (centre + signs * half) @ rotation.swapaxes(1, 2)
    return np.asarray(corners.reshape(-1, 3))


def lowest_point(model: mujoco.MjModel) -> float:
    """Return the height of the lowest point of moving collision shapes, in the reference pose, m; 0 without any."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    touches = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    corners = box_corners(model, data, touches & (model.body_weldid[model.geom_bodyid] > 0))
    return float(corners[:, 2].min()) if len(corners) else 0.0


def add_geom(
    scene: Any, name: str, model: mujoco.MjModel, geom: int, look: np.ndarray, endless: np.ndarray
) -> list[Any]:
    """Add a geom to a viser scene, in its body's frame; return its node, or none for kinds that no model file has.

    ``look`` is its row of :func:`geom_looks`. Infinite planes end at lower and upper corners, ``endless`` [2, 2], m.
    """
    size, data = model.geom_size[geom], int(model.geom_dataid[geom])
    paint = _paint(look)
    place = {"position": model.geom_pos[geom], "wxyz": model.geom_quat[geom]}
    match _GEOM(model.geom_type[geom]):
        case _GEOM.mjGEOM_BOX:
            return [scene.add_box(name, dimensions=2 * size, **place, **paint)]
        case _GEOM.mjGEOM_SPHERE:
            return [scene.add_icosphere(name, radius=size[0], **place, **paint)]
        case _GEOM.mjGEOM_ELLIPSOID:
            return [scene.add_icosphere(name, scale=tuple(size), **place, **paint)]
        case _GEOM.mjGEOM_CYLINDER:
            return [scene.add_cylinder(name, radius=size[0], height=2 * size[1], **place, **paint)]
        case _GEOM.mjGEOM_CAPSULE:
            frame = scene.add_frame(name, show_axes=False, **place)
            scene.add_cylinder(f"{name}/side", radius=size[0], height=2 * size[1], **paint)
            for end, z in (("upper", size[1]), ("lower", -size[1])):
                scene.add_icosphere(f"{name}/{end}", radius=size[0], position=np.array([0.0, 0.0, z]), **paint)
            return [frame]  # with which its parts are removed
        case _GEOM.mjGEOM_PLANE:
            (left, near), (right, far) = np.where(size[:2] > 0, np.stack([-size[:2], size[:2]]), endless)
            vertices = np.array([(left, near, 0), (right, near, 0), (right, far, 0), (left, far, 0)])
            faces = np.array([(0, 1, 2), (0, 2, 3)])
        case _GEOM.mjGEOM_MESH | _GEOM.mjGEOM_SDF:
            vertices, faces = _mesh(model, data)
        case _GEOM.mjGEOM_HFIELD:
            vertices, faces = _height_field(model, data)
            # Squares of two shades, so that it is visible how fast it moves.
            is_dark = np.floor(vertices[faces[:, 0], :2] / _CELL).sum(axis=1) % 2 == 1
            dark = {**paint, "color": tuple(round(0.92 * part) for part in paint["color"])}
            pieces = (("light", ~is_dark, paint), ("dark", is_dark, dark))
            return [
                scene.add_mesh_simple(f"{name}/{shade}", vertices=vertices, faces=faces[own], **place, **colour)
                for shade, own, colour in pieces
            ]
        case _:
            return []
    return [scene.add_mesh_simple(name, vertices=vertices, faces=faces, **place, **paint)]


def _height_field(model: mujoco.MjModel, field: int) -> tuple[np.ndarray, np.ndarray]:
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


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a mesh with a vertex of its own for each normal, so that edges stay edges."""
    first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    corners = model.mesh_face[first : first + count].reshape(-1)
    normals = model.mesh_facenormal[first : first + count].reshape(-1)
    pairs, faces = np.unique(np.stack([corners, normals], axis=1), axis=0, return_inverse=True)
    start = int(model.mesh_vertadr[mesh])
    return model.mesh_vert[start + pairs[:, 0]].astype(float), faces.reshape(-1, 3)
