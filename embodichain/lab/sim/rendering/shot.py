"""The renderers' protocol and input: shots, and the appearance of each environment.

Shapes: N environments, n in ``env_ids`` (None: all), H height, W width of an image.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.math import pose_from_pos_matrix
from embodichain.utils import ConfigError, UnavailableError, unknown_name


class RenderingUnavailableError(UnavailableError):
    """Nothing can be rendered here; the message names the package."""


@dataclass(frozen=True)
class Mount:
    """The body or site that carries a camera.

    Attributes:
        kind: ``site`` or ``body``.
        index: mount's id in the model, the same in the model for physics and in that for rendering.
    """

    kind: str
    index: int

    def pose(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Return its world position [3] and rotation [3, 3]."""
        if self.kind == "site":
            return data.site_xpos[self.index], data.site_xmat[self.index].reshape(3, 3)
        return data.xpos[self.index], data.xmat[self.index].reshape(3, 3)

    def poses(self, backend: Backend) -> Tensor:
        """Return its world pose in every environment, [N, 4, 4]."""
        fields = ("site_xpos", "site_xmat") if self.kind == "site" else ("xpos", "xmat")
        pos, rotation = (backend.read(name)[:, self.index] for name in fields)
        return pose_from_pos_matrix(pos, rotation.reshape(-1, 3, 3))


@dataclass
class Shot:
    """One camera's view of environments, and the images to render it into.

    Attributes:
        size: width and height.
        near, far: the range that is seen, m.
        poses: [N, 4, 4] of the camera in its mount's frame; it looks along -z, +y is up.
        intrinsics: [N, 4] fx, fy, cx, cy, pixels.
        mount: camera's mount; None: the world.
        geom_ids: [number of geoms + 1] int32, the mask's number of each geom, and last of the sky.
        images: tensors on the drawer's device: ``color`` [N, H, W, 3] uint8, ``depth`` [N, H, W] float32 m,
            ``mask`` [N, H, W] int32.
    """

    size: tuple[int, int]
    near: float
    far: float
    poses: Tensor
    intrinsics: Tensor
    mount: Mount | None
    geom_ids: Tensor
    images: dict[str, Tensor] = field(default_factory=dict)


class Drawer(Protocol):
    """Renders environments off screen."""

    device: torch.device
    """Device of the images."""

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Render a shot of some environments into its images.

        Raises:
            RenderingUnavailableError: no renderer is installed; the message names the package.
        """
        ...

    def close(self) -> None:
        """Free contexts and threads."""
        ...


class Appearance:
    """Fields of the model for rendering that differ between environments: colours, materials, lights.

    The physics model does not have them, so they cost no step time.

    Attributes:
        version: [N] int64, increases with each change of an environment's appearance.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int) -> None:
        """Start with the appearance of ``model``, the one for rendering, in every environment."""
        self._model = model
        self._fields: dict[str, np.ndarray] = {}
        self._geoms_of: dict[tuple[str, tuple[str, ...] | None], list[int]] = {}
        self.version = np.zeros(num_envs, dtype=np.int64)

    def read(self, name: str) -> np.ndarray:
        """Return a field in every environment, [N, ...]; not to be written into.

        Args:
            name: name of the model's array (``geom_rgba``, ``light_pos``, ...), or ``headlight_ambient`` and the like.
        """
        if name in self._fields:
            return self._fields[name]
        shared = _array(self._model, name)
        return np.broadcast_to(shared, (len(self.version), *shared.shape))

    def write(self, name: str, rows: int | list[int] | None, values: Tensor, env_ids: Tensor | None = None) -> None:
        """Write entries of a field.

        Args:
            name: name as in :meth:`read`.
            rows: entries, or None for the whole field.
            values: values broadcastable to [n, ...] for one entry, and to [n, rows, ...] for several.
        """
        if name not in self._fields:
            self._fields[name] = np.array(self.read(name))
        which = np.arange(len(self.version)) if env_ids is None else env_ids.cpu().numpy()
        array = values.cpu().numpy()
        if rows is None:
            self._fields[name][which] = array
        elif isinstance(rows, int):
            self._fields[name][which, rows] = array
        else:
            self._fields[name][which[:, None], rows] = array
        self.version[which] += 1

    def set_color(
        self, uid: str, rgba: Tensor, env_ids: Tensor | None = None, links: Sequence[str] | None = None
    ) -> None:
        """Set the colour of an entity.

        Args:
            uid: entity's uid, or ``ground``.
            rgba: colour broadcastable to [n, 4], 0 to 1.
            links: names or regular expressions of its links; None: all.
        """
        self.write("geom_rgba", self._geoms(uid, links), rgba[:, None], env_ids)

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
            for pattern in links or []:
                if not any(re.fullmatch(pattern, link) for link in own.values()):
                    raise ConfigError(f"'{uid}': link_names: {unknown_name('link', pattern, set(own.values()))}")
            self._geoms_of[key] = [
                geom
                for geom, link in own.items()
                if links is None or any(re.fullmatch(pattern, link) for pattern in links)
            ]
        return self._geoms_of[key]


def _array(model: mujoco.MjModel, name: str) -> np.ndarray:
    part, _, field = name.partition("_")
    array: np.ndarray = getattr(model.vis.headlight, field) if part == "headlight" else getattr(model, name)
    return array
