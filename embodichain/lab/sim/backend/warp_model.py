"""A model on Warp's device, whose fields may differ between environments.

Shapes: N environments, n in ``env_ids`` (None: all), G geoms.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp
from torch import Tensor

__all__ = ["CONSTANTS", "WarpModel"]

# What MuJoCo Warp does not have, or does not look at: stored here for each environment, to be read.
_KEPT = frozenset({"geom_contype", "geom_conaffinity", "geom_group", "body_sameframe", "dof_M0"})
_BITS = ("geom_contype", "geom_conaffinity")
_LEAST_FRICTION = 1e-5  # mjMINMU; of less, MuJoCo Warp warns
_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
_INERTIA = ("body_subtreemass", "dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")
_PLACES = ("tendon_length0", "eq_data")
_BOUNDS = ("geom_aabb", "geom_rbound")
CONSTANTS = {
    "body_mass": _INERTIA,
    "body_inertia": _INERTIA,
    "body_ipos": _INERTIA,
    "body_iquat": _INERTIA,
    "body_pos": (*_INERTIA, *_PLACES),
    "body_quat": (*_INERTIA, *_PLACES),
    "dof_armature": _INERTIA,
    "geom_size": _BOUNDS,
    "qpos0": (*_INERTIA, *_PLACES),
}
"""By field, the constants that MuJoCo derives from it."""


class WarpModel:
    """The model's fields as tensors.

    A field that is never written is one row for all environments; the first write gives each a row of its own.

    Attributes:
        device_model: what MuJoCo Warp computes with.
        version: changes when a field gets rows of its own, since what was captured before knows the old one.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int, device: torch.device) -> None:
        """Load the model to Warp's current device.

        Raises:
            NotImplementedError, ValueError: MuJoCo Warp does not know something in it.
        """
        self._model = model
        self._num_envs = num_envs
        self._device = device
        self.device_model = mujoco_warp.put_model(_for_warp(model))
        # They are read once an iteration, and reported.
        self.device_model.opt.warn_overflow = 0
        self.version = 0
        self._own: dict[str, Tensor] = {}

    @property
    def own(self) -> dict[str, Tensor]:
        """The fields that differ between environments, [N, ...] by name; to be written into by :meth:`write` alone."""
        return self._own

    def has(self, name: str) -> bool:
        """Return whether the model has any of what a field is about."""
        return bool(getattr(self.device_model, name).size)

    def read(self, name: str) -> Tensor:
        """Return a field of every environment, [N, ...]; not to be written into."""
        if name in self._own:
            return self._own[name].clone()
        array = torch.from_numpy(np.array(getattr(self._model, name)))
        return array.to(self._device).expand(self._num_envs, *array.shape)

    def open(self, name: str) -> Tensor:
        """Return a field to write into, [N, ...]; :meth:`close` then says that it is done.

        Raises:
            ValueError: MuJoCo Warp has one value of it for all environments.
        """
        if name not in self._own:
            self._own[name] = self._kept(name) if name in _KEPT else self._expand(name)
        return self._own[name]

    def close(self, name: str, index: Any) -> None:
        """Bring what follows from a part of a field in line with it."""
        if name not in _BITS:
            return
        geoms = np.arange(self._model.ngeom)[index[0]]
        if (self._model.geom_type[geoms] != _MESH).any():
            raise ValueError(f"{name}: MuJoCo Warp can switch only meshes on and off in single environments")
        touches = (self.read("geom_contype") != 0) | (self.read("geom_conaffinity") != 0)
        data = torch.from_numpy(self._model.geom_dataid).to(self._device)
        is_mesh = torch.from_numpy(self._model.geom_type == _MESH).to(self._device)
        # A mesh without data is not there.
        self.open("geom_dataid").copy_(torch.where(touches | ~is_mesh, data, -1))

    def _kept(self, name: str) -> Tensor:
        array = torch.from_numpy(np.array(getattr(self._model, name)))
        if array.dtype == torch.float64:
            array = array.float()
        return array.to(self._device).repeat(self._num_envs, *[1] * array.dim())

    def _expand(self, name: str) -> Tensor:
        array = getattr(self.device_model, name, None)
        if not isinstance(array, warp.array) or not getattr(array, "_is_batched", False):
            raise ValueError(f"{name}: MuJoCo Warp has one value of it for all environments")
        shared = warp.to_torch(array)
        own = shared[:1].repeat(self._num_envs, *[1] * (shared.dim() - 1))
        replacement: Any = warp.from_torch(own, dtype=array.dtype)
        replacement._is_batched = True
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # what is running may still read the rows that are given up
        setattr(self.device_model, name, replacement)
        self.version += 1
        return own


def _for_warp(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy of the model that MuJoCo Warp simulates as MuJoCo does the original."""
    changed = copy.copy(model)
    # The least that both engines compute with anyway.
    changed.geom_friction[:] = np.maximum(model.geom_friction, _LEAST_FRICTION)
    # Two boxes collide by a function of their own then, as in MuJoCo. The general one finds fewer points of contact.
    changed.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    return changed
