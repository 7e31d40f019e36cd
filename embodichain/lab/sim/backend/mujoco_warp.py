"""Physics on a GPU: MuJoCo Warp (extra ``gpu``). Shapes: N environments, n in ``env_ids`` (None: all)."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp
from torch import Tensor
from typing_extensions import override

from embodichain.lab.sim.backend.base import SEEN_FIELDS, Backend, Columns, Index
from embodichain.lab.sim.math import matrix_from_quat
from embodichain.lab.sim.rows import ChosenRows
from embodichain.utils import ConfigError
from embodichain.utils.device import constant

# The whole integration state; qacc_warmstart is where the solver's next search starts.
_STATE = (
    *("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "qfrc_applied", "xfrc_applied"),
    *("eq_active", "mocap_pos", "mocap_quat", "time", "history", "plastic"),
)
_CHECKED = ("qpos", "qvel", "qacc_warmstart", "ctrl")
_LARGEST = mujoco.mjMAXVAL  # larger values are invalid
_PLACES = frozenset(
    {"xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com"}
)
"""Fields that follow from the positions by kinematics alone."""
_Overflow = mujoco_warp.OverflowType
_CONTACTS = _Overflow.BROADPHASE | _Overflow.NARROWPHASE | _Overflow.CCD
_OVERFLOWS = {"contacts": int(_CONTACTS), "constraints": int(_Overflow.NEFC | _Overflow.NJMAX_NNZ)}
_INEXACT = (_Overflow.CONTACT_MATCH, _Overflow.HFIELD, _Overflow.EPA_HORIZON)  # overflows of arrays of fixed size


class MujocoWarpBackend(Backend):
    """N simulations on one device; implements :class:`~embodichain.lab.sim.backend.base.Backend`.

    State and model fields are tensors that share the engine's memory. Nothing here waits for the device but
    :meth:`report`, :meth:`state_dict` and rendering. The engine's work is captured once for each kind of call, and
    then replayed as one graph: on a GPU a single launch, and on the processor forty times faster than call by call.

    The engine computes with float32. Its results are the same again on the processor; on a GPU the order of sums, and
    with it the last bits, may differ from run to run.
    """

    is_asynchronous = True

    def __init__(
        self,
        model: mujoco.MjModel,
        visual_model: mujoco.MjModel,
        num_envs: int,
        device: torch.device,
        capacity: "Capacity | None" = None,
    ) -> None:
        """Start with every environment in the model's keyframe 0; a ``capacity`` of None is measured."""
        super().__init__(model, visual_model, num_envs, device)
        self.capacity = probe(model) if capacity is None else capacity
        self._computed = {"places": -1, "all": -1}  # the version they were computed for
        self._mask: Tensor | None = None
        self._all_env_ids = ChosenRows.of_all(num_envs, device)
        self._graphs = Graphs(device)
        self._graphs_version = 0
        self._stale_fields: list[str] = []
        self._has_stale_constants = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._statics_are_stale = False
        self._diverged = torch.zeros(num_envs, dtype=torch.bool, device=device)
        with warp.ScopedDevice(str(device)):
            try:
                self._fields = WarpModel(model, num_envs, device)
            except (NotImplementedError, ValueError) as error:
                raise ConfigError(f"sim_device '{device}': MuJoCo Warp cannot simulate this scene: {error}") from error
        self._allocate()
        data = mujoco.MjData(model)  # the state of one environment after a reset
        mujoco.mj_resetDataKeyframe(model, data, 0)
        self._initial: dict[str, Tensor] = {}
        for name, view in self._views.items():
            values = torch.from_numpy(np.array(getattr(data, name)))
            self._initial[name] = values.to(device, view.dtype).reshape(view.shape[1:])
            view.copy_(self._initial[name].expand_as(view))
        self._fixed_geoms = FixedGeoms(model, device)

    @override
    def _cast(self, name: str) -> Tensor:
        view = self._views.get(name)
        if view is None:
            self._compute("places" if name in _PLACES else "all")
            return self.read_last(name)
        # A copy, since the engine writes into the same memory at the next step.
        return view.to(torch.float32, copy=True)

    @override
    def read_last(self, name: str) -> Tensor:
        view = self._derived.get(name)
        if view is None:
            view = warp.to_torch(getattr(self._data, name))
            self._derived[name] = view = view.flatten(2) if view.dim() == 4 else view  # MuJoCo's shape
        return view.to(torch.float32, copy=True)

    @override
    def write(self, name: str, columns: Columns, values: Tensor, env_ids: Tensor | None = None) -> None:
        self._put(self._views[name], (columns,), values, env_ids)
        self.version += 1

    @override
    def write_initial(self, name: str, columns: Columns, values: Tensor) -> None:
        self._initial[name][columns] = values

    @override
    def read_model(self, name: str) -> Tensor:
        return self._fields.read(name)

    @override
    def write_model(
        self, name: str, index: Index, values: Tensor, env_ids: Tensor | None = None, derive: bool = True
    ) -> None:
        at = index if isinstance(index, tuple) else (index,)
        self._put(self._fields.open(name), at, values, env_ids)
        self._fields.close(name, at)
        if derive and name in CONSTANTS:
            if name not in self._stale_fields:
                self._stale_fields.append(name)
            yes = torch.ones((), dtype=torch.bool, device=self.device)
            self._put(self._has_stale_constants, (), yes, env_ids)
        if name in ("body_pos", "body_quat"):
            self._statics_are_stale = True
        if name in SEEN_FIELDS:
            self.looks += 1  # of all, since the host would wait to know the rows
        self.version += 1

    @override
    def step(self, substeps: int, env_ids: Tensor | None = None) -> None:
        self._follow()
        others: Tensor | None = None
        if env_ids is not None:
            others = torch.ones_like(self._diverged).index_fill(0, env_ids, False)
        if self._mask is not None:
            others = ~self._mask if others is None else others | ~self._mask
        saved = {} if others is None else {name: view.clone() for name, view in self._views.items()}

        def work() -> None:
            for _ in range(substeps):
                mujoco_warp.step(self._fields.device_model, self._data)

        self._run(f"step {substeps}", work)
        if others is not None:
            self._choose(others, saved)
        checked = torch.cat([self._views[name] for name in _CHECKED], dim=1)
        bad = ~(checked.abs() <= _LARGEST).all(dim=1)  # NaN fails every comparison
        self._diverged |= bad
        self._choose(bad, self._initial)
        self.version += 1

    @override
    def reset(self, env_ids: Tensor) -> None:
        for name in self._filled:
            self._put(self._views[name], (), self._initial[name], env_ids)
        self._put(self._diverged, (), torch.zeros_like(self._diverged[0]), env_ids)
        self.version += 1

    @override
    def copy_rows(self, env_ids: Tensor) -> dict[str, Tensor]:
        return {name: view[env_ids] for name, view in self._views.items()}

    @override
    def put_rows(self, env_ids: Tensor, rows: dict[str, Tensor]) -> None:
        for name in self._filled:
            self._put(self._views[name], (), rows[name], env_ids)
        self.version += 1

    @override
    @contextmanager
    def choose(self, mask: Tensor) -> Iterator[Tensor]:
        assert self._mask is None, "environments are chosen already"
        self._mask = self._all_env_ids.mask = mask
        try:
            yield self._all_env_ids
        finally:
            self._mask = None
            self.version += 1  # values computed inside the block may be of environments that did not change

    @override
    def diverged(self) -> Tensor | None:
        return self._diverged.clone()

    @override
    def report(self) -> list[str]:
        flags = warp.to_torch(self._data.overflow)
        overflow = flags.clone().cpu()
        flags.zero_()
        inexact = {flag.name: int((overflow & int(flag) != 0).sum()) for flag in _INEXACT}
        problems = [
            f"physics is inexact in {count} of {self.num_envs} environments: MuJoCo Warp's {name} overflowed"
            for name, count in inexact.items()
            if count
        ]
        lost = {kind: int((overflow & bits != 0).sum()) for kind, bits in _OVERFLOWS.items()}
        if any(lost.values()):
            before, self.capacity = self.capacity, self.capacity.grown(*(count > 0 for count in lost.values()))
            self._move()
            found = " and ".join(f"{kind} in {count}" for kind, count in lost.items() if count)
            problems.append(
                f"physics left out {found} of {self.num_envs} environments, for want of room: there was room for "
                f"{before.contacts} contacts (on average) and {before.constraints} constraints in each, now there is "
                f"for {self.capacity.contacts} and {self.capacity.constraints}"
            )
        return problems

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "engine": "mujoco_warp",
            "state": dict(self._views),
            "initial": dict(self._initial),
            "model": dict(self._fields.own),
            "diverged": self._diverged,
            "stale": {"fields": list(self._stale_fields), "rows": self._has_stale_constants},
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("engine") != "mujoco_warp":
            raise ConfigError("the checkpoint's physics ran on threads: resume it with the same sim_device, cpu")
        for name, values in state["model"].items():
            self._fields.open(name).copy_(values)
        for name, values in state["state"].items():
            self._views[name].copy_(values)
            self._initial[name].copy_(state["initial"][name])
        self._diverged.copy_(state["diverged"])
        self._stale_fields = list(state["stale"]["fields"])
        self._has_stale_constants.copy_(state["stale"]["rows"])
        self._statics_are_stale = bool(self._fields.own)
        self.version += 1

    @override
    def _own_field(self, env_id: int, name: str) -> np.ndarray | None:
        own = self._fields.own.get(name)
        return None if own is None else own[env_id].cpu().numpy()

    def _allocate(self) -> None:
        self._graphs.clear()
        room = self.capacity
        with warp.ScopedDevice(str(self.device)):
            self._data = mujoco_warp.make_data(
                self.model, nworld=self.num_envs, nconmax=room.contacts, njmax=room.constraints
            )
        self._graphs.wait()
        self._views = {name: warp.to_torch(getattr(self._data, name)) for name in _STATE}
        self._filled = [name for name, view in self._views.items() if view.numel()]
        self._derived: dict[str, Tensor] = {}  # views of the fields that were read
        self._casts.clear()
        self._computed = dict.fromkeys(self._computed, -1)

    def _move(self) -> None:
        """Reallocate with the present capacity and keep the state."""
        state = {name: view.clone() for name, view in self._views.items()}
        self._allocate()
        for name, view in self._views.items():
            view.copy_(state[name])
        self._statics_are_stale = bool(self._fields.own)
        self.version += 1

    def _put(self, field: Tensor, at: tuple[Any, ...], values: Tensor, env_ids: Tensor | None) -> None:
        """Write a part of a field [N, ...] in environments [n], of these only the chosen ones."""
        values = values.to(field.dtype)
        is_table = any(not isinstance(part, int | slice) for part in at)
        if env_ids is self._all_env_ids:
            env_ids = None  # in this order
        rows: Any = slice(None)
        if env_ids is not None:
            rows = env_ids[:, None] if is_table else env_ids
        # A list would be sent to the device at each use.
        where = (rows, *(constant(tuple(part), self.device) if isinstance(part, list) else part for part in at))
        if self._mask is None:
            field[where] = values
            return
        present = field[where]
        chosen = self._mask if env_ids is None else self._mask[env_ids]
        chosen = chosen.reshape(-1, *[1] * (present.dim() - 1))
        if env_ids is None and not is_table:
            torch.where(chosen, values, present, out=present)  # a view, so that is all
        else:
            field[where] = torch.where(chosen, values, present)

    def _choose(self, rows: Tensor, values: dict[str, Tensor]) -> None:
        """Write values of the whole state, [N, ...] or of one environment, into the rows of a mask [N]."""
        for name in self._filled:
            view = self._views[name]
            torch.where(rows.reshape(-1, *[1] * (view.dim() - 1)), values[name], view, out=view)

    def _compute(self, what: str) -> None:
        """Compute the fields derived from the present state, unless they are current."""
        if self.version in (self._computed[what], self._computed["all"]):
            return
        self._follow()
        model, data = self._fields.device_model, self._data
        work = mujoco_warp.fwd_kinematics if what == "places" else mujoco_warp.forward
        self._run(what, lambda: work(model, data))
        self._computed[what] = self.version

    def _follow(self) -> None:
        """Update the constants derived from the model's fields."""
        if self._stale_fields:
            self._update_constants()
        if self._statics_are_stale:
            self._statics_are_stale = False
            model, data = self._fields.device_model, self._data
            self._run("places", lambda: mujoco_warp.fwd_kinematics(model, data))
            self._fixed_geoms.place(data)

    def _update_constants(self) -> None:
        """Derive the constants again where the fields behind them were written; once, however many were."""
        names = {constant for field in self._stale_fields for constant in CONSTANTS[field]}
        model, data = self._fields.device_model, self._data
        fields = {name: self._fields.open(name) for name in sorted(names) if getattr(model, name).size}
        before = {name: field.clone() for name, field in fields.items()}
        # The inertias of all bodies take a hundred launches; a geom's bounds take one.
        what = "FIXED" if self._stale_fields == ["geom_size"] else "ALL"
        groups = mujoco_warp.SetConstGroup[what]
        self._run(f"constants {what}", lambda: mujoco_warp.set_const(model, data, groups))
        for name, field in fields.items():
            stale = self._has_stale_constants.reshape(-1, *[1] * (field.dim() - 1))
            torch.where(stale, field, before[name], out=field)
        self._has_stale_constants.fill_(False)
        self._stale_fields.clear()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Run work of the engine as a graph."""
        if self._graphs_version != self._fields.version:
            self._graphs.clear()
            self._graphs_version = self._fields.version
        self._graphs.run(name, work, self._views.values())


# Fields that MuJoCo Warp does not have or ignores: stored here for each environment, to be read.
_KEPT = frozenset({"geom_contype", "geom_conaffinity", "geom_group", "body_sameframe", "dof_M0"})
_BITS = ("geom_contype", "geom_conaffinity")
_LEAST_FRICTION = mujoco.mjMINMU  # of less, MuJoCo Warp warns
_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
_INERTIA = ("body_subtreemass", "dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")
_LENGTHS = ("tendon_length0", "eq_data")
CONSTANTS = {
    **dict.fromkeys(("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_armature"), _INERTIA),
    **dict.fromkeys(("body_pos", "body_quat", "qpos0"), (*_INERTIA, *_LENGTHS)),
    "geom_size": ("geom_aabb", "geom_rbound"),
}
"""Constants that MuJoCo derives from a field, by field."""


class WarpModel:
    """The model's fields as tensors.

    A field that is never written is one row for all environments; the first write gives each a row of its own, and
    increases ``version``: captured graphs are invalid then.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int, device: torch.device) -> None:
        """Load the model to Warp's current device."""
        self._model = model
        self._num_envs = num_envs
        self._device = device
        self.device_model = mujoco_warp.put_model(_for_warp(model))
        self.device_model.opt.warn_overflow = 0  # overflows are read once an iteration, and reported
        self.version = 0
        self.own: dict[str, Tensor] = {}
        """The fields that differ between environments, [N, ...] by name."""

    def read(self, name: str) -> Tensor:
        """Return a field of every environment, [N, ...]; do not write into it."""
        if name in self.own:
            return self.own[name].clone()
        array = torch.from_numpy(np.array(getattr(self._model, name)))
        return array.to(self._device).expand(self._num_envs, *array.shape)

    def open(self, name: str) -> Tensor:
        """Return a field to write into, [N, ...], before :meth:`close`; ValueError where all environments share it."""
        if name not in self.own:
            self.own[name] = self.read(name).clone() if name in _KEPT else self._expand(name)
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
    """Places the F geoms of bodies that are fixed to the world, which MuJoCo Warp does only once."""

    def __init__(self, model: mujoco.MjModel, device: torch.device) -> None:
        body = model.geom_bodyid
        fixed = (body > 0) & (model.body_weldid[body] == 0) & (model.body_mocapid[model.body_rootid[body]] < 0)
        geoms = np.flatnonzero(fixed)
        self._geoms, self._bodies = (torch.from_numpy(ids).long().to(device) for ids in (geoms, body[geoms]))
        self._pos = torch.from_numpy(model.geom_pos[geoms]).float().to(device)  # [F, 3] in the bodies' frames
        self._mat = matrix_from_quat(torch.from_numpy(model.geom_quat[geoms])).float().to(device)

    def place(self, data: mujoco_warp.Data) -> None:
        """Write the geoms' world poses, which follow from the bodies'."""
        if not len(self._geoms):
            return
        xpos, xmat, geom_xpos, geom_xmat = map(warp.to_torch, (data.xpos, data.xmat, data.geom_xpos, data.geom_xmat))
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
        """Run work that calls the engine and changes ``state``; the first call of a name captures it."""
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


_ROLLOUTS, _STEPS, _HOLD = 8, 100, 25
_MARGIN = 2.0
_CONTACT_STEP, _CONSTRAINT_STEP = 32, 64  # in steps of these, since kernels are compiled for the number of constraints
_UNLIMITED = 0.5  # how far from the initial position a joint without limits is sent, rad or m


@dataclass(frozen=True)
class Capacity:
    """The largest numbers of contacts, and of rows of constraints, of an environment.

    The contacts are an average over all environments, which share one pool; pairs of near geoms count, too.
    """

    contacts: int
    constraints: int

    def grown(self, contacts: bool, constraints: bool) -> "Capacity":
        """Return it with twice the contacts, twice the constraints, or both."""
        return Capacity(self.contacts * (1 + contacts), self.constraints * (1 + constraints))


def probe(model: mujoco.MjModel) -> Capacity:
    """Return twice the largest numbers found while drives follow random targets from keyframe 0 on, rounded up."""
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
    return Capacity(_rounded(contacts, _CONTACT_STEP), _rounded(constraints, _CONSTRAINT_STEP))


def _rounded(most: int, step: int) -> int:
    return step * max(1, int(np.ceil(_MARGIN * most / step)))


def _targets(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest targets of drives, and controls of other actuators, [nu] each."""
    is_drive = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    joint = np.where(is_drive, model.actuator_trnid[:, 0], 0)
    limited = np.where(is_drive, model.jnt_limited[joint], model.actuator_ctrllimited).astype(bool)[:, None]
    ranges = np.where(is_drive[:, None], model.jnt_range[joint], model.actuator_ctrlrange)
    low, high = np.where(limited, ranges, model.key_ctrl[0][:, None] + [-_UNLIMITED, _UNLIMITED]).T
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
