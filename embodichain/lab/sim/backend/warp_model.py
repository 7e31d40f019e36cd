"""Parts of MuJoCo Warp's backend: the model, whose fields may differ between environments; graphs; room for contacts.

Shapes: N environments, n in ``env_ids`` (None: all), G geoms, F geoms of bodies fixed to the world.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp
from torch import Tensor

# Fields that MuJoCo Warp does not have or ignores: stored here for each environment, to be read.
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
"""Constants that MuJoCo derives from a field, by field."""


_ROLLOUTS, _STEPS, _HOLD = 8, 100, 25
_MARGIN = 2.0
_CONTACTS, _CONSTRAINTS = 32, 64  # in steps of these, since kernels are compiled for the number of constraints
_UNLIMITED = 0.5  # how far from the initial position a joint without limits is sent, rad or m


class WarpModel:
    """The model's fields as tensors.

    A field that is never written is one row for all environments; the first write gives each a row of its own.

    Attributes:
        device_model: model of MuJoCo Warp.
        version: counter of fields with rows of their own; a change invalidates captured graphs.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int, device: torch.device) -> None:
        """Load the model to Warp's current device."""
        self._model = model
        self._num_envs = num_envs
        self._device = device
        self.device_model = mujoco_warp.put_model(_for_warp(model))
        # They are read once an iteration, and reported.
        self.device_model.opt.warn_overflow = 0
        self.version = 0
        self.own: dict[str, Tensor] = {}
        """The fields that differ between environments, [N, ...] by name."""

    def has(self, name: str) -> bool:
        """Return whether a field has entries in this model."""
        return bool(getattr(self.device_model, name).size)

    def read(self, name: str) -> Tensor:
        """Return a field of every environment, [N, ...]; do not write into it."""
        if name in self.own:
            return self.own[name].clone()
        array = torch.from_numpy(np.array(getattr(self._model, name)))
        return array.to(self._device).expand(self._num_envs, *array.shape)

    def open(self, name: str) -> Tensor:
        """Return a field to write into, [N, ...], before :meth:`close`; ValueError where all environments share it."""
        if name not in self.own:
            self.own[name] = self._kept(name) if name in _KEPT else self._expand(name)
        return self.own[name]

    def close(self, name: str, index: Any) -> None:
        """Update the constants derived from a part of a field, after writing."""
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
            torch.cuda.synchronize(self._device)  # running kernels may still read the old rows
        setattr(self.device_model, name, replacement)
        self.version += 1
        return own


class FixedGeoms:
    """Places the geoms of bodies that are fixed to the world, which MuJoCo Warp does only once."""

    def __init__(self, model: mujoco.MjModel, device: torch.device) -> None:
        body = model.geom_bodyid
        fixed = (body > 0) & (model.body_weldid[body] == 0) & (model.body_mocapid[model.body_rootid[body]] < 0)
        geoms = np.flatnonzero(fixed)
        matrix = np.zeros((len(geoms), 9))
        for row, geom in zip(matrix, geoms, strict=True):
            mujoco.mju_quat2Mat(row, model.geom_quat[geom])
        self._geoms, self._bodies = (torch.from_numpy(ids).long().to(device) for ids in (geoms, body[geoms]))
        # [F, 3] and [F, 3, 3] in the bodies' frames
        self._pos, mat = (torch.from_numpy(part).float().to(device) for part in (model.geom_pos[geoms], matrix))
        self._mat = mat.view(-1, 3, 3)

    def place(self, data: mujoco_warp.Data) -> None:
        """Write the geoms' world poses, which follow from the bodies'."""
        if not len(self._geoms):
            return
        xpos, xmat, geom_xpos, geom_xmat = (
            warp.to_torch(getattr(data, name)) for name in ("xpos", "xmat", "geom_xpos", "geom_xmat")
        )
        turn = xmat[:, self._bodies]
        geom_xpos[:, self._geoms] = xpos[:, self._bodies] + (turn @ self._pos[:, :, None]).squeeze(-1)
        geom_xmat[:, self._geoms] = turn @ self._mat


def _for_warp(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy of the model that MuJoCo Warp simulates as MuJoCo does the original."""
    changed = copy.copy(model)
    # The least that both engines compute with anyway.
    changed.geom_friction[:] = np.maximum(model.geom_friction, _LEAST_FRICTION)
    # Two boxes collide by a function of their own then, as in MuJoCo. The general one finds fewer points of contact.
    changed.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    return changed


class Graphs:
    """Replays work as graphs, on torch's present stream: on a GPU each is a single launch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[str, Any] = {}
        self._stream: Any = None

    def clear(self) -> None:
        """Delete all graphs, before the memory that they work on is replaced."""
        self.wait()  # for a graph that is still running
        self._graphs.clear()

    def run(self, name: str, work: Callable[[], None], state: Iterable[Tensor]) -> None:
        """Run work that calls the engine; the first call of a name captures it.

        Args:
            state: tensors that the work reads and changes.
        """
        graph = self._graphs.get(name)
        if graph is None:
            graph = self._graphs[name] = self._capture(work, list(state))
        if self._device.type == "cuda":
            warp.capture_launch(graph, stream=self._present_stream())
        else:
            warp.capture_launch(graph)

    def wait(self) -> None:
        """Wait for the device: torch and Warp allocate and free memory on different streams."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _capture(self, work: Callable[[], None], state: list[Tensor]) -> Any:
        """Return the graph of some work, and restore the state."""
        saved = [values.clone() for values in state]
        with warp.ScopedDevice(str(self._device)):
            self.wait()
            # A first call compiles and loads the kernels, which must not be captured.
            work()
            self.wait()
            for values, copy in zip(state, saved, strict=True):
                values.copy_(copy)
            self.wait()
            with warp.ScopedCapture() as capture:
                work()
        return capture.graph

    def _present_stream(self) -> Any:
        stream = torch.cuda.current_stream(self._device)
        if self._stream is None or self._stream.cuda_stream != stream.cuda_stream:
            self._stream = warp.stream_from_torch(stream)
        return self._stream


@dataclass(frozen=True)
class Capacity:
    """The largest numbers of contacts and constraints of an environment.

    Attributes:
        contacts: average over all environments, which share one pool; pairs of near geoms count, too.
        constraints: rows of any one environment.
    """

    contacts: int
    constraints: int

    def grown(self, contacts: bool, constraints: bool) -> Capacity:
        """Return it with twice the contacts, twice the constraints, or both."""
        return Capacity(self.contacts * (1 + contacts), self.constraints * (1 + constraints))


def probe(model: mujoco.MjModel) -> Capacity:
    """Return twice the largest numbers found under random drive targets, rounded up.

    It starts at keyframe 0, and sends every drive to targets within its joint's limits for 25 substeps each.
    """
    random = np.random.default_rng(0)
    data = mujoco.MjData(model)
    contacts = constraints = 0
    low, high = _targets(model)
    for _ in range(_ROLLOUTS):
        mujoco.mj_resetDataKeyframe(model, data, 0)
        for step in range(_STEPS):
            if step % _HOLD == 0:
                data.ctrl[:] = random.uniform(low, high)
            mujoco.mj_step(model, data)
            contacts = max(contacts, data.ncon, _near_pairs(model, data) if step % _HOLD == 0 else 0)
            constraints = max(constraints, data.nefc)
    return Capacity(_rounded(contacts, _CONTACTS), _rounded(constraints, _CONSTRAINTS))


def _rounded(most: int, step: int) -> int:
    return step * max(1, int(np.ceil(_MARGIN * most / step)))


def _targets(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the drives' lowest and highest targets, [nu] each."""
    joint = model.actuator_trnid[:, 0]
    home = model.key_ctrl[0]
    is_limited = model.jnt_limited[joint].astype(bool)
    low = np.where(is_limited, model.jnt_range[joint, 0], home - _UNLIMITED)
    high = np.where(is_limited, model.jnt_range[joint, 1], home + _UNLIMITED)
    return low, high


def _near_pairs(model: mujoco.MjModel, data: mujoco.MjData) -> int:
    """Return the number of pairs of geoms that may collide and have overlapping bounding spheres."""
    body = model.geom_bodyid
    one, two = np.triu_indices(model.ngeom, k=1)
    bits = model.geom_contype[one] & model.geom_conaffinity[two] | model.geom_contype[two] & model.geom_conaffinity[one]
    may_touch = (bits != 0) & (model.body_weldid[body[one]] != model.body_weldid[body[two]])
    one, two = one[may_touch], two[may_touch]
    radius = np.where(model.geom_rbound > 0.0, model.geom_rbound, np.inf)  # planes have none
    distance = np.linalg.norm(data.geom_xpos[one] - data.geom_xpos[two], axis=1)
    return int((distance <= radius[one] + radius[two]).sum())
