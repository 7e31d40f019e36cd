"""Poses and appearance of the scene for the ray tracer, as torch tensors.

Shapes: N environments, n of them in one call, G geoms, L lights, B bodies.
"""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend, named_geoms
from embodichain.lab.sim.math import matrix_from_quat
from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.shot import Shot

_UNPAINTED = (0.5, 0.5, 0.5, 1.0)
"""The colour of a geom that leaves it to its material."""


def visible_groups() -> list[int]:
    """Return the groups of geoms that are rendered."""
    return [group for group, is_shown in enumerate(mujoco.MjvOption().geomgroup) if is_shown]


class RayScene:
    """The scene of every environment, from the backend's and the appearance's present state."""

    def __init__(self, backend: Backend, appearance: Appearance, device: torch.device) -> None:
        """Read the constants; ``device`` is the tensors' device."""
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
        self._lights = _Lights(model, device)

    def rows(self, env_ids: Tensor, shot: Shot) -> dict[str, Tensor]:
        """Return the scene of some environments.

        Returns:
            float32, named as the fields of MuJoCo's model and data, each with n before its shape there: ``geom_xpos``,
            ``geom_xmat``, ``geom_size``, ``geom_rgba`` (with the materials' colours; alpha 0 for hidden geoms);
            ``cam_xpos``, ``cam_xmat``, ``cam_intrinsic`` of one camera, in pixels; ``light_xpos``, ``light_xdir``,
            ``light_ambient``, ``light_diffuse``, ``light_specular`` of L lights and, last, the one at the camera; and
            ``geom_alpha`` [n, G].
        """
        xpos, xmat = (self._read(name, env_ids) for name in ("xpos", "xmat"))
        xmat = xmat.view(*xpos.shape[:2], 3, 3)
        body_mat = xmat[:, self._body_of_geom]
        geom_pos = (body_mat @ self._geom_pos[:, :, None]).squeeze(-1) + xpos[:, self._body_of_geom]
        eye, view = self._camera(env_ids, shot)
        rgba = self._colors(env_ids)
        return {
            "geom_xpos": geom_pos,
            "geom_xmat": body_mat @ self._geom_mat,
            "geom_size": self._own("geom_size", env_ids),
            "geom_rgba": rgba,
            "geom_alpha": rgba[..., 3],
            "cam_xpos": eye[:, None],
            "cam_xmat": view[:, None],
            "cam_intrinsic": _lens(shot, env_ids).to(self._device)[:, None],
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
        if len(self._mat_rgba):
            is_bare = (rgba == torch.tensor(_UNPAINTED, device=self._device)).all(dim=-1) & (self._geom_matid >= 0)
            rgba = torch.where(is_bare[..., None], self._mat_rgba[self._geom_matid.clamp(min=0)], rgba)
        is_seen = torch.isin(self._own("geom_group", env_ids), torch.tensor(visible_groups(), device=self._device))
        rgba[..., 3] *= is_seen
        return rgba

    def _camera(self, env_ids: Tensor, shot: Shot) -> tuple[Tensor, Tensor]:
        """Return the camera's positions [n, 3] and rotations [n, 3, 3]."""
        poses = shot.poses[env_ids.to(shot.poses.device)].to(self._device, torch.float32)
        if shot.mount is not None:
            mounts = shot.mount.poses(self._backend)
            poses = mounts[env_ids.to(mounts.device)].to(self._device) @ poses
        return poses[:, :3, 3], poses[:, :3, :3]

    def _light(self, env_ids: Tensor, xpos: Tensor, xmat: Tensor, eye: Tensor, forward: Tensor) -> dict[str, Tensor]:
        com = self._read("subtree_com", env_ids) if self._lights.need_masses else xpos
        pos, direction = self._lights.place(
            self._look("light_pos", env_ids), self._look("light_dir", env_ids), xpos, xmat, com
        )
        colors = {
            f"light_{part}": torch.cat(
                (self._look(f"light_{part}", env_ids), self._look(f"headlight_{part}", env_ids)[:, None]), dim=1
            )
            for part in ("ambient", "diffuse", "specular")
        }
        return colors | {
            "light_xpos": torch.cat((pos, eye[:, None]), dim=1),
            "light_xdir": torch.cat((direction, forward[:, None]), dim=1),
        }


class _Lights:
    """Poses of lights that are fixed to bodies, follow them, or point at them."""

    def __init__(self, model: mujoco.MjModel, device: torch.device) -> None:
        mode = mujoco.mjtCamLight
        self._body = torch.from_numpy(model.light_bodyid).long().to(device)
        self._target = torch.from_numpy(model.light_targetbodyid).long().clamp(min=0).to(device)
        self._pos0, self._poscom0, self._dir0 = (
            torch.from_numpy(getattr(model, f"light_{name}")).float().to(device) for name in ("pos0", "poscom0", "dir0")
        )
        modes = torch.from_numpy(model.light_mode).to(device)
        self._tracks, self._tracks_com, self._aims, self._aims_com = (
            (modes == int(value))[:, None]
            for value in (
                mode.mjCAMLIGHT_TRACK,
                mode.mjCAMLIGHT_TRACKCOM,
                mode.mjCAMLIGHT_TARGETBODY,
                mode.mjCAMLIGHT_TARGETBODYCOM,
            )
        )
        self.need_masses = bool((self._tracks_com | self._aims_com).any())

    def place(self, pos: Tensor, direction: Tensor, xpos: Tensor, xmat: Tensor, com: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and directions in the world, [n, L, 3] each; as ``mj_camlight`` does.

        Args:
            pos, direction: values in the bodies' frames, [n, L, 3].
            xpos, xmat, com: bodies' [n, B, 3], [n, B, 3, 3], and the centres of their subtrees' mass [n, B, 3].
        """
        turn = xmat[:, self._body]
        at = (turn @ pos[..., None]).squeeze(-1) + xpos[:, self._body]
        to = (turn @ direction[..., None]).squeeze(-1)
        at = torch.where(self._tracks, xpos[:, self._body] + self._pos0, at)
        at = torch.where(self._tracks_com, com[:, self._body] + self._poscom0, at)
        to = torch.where(self._tracks | self._tracks_com, self._dir0, to)
        to = torch.where(self._aims, xpos[:, self._target] - at, to)
        to = torch.where(self._aims_com, com[:, self._target] - at, to)
        return at, torch.nn.functional.normalize(to, dim=-1)


def _lens(shot: Shot, env_ids: Tensor) -> Tensor:
    """Return MuJoCo's intrinsics [n, 4] for a sensor as large as the image: focal lengths, and where the axis is.

    MuJoCo measures the principal point from the image's middle, to the left and upwards.
    """
    width, height = shot.size
    fx, fy, cx, cy = shot.intrinsics[env_ids.to(shot.intrinsics.device)].float().unbind(1)
    return torch.stack((fx, fy, width / 2 - cx, height / 2 - cy), dim=1)
