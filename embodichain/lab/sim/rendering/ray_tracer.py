"""Rendering by ray tracing, with MuJoCo Warp (extra ``raytrace``): no OpenGL, and on a GPU all environments at once.

Shapes: N environments, n of them in one call, G geoms, L lights, H height, W width of an image.
"""

import contextlib
import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend, named_geoms
from embodichain.lab.sim.math import matrix_from_quat
from embodichain.lab.sim.model.model_files import SEEN_GROUPS
from embodichain.lab.sim.model.scene import RENDER_CAMERA
from embodichain.lab.sim.rendering.renderer import UNSET, Appearance, RenderingUnavailableError, Shot

_PIXELS_AT_ONCE = 2**24  # of all environments: 256 MiB of buffers
_COMPILING = threading.Lock()  # Warp's compiler and its cache are for one thread at a time


class RayTracer:
    """Renders environments from the tensors of a backend; with a backend on the GPU nothing leaves it.

    Differences from OpenGL: edges of round shapes are exact; only the nearest translucent surface lets light through;
    there is no haze at the horizon and no near plane; depths and masks end at ``far``, colours do not; tendons are
    missing; lights that a file lets follow a body or aim at it are fixed to theirs.

    The first image of a scene waits some seconds for its kernel to be compiled; the kernel is cached on disk.
    """

    def __init__(self, backend: Backend, appearance: Appearance, device: str, num_threads: int, shadows: bool) -> None:
        """Load the scene to ``cpu``, ``cuda:0``, ...; a GPU needs one thread."""
        self.device = torch.device(device)
        self._scene = RayScene(backend, appearance, self.device)
        # With CUDA there, which device Warp uses by itself is the process's affair, so one thread must do.
        is_parallel = self.device.type == "cpu" and not warp.is_cuda_available()
        num_threads = min(num_threads, backend.num_envs) if is_parallel else 1
        model = _drawable(backend)
        with warp.ScopedDevice(str(self.device)):
            try:
                device_model = mujoco_warp.put_model(model)
            except (NotImplementedError, ValueError) as error:
                raise RenderingUnavailableError(f"ray tracing cannot render this scene: {error}") from error
        num_worlds = -(-backend.num_envs // num_threads)
        self._tables = [_Table(model, device_model, self.device, num_worlds, shadows) for _ in range(num_threads)]
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="ray-tracing")

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Render a shot of some environments into its images."""
        ids = torch.tensor(env_ids, device=self.device)
        share = -(-len(env_ids) // len(self._tables))
        tables = self._tables[: -(-len(env_ids) // share)]
        for table in tables:
            table.prepare(shot)
        limit = min(share, tables[0].num_worlds(shot.size))
        parts = ids.split(limit)
        for first in range(0, len(parts), len(tables)):
            now = parts[first : first + len(tables)]
            scenes = [self._scene.rows(part, shot) for part in now]
            pairs = zip(tables, scenes, strict=False)
            jobs = [self._threads.submit(table.trace, shot, scene) for table, scene in pairs]
            for part, job in zip(now, jobs, strict=True):
                _store(shot, part, job.result())

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


class _Table:
    """Buffers and model of one thread."""

    def __init__(
        self, model: mujoco.MjModel, loaded: mujoco_warp.Model, device: torch.device, num_worlds: int, shadows: bool
    ) -> None:
        self._host_model = model
        self._device = device
        self._num_worlds = num_worlds
        self._shadows = shadows
        self._is_compiled = False
        self._contexts: dict[tuple[int, int], mujoco_warp.RenderContext] = {}
        with warp.ScopedDevice(str(device)):
            self._model = _with_one_camera(copy.copy(loaded), model)
            self._data = mujoco_warp.make_data(model, nworld=1, nconmax=1, njmax=1)

    def num_worlds(self, size: tuple[int, int]) -> int:
        """Return how many environments can be rendered at once."""
        return max(1, min(self._num_worlds, _PIXELS_AT_ONCE // (size[0] * size[1])))

    def prepare(self, shot: Shot) -> None:
        """Allocate the buffers for images of a size."""
        if shot.size in self._contexts:
            return
        with warp.ScopedDevice(str(self._device)):
            context = mujoco_warp.create_render_context(
                self._host_model,
                nworld=self.num_worlds(shot.size),
                cam_res=shot.size,
                cam_active=[RENDER_CAMERA],
                render_rgb=True,
                render_depth=True,
                render_seg=True,
                use_precomputed_rays=False,
                use_shadows=self._shadows,
                render_skybox=True,
                enabled_geom_groups=[0],
            )
            context.cam_id_map = warp.zeros(1, dtype=int)
            context.headlight_active = False  # it is among the lights, since environments differ in it
            context.zfar = 0.0  # a constant of the kernel: each value would be compiled separately
            self._contexts[shot.size] = context

    def trace(self, shot: Shot, scene: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return images of environments as ``RayScene.rows`` describes them, [n, H, W, ...] each."""
        alpha = scene["geom_alpha"]
        # Nearly always there are none, or some in every environment: one look at all of them.
        if not bool(((alpha > 0.0) & (alpha < 1.0)).any()):
            color, depth, geoms = self._pass(shot, scene)
            return {"color": color, "depth": depth, "mask": geoms}
        front, depth, geoms = self._pass(shot, scene)
        opaque = scene["geom_rgba"].clone()
        opaque[..., 3] = torch.where(alpha < 1.0, 0.0, opaque[..., 3])
        back, _, _ = self._pass(shot, scene | {"geom_rgba": opaque})
        # OpenGL draws translucent geoms twice, from the front and from the back.
        alpha = torch.nn.functional.pad(alpha, (0, self._host_model.nflex), value=1.0)
        share = torch.gather(alpha, 1, geoms.flatten(1).clamp(min=0).long()).view(geoms.shape)
        share = torch.where(geoms < 0, 1.0, 1.0 - (1.0 - share) ** 2)[..., None]
        color = (share * front + (1.0 - share) * back).round().to(torch.uint8)
        return {"color": color, "depth": depth, "mask": geoms}

    def _pass(self, shot: Shot, scene: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return colours [n, H, W, 3] uint8, depths [n, H, W] m, and rows of ``object_ids`` [n, H, W], -1: sky."""
        context = self._contexts[shot.size]
        num_worlds, (width, height) = len(scene["geom_xpos"]), shot.size
        values = {name: value.contiguous() for name, value in scene.items() if name != "geom_alpha"}
        refitted = num_worlds
        if self._host_model.nflex:  # the engine refits flexes in all of the context's worlds: the last one fills up
            refitted = self.num_worlds(shot.size)
            rows = torch.arange(refitted, device=self._device).clamp(max=num_worlds - 1)
            values = {name: value[rows] for name, value in values.items()}
        for name, value in values.items():
            owner = self._data if hasattr(self._data, name) else self._model
            setattr(owner, name, warp.from_torch(value, dtype=getattr(owner, name).dtype))
        self._model.cam_sensorsize = warp.array([[width, height]], dtype=warp.vec2, device=str(self._device))
        self._data.nworld = refitted
        with contextlib.ExitStack() as stack:
            if not self._is_compiled:
                stack.enter_context(_COMPILING)
            if warp.is_cuda_available():
                stack.enter_context(warp.ScopedDevice(str(self._device)))
            if self._device.type == "cuda":
                stack.enter_context(warp.ScopedStream(warp.stream_from_torch(self._device)))
            mujoco_warp.refit_bvh(self._model, self._data, context)
            self._data.nworld = num_worlds
            mujoco_warp.render(self._model, self._data, context)
        self._is_compiled = True
        shape = (num_worlds, height, width)
        packed = warp.to_torch(context.rgb_data.view(warp.int32))[:num_worlds]
        # Four bytes a pixel: blue, green, red, and one that is always full.
        color = packed.view(torch.uint8).view(*shape, 4)[..., [2, 1, 0]]
        depth = warp.to_torch(context.depth_data)[:num_worlds].view(shape)
        is_there = (depth > 0.0) & (depth < shot.far)
        seen, kind = warp.to_torch(context.seg_data)[:num_worlds].view(*shape, 2).unbind(-1)
        seen = torch.where(kind == int(mujoco.mjtObj.mjOBJ_FLEX), self._host_model.ngeom + seen, seen)
        return color, torch.where(is_there, depth, shot.far), torch.where(is_there, seen, -1)


def _drawable(backend: Backend) -> mujoco.MjModel:
    """Return a copy of the model for rendering, with settings that matter only to the physics as Warp takes them."""
    model = copy.copy(backend.visual_model)
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    model.opt.enableflags = 0
    model.opt.noslip_iterations = 0
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
    model.geom_friction[:] = 1.0
    model.flex_selfcollide[:], model.flex_passive[:] = 0, 0
    # Group 0 is rendered: geoms that are visible now, or may become visible in some environment.
    is_drawn = model.geom_group < SEEN_GROUPS
    is_drawn[named_geoms(backend.model, model)[1]] = True
    model.geom_group[:] = np.where(is_drawn, 0, 5)
    return model


def _with_one_camera(device_model: mujoco_warp.Model, model: mujoco.MjModel) -> mujoco_warp.Model:
    """Give a device's model one camera, and one more light: the one at the camera."""
    num_lights = model.nlight + 1
    device_model.nlight = num_lights
    device_model.cam_projection = warp.zeros(1, dtype=int)
    device_model.cam_fovy = warp.zeros((1, 1), dtype=float)
    columns: dict[str, tuple[Any, Any]] = {
        "light_type": (int, int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)),
        "light_castshadow": (bool, False),
        "light_active": (bool, True),
        "light_attenuation": (warp.vec3, (1.0, 0.0, 0.0)),
        "light_cutoff": (float, 90.0),
        "light_exponent": (float, 0.0),
    }
    for name, (dtype, last) in columns.items():
        rows = np.concatenate((getattr(model, name), [last]))[None]
        setattr(device_model, name, warp.array(rows, dtype=dtype))
    return device_model


def _store(shot: Shot, env_ids: Tensor, drawn: dict[str, Tensor]) -> None:
    for kind, image in shot.images.items():
        values = drawn[kind]
        if kind == "mask":
            values = shot.object_ids.to(values.device)[values.long()]  # nothing is -1, the last
        if len(env_ids) == 1:
            image[int(env_ids)] = values[0]
        else:
            image[env_ids] = values


class RayScene:
    """The scene of every environment, from the backend's and the appearance's present state."""

    def __init__(self, backend: Backend, appearance: Appearance, device: torch.device) -> None:
        model = backend.visual_model
        self._backend = backend
        self._appearance = appearance
        self._device = device
        self._body_of_geom = torch.from_numpy(model.geom_bodyid).long().to(device)
        self._geom_pos = self._static("geom_pos")
        self._geom_mat = matrix_from_quat(self._static("geom_quat"))
        self._mat_rgba = self._static("mat_rgba")
        self._geom_matid = torch.from_numpy(model.geom_matid).long().to(device)
        self._named, self._seen = named_geoms(backend.model, model)
        self._has_flexes = model.nflex > 0
        self._body_of_light = torch.from_numpy(model.light_bodyid).long().to(device)

    def rows(self, env_ids: Tensor, shot: Shot) -> dict[str, Tensor]:
        """Return the scene of some environments: float32, n before the shapes of MuJoCo's fields of these names.

        Colours are the materials' where a geom has none. There is one camera, with intrinsics in pixels; the light at
        the camera is the last; ``geom_alpha`` [n, G] is 0 for hidden geoms.
        """
        xpos, xmat = (self._read(name, env_ids) for name in ("xpos", "xmat"))
        xmat = xmat.view(*xpos.shape[:2], 3, 3)
        body_mat = xmat[:, self._body_of_geom]
        geom_pos = (body_mat @ self._geom_pos[:, :, None]).squeeze(-1) + xpos[:, self._body_of_geom]
        poses = shot.poses[env_ids.to(shot.poses.device)].to(self._device, torch.float32)
        eye, view = poses[:, :3, 3], poses[:, :3, :3]
        rgba = self._colors(env_ids)
        return {
            "geom_xpos": geom_pos,
            "geom_xmat": body_mat @ self._geom_mat,
            "geom_size": self._own("geom_size", env_ids),
            "geom_rgba": rgba,
            "geom_alpha": rgba[..., 3],
            "cam_xpos": eye[:, None],
            "cam_xmat": view[:, None],
            "cam_intrinsic": shot.lens(env_ids.to(shot.intrinsics.device)).to(self._device)[:, None],
            "flexvert_xpos": self._read("flexvert_xpos", env_ids) if self._has_flexes else xpos[:, :0],
        } | self._light(env_ids, xpos, xmat, eye, -view[:, :, 2])

    def _read(self, name: str, env_ids: Tensor) -> Tensor:
        """Return a field of the simulation's state, [n, ...]."""
        values = self._backend.read(name)
        return values[env_ids.to(values.device)].to(self._device)

    def _static(self, name: str) -> Tensor:
        return torch.from_numpy(getattr(self._backend.visual_model, name)).float().to(self._device)

    def _look(self, name: str, env_ids: Tensor) -> Tensor:
        """Return a field of the appearance, [n, ...]."""
        return torch.from_numpy(self._appearance.read(name)[env_ids.cpu().numpy()]).float().to(self._device)

    def _own(self, name: str, env_ids: Tensor) -> Tensor:
        """Return a field of the geoms, [n, G, ...], which of rigid bodies may differ between environments."""
        shared = self._static(name)
        values = shared.expand(len(env_ids), *shared.shape).clone()
        own = self._backend.read_model(name)
        values[:, self._seen] = own[env_ids.to(own.device)][:, self._named].to(self._device, torch.float32)
        return values

    def _colors(self, env_ids: Tensor) -> Tensor:
        """Return colours [n, G, 4]: a geom's own, or else its material's; geoms in a hidden group have alpha 0."""
        rgba = self._look("geom_rgba", env_ids)
        if len(self._mat_rgba):  # as ``own_colors``, on the device
            is_bare = (rgba == torch.tensor(UNSET, device=self._device)).all(dim=-1) & (self._geom_matid >= 0)
            rgba = torch.where(is_bare[..., None], self._mat_rgba[self._geom_matid.clamp(min=0)], rgba)
        rgba[..., 3] *= self._own("geom_group", env_ids) < SEEN_GROUPS
        return rgba

    def _light(self, env_ids: Tensor, xpos: Tensor, xmat: Tensor, eye: Tensor, forward: Tensor) -> dict[str, Tensor]:
        """Return the lights, which are fixed to their bodies, and the one at the camera."""
        turn = xmat[:, self._body_of_light]
        pos = (turn @ self._look("light_pos", env_ids)[..., None]).squeeze(-1) + xpos[:, self._body_of_light]
        direction = (turn @ self._look("light_dir", env_ids)[..., None]).squeeze(-1)
        colors = {}
        for part in ("ambient", "diffuse", "specular"):
            own, camera = self._look(f"light_{part}", env_ids), self._look(f"headlight_{part}", env_ids)
            colors[f"light_{part}"] = torch.cat((own, camera[:, None]), dim=1)
        return colors | {
            "light_xpos": torch.cat((pos, eye[:, None]), dim=1),
            "light_xdir": torch.cat((torch.nn.functional.normalize(direction, dim=-1), forward[:, None]), dim=1),
        }
