"""Cameras and contact sensors. Shapes: N environments, n in ``env_ids`` (None: all), H x W an image, F links."""

from collections.abc import Callable, Iterable

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.assets import LINK_ALIASES
from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.cfg import CameraCfg, ContactSensorCfg, StereoCameraCfg
from embodichain.lab.sim.math import (
    look_at,
    matrix_from_euler,
    matrix_from_quat,
    pose_from_pos_matrix,
    pose_from_pos_quat,
    row_from_pose,
)
from embodichain.lab.sim.rendering.renderer import Appearance, Drawer, RenderingUnavailableError, Shot
from embodichain.utils import ConfigError, replace, unknown_name

__all__ = ["Camera", "CameraCfg", "ContactSensor", "ContactSensorCfg", "StereoCamera", "StereoCameraCfg"]


def mask_numbers(model: mujoco.MjModel) -> dict[str, int]:
    """Return the numbers of entities in masks, by uid; 0 is the sky, 1 the ground."""
    uids = (model.body(int(body)).name.partition("/")[0] for body in range(1, model.nbody))
    return {uid: i for i, uid in enumerate(dict.fromkeys(["ground", *uids]), start=1)}


class Camera:
    """One camera of every environment; it renders when its images are read, and only changed environments.

    ``mask_numbers`` are the numbers in ``mask``, by uid; with ``is_held`` it returns the last images without rendering.
    """

    state_names = ("_pose", "_intrinsics")

    def __init__(self, cfg: CameraCfg, backend: Backend, appearance: Appearance, drawing: Callable[[], Drawer]) -> None:
        """Place the camera by its config; ``drawing`` returns the renderer and is called for the first image."""
        self.cfg = cfg
        self.uid = cfg.uid
        self._backend = backend
        self._appearance = appearance
        self._drawing = drawing
        self.mask_numbers = mask_numbers(backend.visual_model)
        self._object_numbers = _object_numbers(backend.visual_model, self.mask_numbers)
        self._mount = _find_mount(backend.model, cfg)
        num_envs = backend.num_envs
        self._pose = _configured_pose(cfg).repeat(num_envs, 1, 1)
        self._intrinsics = torch.tensor(cfg.lens).repeat(num_envs, 1)
        self._images: dict[str, Tensor] = {}
        self._changes = np.zeros(num_envs, dtype=np.int64)
        self._drawn: tuple[Tensor, np.ndarray] | None = None
        self._handed_out: dict[str, Tensor] | None = None
        self.is_held = False

    def get_data(self) -> dict[str, Tensor]:
        """Return the images of the present state that the config enables.

        They are ``color`` [N, H, W, 3] uint8; ``depth`` [N, H, W] float32, m along the view; ``mask`` [N, H, W] int32,
        the ``mask_numbers`` of the seen entity.
        """
        if not self.is_held or self._handed_out is None:
            self._draw_what_changed()
            # A copy, since the next rendering writes into the same memory.
            self._handed_out = {k: image.clone().to(self._backend.device) for k, image in self._images.items()}
        return dict(self._handed_out)

    def get_intrinsics(self) -> Tensor:
        """Return the camera matrices, [N, 3, 3], pixels."""
        matrix = torch.zeros(len(self._intrinsics), 3, 3)
        matrix[:, [0, 1, 0, 1], [0, 1, 2, 2]] = self._intrinsics
        matrix[:, 2, 2] = 1.0
        return matrix.to(self._backend.device)

    def set_intrinsics(self, intrinsics: Tensor, env_ids: Tensor | None = None) -> None:
        """Change the lens to [n, 4] fx, fy, cx, cy, or to camera matrices [n, 3, 3]; pixels."""
        if intrinsics.shape[-2:] == (3, 3):
            intrinsics = intrinsics[:, [0, 1, 0, 1], [0, 1, 2, 2]]
        self._change(self._intrinsics, intrinsics, env_ids)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the pose in the parent's frame, [N, 7] (x, y, z, qw, qx, qy, qz) or [N, 4, 4]."""
        pose = self._pose.to(self._backend.device)
        return pose if to_matrix else row_from_pose(pose)

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move the camera to [n, 7] (x, y, z, qw, qx, qy, qz) or [n, 4, 4] in its parent's frame."""
        matrix = pose if pose.shape[-2:] == (4, 4) else pose_from_pos_quat(pose[:, :3], pose[:, 3:])
        self._change(self._pose, matrix, env_ids)

    def look_at(self, eye: Tensor, target: Tensor, up: Tensor, env_ids: Tensor | None = None) -> None:
        """Put the camera at ``eye``, with ``target`` in the middle and ``up`` upwards: [n, 3] each, parent's frame."""
        self.set_local_pose(look_at(eye, target, up), env_ids)

    def get_arena_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the pose in the environment's frame, [N, 7] (x, y, z, qw, qx, qy, qz) or [N, 4, 4]."""
        pose = self._pose.to(self._backend.device)
        if self._mount is not None:
            kind, index = self._mount
            pos, rotation = (self._backend.read(f"{kind}{part}")[:, index] for part in ("pos", "mat"))
            pose = pose_from_pos_matrix(pos, rotation.reshape(-1, 3, 3)) @ pose
        return pose if to_matrix else row_from_pose(pose)

    def _change(self, where: Tensor, values: Tensor, env_ids: Tensor | None) -> None:
        which = torch.arange(len(where)) if env_ids is None else env_ids.cpu()
        where[which] = values.cpu().float()
        self._changes[which.numpy()] += 1

    def _draw_what_changed(self) -> None:
        backend = self._backend
        parts = [backend.qpos, backend.read("mocap_pos").flatten(1), backend.read("mocap_quat").flatten(1)]
        state, looks = torch.cat(parts, dim=1).cpu(), self._changes + self._appearance.version + backend.looks
        if self._drawn is None:
            stale = np.ones(backend.num_envs, dtype=bool)
        else:
            # As equality, so that NaN is rendered again.
            stale = ~(state == self._drawn[0]).all(dim=1).numpy() | (looks != self._drawn[1])
        if stale.any():
            try:
                self._draw(np.flatnonzero(stale).tolist())
            except RenderingUnavailableError as error:
                raise ConfigError(f"sensor '{self.uid}': its images are needed, but {error}") from error
        self._drawn = (state, looks)

    def _draw(self, env_ids: list[int]) -> None:
        cfg, drawer = self.cfg, self._drawing()
        if not self._images:
            shape = (self._backend.num_envs, cfg.height, cfg.width)
            forms = {"color": ((*shape, 3), torch.uint8), "depth": (shape, torch.float32), "mask": (shape, torch.int32)}
            for kind in cfg.kinds:
                size, dtype = forms[kind]
                self._images[kind] = torch.zeros(size, dtype=dtype, device=drawer.device)
        shot = Shot(
            size=(cfg.width, cfg.height),
            near=cfg.near,
            far=cfg.far,
            poses=self.get_arena_pose(to_matrix=True).to(drawer.device),
            intrinsics=self._intrinsics,
            object_ids=self._object_numbers,
            images=self._images,
        )
        drawer.draw(shot, env_ids)


class StereoCamera(Camera):
    """Two cameras; images of ``right``, the right one, are ``color_right`` and so on."""

    cfg: StereoCameraCfg

    def __init__(
        self, cfg: StereoCameraCfg, backend: Backend, appearance: Appearance, drawing: Callable[[], Drawer]
    ) -> None:
        super().__init__(cfg, backend, appearance, drawing)
        turn = matrix_from_euler(torch.deg2rad(torch.tensor(cfg.left_to_right_rot)))
        self._to_right = pose_from_pos_matrix(torch.tensor(cfg.left_to_right_pos), turn)
        lens = cfg.intrinsics_right or cfg.intrinsics
        self.right = Camera(replace(cfg, intrinsics=lens), backend, appearance, drawing)
        self.right.set_local_pose(self._pose @ self._to_right)

    def get_data(self) -> dict[str, Tensor]:
        """Return the images of both; with ``enable_disparity`` also ``disparity`` [N, H, W] float32, pixels.

        Disparity is fx b / depth of the left camera, b being the distance between the two along x.
        """
        data = super().get_data()
        data |= {f"{kind}_right": image for kind, image in self.right.get_data().items()}
        if self.cfg.enable_disparity:
            focal = self._intrinsics[:, 0].to(self._backend.device)[:, None, None]
            data["disparity"] = focal * self.cfg.left_to_right_pos[0] / data["depth"]
        return data

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move both; ``pose`` is the left one's, as in :meth:`Camera.set_local_pose`."""
        super().set_local_pose(pose, env_ids)
        which = slice(None) if env_ids is None else env_ids.cpu()
        self.right.set_local_pose(self._pose[which] @ self._to_right, env_ids)


def _object_numbers(model: mujoco.MjModel, numbers: dict[str, int]) -> Tensor:
    """Return the mask's number of each geom, flex, tendon and site, and last of the sky, int32."""
    bodies = [*model.geom_bodyid]
    for flex in range(model.nflex):
        kind = "node" if model.flex_nodenum[flex] else "vert"  # the vertices of a flex with nodes have no bodies
        first, count = (int(getattr(model, f"flex_{kind}{part}")[flex]) for part in ("adr", "num"))
        bodies.append(getattr(model, f"flex_{kind}bodyid")[first : first + count].max())  # pinned ones are the world's
    for last in model.tendon_adr + model.tendon_num - 1:  # a spatial tendon ends at a site; others are not drawn
        is_site = model.wrap_type[last] == mujoco.mjtWrap.mjWRAP_SITE
        bodies.append(model.site_bodyid[model.wrap_objid[last]] if is_site else 0)
    bodies += [*model.site_bodyid]
    owners = [model.body(int(body)).name.partition("/")[0] for body in bodies]
    # Geoms of the world body are the ground.
    return torch.tensor([*(numbers.get(owner, numbers["ground"]) for owner in owners), 0], dtype=torch.int32)


def _configured_pose(cfg: CameraCfg) -> Tensor:
    where = cfg.extrinsics
    if where.eye is not None and where.target is not None:
        return look_at(torch.tensor(where.eye), torch.tensor(where.target), torch.tensor(where.up))
    quat = torch.nn.functional.normalize(torch.tensor(where.quat), dim=0)
    return pose_from_pos_matrix(torch.tensor(where.pos), matrix_from_quat(quat))


def _find_mount(model: mujoco.MjModel, cfg: CameraCfg) -> tuple[str, int] | None:
    """Return the parent of the config, ``x`` (a body) or ``site_x`` with its id; ConfigError where not one matches."""
    parent = cfg.extrinsics.parent
    if parent is None:
        return None
    place = f"sensor '{cfg.uid}': extrinsics.parent"
    bodies = {model.body(i).name: ("x", i) for i in range(1, model.nbody)}
    sites = {model.site(i).name: ("site_x", i) for i in range(model.nsite)}
    mounts = sites | bodies
    found = _matches(parent, mounts) or _matches(LINK_ALIASES.get(parent, parent), mounts)
    if not found:
        raise ConfigError(f"{place}: {unknown_name('link or site', parent, mounts)}")
    if len(found) > 1:
        raise ConfigError(f"{place}: '{parent}' may be any of {', '.join(found)}")
    return mounts[found[0]]


def _matches(name: str, mounts: Iterable[str]) -> list[str]:
    return [name] if name in mounts else [full for full in mounts if full.rpartition("/")[2] == name]


class ContactSensor:
    """Forces on links, and how long each has been in the air or on the ground.

    Forces, positions and velocities are the engine's in the last substep of the control step, so reading them costs no
    computation. After a reset they are 0 until physics steps.

    Attributes:
        force: [N, F, 3] sum of the contact forces on each link of ``names``, N, world frame.
        in_contact: [N, F] bool, whether the force exceeds ``force_threshold``.
        air_time: [N, F] time since the last contact, s; 0 in contact.
        contact_time: [N, F] time since the present contact began, s; 0 in the air.
        last_air_time: [N, F] duration of the last completed time in the air, s.
        last_contact_time: [N, F] duration of the last completed contact, s.
        first_contact: [N, F] bool, whether the link has landed in this control step.
        pos: [N, F, 3] position of each link's origin, m, world frame.
        vel: [N, F, 3] its velocity, m/s, world frame.
    """

    state_names = (
        *("force", "in_contact", "air_time", "contact_time"),
        *("last_air_time", "last_contact_time", "first_contact", "pos", "vel"),
    )

    def __init__(self, cfg: ContactSensorCfg, backend: Backend, names: list[str], first_column: int) -> None:
        """Bind the sensor; from ``first_column`` of ``sensordata`` on follow the F forces, positions and velocities."""
        self.cfg = cfg
        self.names = names
        self._backend = backend
        self._columns = slice(first_column, first_column + 9 * len(names))
        n, f = backend.num_envs, len(names)
        self.force, self.pos, self.vel = torch.zeros(3, n, f, 3, device=backend.device).unbind()
        self.in_contact, self.first_contact = torch.zeros(2, n, f, dtype=torch.bool, device=backend.device).unbind()
        times = torch.zeros(4, n, f, device=backend.device)
        self.air_time, self.contact_time, self.last_air_time, self.last_contact_time = times.unbind()
        backend.read_last("sensordata")  # the engine fills only fields that were read before

    def update(self, duration: float, env_ids: Tensor | None = None) -> None:
        """Read the engine's values after a control step of ``duration`` s in environments [n] (None: all)."""
        before = {} if env_ids is None else {name: getattr(self, name) for name in self.state_names}
        self._read(duration)
        for name, old in before.items():
            setattr(self, name, old.index_copy(0, env_ids, getattr(self, name)[env_ids]))

    def _read(self, duration: float) -> None:
        values = self._backend.read_last("sensordata")[:, self._columns].unflatten(1, (3, -1, 3))
        force, self.pos, self.vel = values.unbind(1)
        self.force = -force  # the engine's sensor has the force of the link on the others
        touches = self.force.square().sum(dim=2) > self.cfg.force_threshold**2
        flown, stood = self.air_time + duration, self.contact_time + duration
        # A link that has touched the ground since the reset, and before it nothing, has not landed.
        self.first_contact = touches & (self.air_time > 0)
        lifted = ~touches & (self.contact_time > 0)
        self.last_air_time = torch.where(self.first_contact, flown, self.last_air_time)
        self.last_contact_time = torch.where(lifted, stood, self.last_contact_time)
        self.air_time = torch.where(touches, 0.0, flown)
        self.contact_time = torch.where(touches, stood, 0.0)
        self.in_contact = touches

    def reset(self, env_ids: Tensor) -> None:
        """Set everything to 0 in environments [n], which begin an episode."""
        for name in self.state_names:
            setattr(self, name, getattr(self, name).index_fill(0, env_ids, 0))
