"""The renderers' input and protocol. Shapes: N environments, H height, W width of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.math import pose_from_pos_matrix
from embodichain.utils.errors import UnavailableError


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
