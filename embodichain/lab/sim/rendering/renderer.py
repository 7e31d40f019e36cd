"""Rendering: a camera's shot, the appearance of each environment, and the renderers, by OpenGL or by ray tracing.

All of it raises a RenderingUnavailableError where no renderer is installed, or none supports the scene.
Shapes: N environments, n in ``env_ids`` (None: all), H height, W width of an image, P infinite planes.
"""

import contextlib
import copy
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import has_warp, import_for_warp
from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.math import look_at
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.model.model_files import SEEN_GROUPS
from embodichain.lab.sim.model.scene import RENDER_CAMERA
from embodichain.lab.sim.rendering.gl import gl_help
from embodichain.utils import UnavailableError, install_extra, logger

_NEAR, _FAR = 0.02, 50.0  # m, unless the target is very near or far
_SHADOW, _REFLECTION = int(mujoco.mjtRndFlag.mjRND_SHADOW), int(mujoco.mjtRndFlag.mjRND_REFLECTION)
_SHADOW_SIZE = 1024  # pixels, the shadow map's edge; on a processor they cost as much as the image's
_SHADOW_STEP = 3.0  # m, in which the shadow map moves with the view, so that the edges of shadows do not tremble
_SHADOW_REACH = 6.0  # m from the camera, the farthest point in the middle of the view that it reaches
# Half of an endless plane's edge and of its pieces' edges, m: it ends behind the sky, as the engine's own does.
_PLANE_SIZE, _PIECE_SIZE = 320.0, 10.0

UNSET = (0.5, 0.5, 0.5, 1.0)
"""Colour of a geom that leaves it to its material, if it has one."""


def own_colors(model: mujoco.MjModel, rgba: np.ndarray, materials: np.ndarray) -> np.ndarray:
    """Return the colours [G, 4] of geoms, flexes or tendons: each one's own, or its material's if that is unset."""
    is_bare = (materials >= 0) & (rgba == UNSET).all(axis=-1)
    colors = rgba.astype(float)
    colors[is_bare] = model.mat_rgba[materials[is_bare]]
    return colors


class RenderingUnavailableError(UnavailableError):
    """Nothing can be rendered here; the message names the package."""


@dataclass
class Shot:
    """One camera's view of environments, and the images to render it into.

    Attributes:
        size: width and height.
        near, far: the range that is seen, m.
        poses: [N, 4, 4] of the camera in the world; it looks along -z, +y is up.
        intrinsics: [N, 4] fx, fy, cx, cy, pixels.
        object_ids: int32, the mask's number of each geom, flex, tendon and site of the model, and last of the sky.
        images: tensors on the drawer's device: ``color`` [N, H, W, 3] uint8, ``depth`` [N, H, W] float32 m,
            ``mask`` [N, H, W] int32.
    """

    size: tuple[int, int]
    near: float
    far: float
    poses: Tensor
    intrinsics: Tensor
    object_ids: Tensor
    images: dict[str, Tensor] = field(default_factory=dict)

    def lens(self, env_ids: int | Tensor) -> Tensor:
        """Return MuJoCo's intrinsics [..., 4] for a sensor as large as the image: focal lengths, and where the axis is.

        MuJoCo measures the principal point from the image's middle, to the left and upwards.
        """
        fx, fy, cx, cy = self.intrinsics[env_ids].float().unbind(-1)
        return torch.stack((fx, fy, self.size[0] / 2 - cx, self.size[1] / 2 - cy), dim=-1)


class Drawer(Protocol):
    """Renders environments off screen."""

    device: torch.device
    """Device of the images."""

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Render a shot of some environments into its images; RenderingUnavailableError: no renderer is installed."""

    def close(self) -> None:
        """Free contexts and threads."""


class Appearance:
    """Fields of the model for rendering that differ between environments: colours, materials, lights.

    The physics model does not have them, so they cost no step time. An environment's ``version``, [N] int64, increases
    with each change.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int) -> None:
        """Start with the appearance of ``model``, the one for rendering, in every environment."""
        self._model = model
        self._colors = own_colors(model, model.geom_rgba, model.geom_matid)
        self._fields: dict[str, np.ndarray] = {}
        self._geoms_of: dict[tuple[str, tuple[str, ...] | None], list[int]] = {}
        self.version = np.zeros(num_envs, dtype=np.int64)

    def read(self, name: str) -> np.ndarray:
        """Return a field (``geom_rgba``, ``headlight_ambient``) of all environments, [N, ...]; never write into it."""
        if name in self._fields:
            return self._fields[name]
        shared = _array(self._model, name)
        return np.broadcast_to(shared, (len(self.version), *shared.shape))

    def write(self, name: str, rows: int | list[int] | None, values: Tensor, env_ids: Tensor | None = None) -> None:
        """Write entries (None: all) of a field; values broadcast to [n, ...] of one, to [n, rows, ...] of several."""
        if name not in self._fields:
            self._fields[name] = np.array(self.read(name))
        which = np.arange(len(self.version)) if env_ids is None else env_ids.cpu().numpy()
        if isinstance(rows, list):
            which = which[:, None]
        self._fields[name][which if rows is None else (which, rows)] = values.cpu().numpy()
        self.version[which] += 1

    def set_color(
        self, uid: str, rgba: Tensor, env_ids: Tensor | None = None, links: Sequence[str] | None = None
    ) -> None:
        """Set the colour of an entity, or of ``ground``, to [n, 4] or [1, 4], 0 to 1; three keep the opacity.

        Links are names or regular expressions; None: all.
        """
        geoms, rgba = self._geoms(uid, links), rgba.float()
        colors = torch.tensor(self._colors[geoms], dtype=rgba.dtype, device=rgba.device)
        colors = colors.repeat(len(rgba), 1, 1)  # [n, geoms, 4]
        colors[..., : rgba.shape[-1]] = rgba[:, None]
        colors[(colors == colors.new_tensor(UNSET)).all(dim=-1), 0] += 1e-4
        self.write("geom_rgba", geoms, colors, env_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the fields that differ between environments, for a checkpoint."""
        return dict(self._fields)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`."""
        self._fields = dict(state)
        self.version += 1

    def load(self, env_id: int, model: mujoco.MjModel) -> None:
        """Write the appearance of one environment into a copy of the model."""
        for name, values in self._fields.items():
            _array(model, name)[:] = values[env_id]

    def _geoms(self, uid: str, links: Sequence[str] | None) -> list[int]:
        """Return the geoms of an entity's matching links; ConfigError where a pattern matches none."""
        key = (uid, None if links is None else tuple(links))
        if key not in self._geoms_of:
            bodies = [self._model.body(int(body)).name for body in self._model.geom_bodyid]
            owners = ["ground" if name == "world" else name.partition("/")[0] for name in bodies]
            own = {geom: name.rpartition("/")[2] for geom, name in enumerate(bodies) if owners[geom] == uid}
            names = list(dict.fromkeys(own.values()))
            kept = names if links is None else match_names(links, names, f"'{uid}': link_names", "link")
            self._geoms_of[key] = [geom for geom, link in own.items() if link in kept]
        return self._geoms_of[key]


def _array(model: mujoco.MjModel, name: str) -> np.ndarray:
    part, _, field = name.partition("_")
    array: np.ndarray = getattr(model.vis.headlight, field) if part == "headlight" else getattr(model, name)
    return array


@dataclass(frozen=True)
class CameraPose:
    """Pose and intrinsics (fx, fy, cx, cy in pixels) of a pinhole camera, in OpenCV's convention.

    ``eye`` and ``target``, the middle of the view, are in the world frame, m; ``up`` points upwards in the image.
    """

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    up: tuple[float, float, float]
    intrinsics: tuple[float, float, float, float]

    def shifted(self, x: float, y: float) -> "CameraPose":
        """Return the pose moved horizontally by metres, for a camera that follows a body."""
        eye, target = ((place[0] + x, place[1] + y, place[2]) for place in (self.eye, self.target))
        return replace(self, eye=eye, target=target)


class Renderer:
    """Renders environments off screen, with shadows. Use it from the thread that created it."""

    def __init__(
        self,
        backend: Backend,
        appearance: Appearance,
        width: int,
        height: int,
        enable_rt: bool = False,
        device: str = "cpu",
    ) -> None:
        """Choose OpenGL, or where it is missing or ``enable_rt`` is set ray tracing on ``device``."""
        self._drawer: Drawer
        if choose_ray_tracing(enable_rt):
            self._drawer = ray_tracer(backend, appearance, device, 1, shadows=True)
        else:
            self._drawer = OpenGLDrawer(backend, appearance, shadows=True)
        self._num_envs = backend.num_envs
        self._size = (width, height)
        # One image, to which every environment's row refers.
        self._image = torch.zeros(height, width, 3, dtype=torch.uint8, device=self._drawer.device)

    def render(self, env_id: int, pose: CameraPose) -> np.ndarray:
        """Render one environment: return its image, [height, width, 3] uint8."""
        eye, target, up = (torch.tensor(vector, dtype=torch.float64) for vector in (pose.eye, pose.target, pose.up))
        reach = float((target - eye).norm())
        shot = Shot(
            size=self._size,
            near=min(_NEAR, reach / 10),
            far=max(_FAR, 4 * reach),
            poses=look_at(eye, target, up).expand(self._num_envs, 4, 4),
            intrinsics=torch.tensor(pose.intrinsics, dtype=torch.float64).expand(self._num_envs, 4),
            object_ids=torch.zeros(0, dtype=torch.int32),
            images={"color": self._image.expand(self._num_envs, -1, -1, -1)},
        )
        self._drawer.draw(shot, [env_id])
        return self._image.cpu().numpy().copy()

    def close(self) -> None:
        """Free the OpenGL context, or the ray tracer's threads."""
        self._drawer.close()


def make_drawer(backend: Backend, appearance: Appearance, num_threads: int, enable_rt: bool, device: str) -> Drawer:
    """Return the renderer of sensors: with ``enable_rt`` rays with shadows, else OpenGL, or rays without shadows."""
    if choose_ray_tracing(enable_rt):
        return ray_tracer(backend, appearance, device, num_threads, shadows=enable_rt)
    return RenderThreads(backend, appearance, num_threads)


def choose_ray_tracing(enable_rt: bool) -> bool:
    """Return whether to trace rays: if requested, or if OpenGL is missing and the extra is installed."""
    if enable_rt:
        return True
    problem = opengl_problem()
    if problem is None:
        return False
    if not has_warp():
        raise RenderingUnavailableError(f"{problem}; or use ray tracing: {install_extra('raytrace')}") from problem
    logger.warn_once("off-screen OpenGL is missing: images are ray-traced, which is slower")
    return True


def ray_tracer(backend: Backend, appearance: Appearance, device: str, num_threads: int, shadows: bool) -> Drawer:
    """Return a ray tracer."""
    try:
        module = import_for_warp("embodichain.lab.sim.rendering.ray_tracer")
    except ModuleNotFoundError as error:
        raise RenderingUnavailableError(f"ray tracing needs {error.name}: {install_extra('raytrace')}") from error
    model = backend.visual_model
    is_site_seen = (model.site_group < SEEN_GROUPS) & (model.site_rgba[:, 3] > 0)
    if (model.wrap_type == mujoco.mjtWrap.mjWRAP_SITE).any() or is_site_seen.any():
        logger.warn_once("tendons and sites are not in ray-traced images; OpenGL renders them")
    tracer: Drawer = module.RayTracer(backend, appearance, device, num_threads, shadows)
    return tracer


def opengl_problem() -> RenderingUnavailableError | None:
    """Return the reason why OpenGL cannot render here, or None."""
    try:
        _make_renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
    except RenderingUnavailableError as error:
        return error
    return None


class OpenGLDrawer:
    """Renders by OpenGL, one environment after the other. Each thread needs one of its own."""

    device = torch.device("cpu")

    def __init__(self, backend: Backend, appearance: Appearance, shadows: bool) -> None:
        """Prepare; the OpenGL context is created with the first image. Shadows take most of the time."""
        self._backend = backend
        self._appearance = appearance
        self._shadows = shadows
        self._model = copy.copy(backend.visual_model)
        self._data = mujoco.MjData(self._model)
        self._planes = _plain_planes(self._model)
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Render a shot of some environments into its images."""
        for env_id in env_ids:
            self._draw_one(shot, env_id)

    def close(self) -> None:
        """Free the OpenGL context."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers = {}

    def _draw_one(self, shot: Shot, env_id: int) -> None:
        renderer = self._renderer(shot.size)
        self._appearance.load(env_id, self._model)
        self._backend.load_render_data(env_id, self._data)
        # The renderer reads these when it turns its buffer into metres.
        extent = self._model.stat.extent
        self._model.vis.map.znear, self._model.vis.map.zfar = shot.near / extent, shot.far / extent
        pos, rotation = shot.poses[env_id, :3, 3].double().numpy(), shot.poses[env_id, :3, :3].double().numpy()
        camera = self._model.camera(RENDER_CAMERA).id
        self._model.cam_sensorsize[camera], self._model.cam_intrinsic[camera] = shot.size, shot.lens(env_id).numpy()
        self._data.cam_xpos[camera], self._data.cam_xmat[camera] = pos, rotation.ravel()
        renderer.update_scene(self._data, camera)
        if len(self._planes):
            _lay_texture(renderer.scene, self._model, self._planes)
        if self._shadows:
            _move_shadow_map(renderer.scene, pos, -rotation[:, 2])
        images = {kind: image[env_id].numpy() for kind, image in shot.images.items()}
        if "color" in images:
            renderer.render(out=images["color"])
        if "depth" in images:
            renderer.enable_depth_rendering()
            renderer.render(out=images["depth"])
            renderer.disable_depth_rendering()
        if "mask" in images:
            renderer.enable_segmentation_rendering()
            objects = renderer.render()
            renderer.disable_segmentation_rendering()
            images["mask"][:] = shot.object_ids.numpy()[_object_rows(self._model, objects)]

    def _renderer(self, size: tuple[int, int]) -> mujoco.Renderer:
        if size not in self._renderers:
            width, height = size
            visual = self._model.vis
            visual.global_.offwidth, visual.global_.offheight, visual.global_.ipd = width, height, 0.0  # one eye
            quality = visual.quality
            # Facets of round shapes; on a processor, corners cost more than pixels.
            if self._shadows:
                quality.shadowsize, quality.numslices, quality.numstacks = _SHADOW_SIZE, 24, 10
            else:
                slices = min(28, max(12, max(size) // 10))
                quality.shadowsize, quality.numslices, quality.numstacks = 0, slices, slices // 2 - 1
            endless = self._model.geom_size[self._planes]
            self._model.geom_size[self._planes] = (_PLANE_SIZE, _PLANE_SIZE, _PIECE_SIZE)
            renderer = _make_renderer(self._model, width, height)
            self._model.geom_size[self._planes] = endless
            if not self._shadows:
                renderer.scene.flags[_SHADOW] = renderer.scene.flags[_REFLECTION] = 0
            self._renderers[size] = renderer
        return self._renderers[size]


class RenderThreads:
    """Renders shots of many environments on several threads, each with its own OpenGL context and model."""

    device = torch.device("cpu")

    def __init__(self, backend: Backend, appearance: Appearance, num_threads: int) -> None:
        # One pool for each drawer, since an OpenGL context belongs to its thread.
        self._threads = [ThreadPoolExecutor(1, f"render-{i}") for i in range(num_threads)]
        self._drawers = [OpenGLDrawer(backend, appearance, shadows=False) for _ in self._threads]
        # Garbage is collected anywhere, also inside the locks of the pools: another thread waits for these.
        closing = threading.Thread(target=_close, args=(self._threads, self._drawers), daemon=True)
        self._finalizer = weakref.finalize(self, closing.start)
        self._finalizer.atexit = False  # the threads have ended by then, and their contexts

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Render a shot of some environments into its images."""
        parts = [env_ids[i :: len(self._threads)] for i in range(len(self._threads))]
        jobs = zip(self._threads, self._drawers, parts, strict=True)
        for done in [thread.submit(drawer.draw, shot, part) for thread, drawer, part in jobs]:
            done.result()

    def close(self) -> None:
        """End the threads and free their OpenGL contexts."""
        if self._finalizer.detach():
            _close(self._threads, self._drawers)


def _close(threads: list[ThreadPoolExecutor], drawers: list[OpenGLDrawer]) -> None:
    for thread, drawer in zip(threads, drawers, strict=True):
        with contextlib.suppress(RuntimeError):  # at the interpreter's end
            thread.submit(drawer.close)
        thread.shutdown()


def _make_renderer(model: mujoco.MjModel, width: int, height: int) -> mujoco.Renderer:
    """Return MuJoCo's renderer for images of a size, for this thread only; RenderingUnavailableError without OpenGL."""
    try:
        return mujoco.Renderer(model, height=height, width=width)
    except Exception as error:  # the engine's OpenGL backends raise whatever their loaders raise
        raise RenderingUnavailableError(f"{gl_help()} ({error})") from error


def _object_rows(model: mujoco.MjModel, objects: np.ndarray) -> np.ndarray:
    """Return the rows of ``Shot.object_ids`` [...] of what a segmentation shows, [..., id and type]; -1 for the sky."""
    kinds = mujoco.mjtObj
    counts = {kinds.mjOBJ_GEOM: model.ngeom, kinds.mjOBJ_FLEX: model.nflex, kinds.mjOBJ_TENDON: model.ntendon}
    rows, start = np.full(objects.shape[:-1], -1), 0
    for kind, count in (counts | {kinds.mjOBJ_SITE: model.nsite}).items():
        is_kind = objects[..., 1] == int(kind)
        rows[is_kind] = start + objects[is_kind, 0]
        start += count
    return rows


def _move_shadow_map(scene: mujoco.MjvScene, eye: np.ndarray, forward: np.ndarray) -> None:
    """Let parallel light cast shadows around the view of a camera at ``eye`` [3] along ``forward`` [3].

    The engine's shadow map is a square around such a light's position, which means nothing else.
    """
    to_ground = -eye[2] / forward[2] if forward[2] * eye[2] < 0 else np.inf
    target = eye + min(to_ground, _SHADOW_REACH) * forward
    shift = np.round(target[:2] / _SHADOW_STEP) * _SHADOW_STEP
    for light in scene.lights[: scene.nlight]:
        if light.type == int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL) and not light.headlight:
            light.pos[:2] += shift


# The engine cuts every endless plane into 40000 pieces, 3 m long, for lights that are near it. On a processor they are
# more than half of a small image's time. It does so when a renderer is made, and reads the size again for each image:
# so a plane that has an end in the one moment and none in the other is drawn as before, in a thousand pieces.


def _plain_planes(model: mujoco.MjModel) -> np.ndarray:
    """Return the endless planes [P] if no light needs their pieces, else none."""
    if (model.light_type != mujoco.mjtLightType.mjLIGHT_DIRECTIONAL).any():
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero((model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_size[:, :2] <= 0).all(axis=1))


def _lay_texture(scene: mujoco.MjvScene, model: mujoco.MjModel, planes: np.ndarray) -> None:
    """Let textures repeat as on endless planes: on planes of finite size they are stretched from edge to edge."""
    # Flexes come first, then geoms in their order, without hidden ones: each is at its own place or before it.
    for plane in planes.tolist():
        for place in range(min(model.nflex + plane, scene.ngeom - 1), -1, -1):
            geom = scene.geoms[place]
            if geom.objid == plane and geom.objtype == int(mujoco.mjtObj.mjOBJ_GEOM):
                geom.texrepeat = model.mat_texrepeat[geom.matid] * _PLANE_SIZE if geom.matid >= 0 else (0.0, 0.0)
                break
