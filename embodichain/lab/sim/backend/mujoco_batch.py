"""Physics on CPU threads: ``mujoco.batch.Batch``."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.sim.backend.base import SEEN_FIELDS, Backend, Columns, Index, ModelPart
from embodichain.lab.sim.servos import Servos, has_servos
from embodichain.utils import ConfigError
from embodichain.utils.device import check_memory
from embodichain.utils.state import declared_state, load_attributes
from embodichain.utils.system import count_processors

_FIRST_DIVERGENCE = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_DIVERGENCE = int(mujoco.mjtWarning.mjWARN_BADCTRL)
_CONSTANTS_FOLLOW = frozenset(mujoco.MjModel._setconst_inputs)
# Fields that follow from positions and velocities without forces, the dearest part of a forward pass.
_KINEMATIC = frozenset(
    ("xpos", "xquat", "xmat", "cvel", "subtree_com", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "cam_xpos")
)
# Attributes in a checkpoint: neither views of the engine's memory nor computed from the state.
_SAVED = ("_initial_state", "_has_stale_constants", "_constants_are_stale")


# Neither prints nor a MUJOCO_LOG.TXT: the environment reports divergences.
_LOG = mujoco.MjLogConfig.get()
_LOG.logto_file = _LOG.logto_console = False
mujoco.MjLogConfig.set(_LOG)


class MujocoBatchBackend(Backend):
    """N simulations on threads; implements :class:`~embodichain.lab.sim.backend.base.Backend`.

    The engine's state is float64 and lives in one row for each environment; reads cast it, once after each change.
    Positions and velocities are always current. Fields derived from them are one substep old after a step (the engine
    integrates last), so they are recomputed when, and only when, one is read.
    """

    is_asynchronous = False

    def __init__(
        self, model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, num_threads: int = 0
    ) -> None:
        """Start with every environment in the model's keyframe 0; 0 threads: one for each CPU of the process."""
        super().__init__(model, visual_model, num_envs, torch.device("cpu"))
        threads = num_threads or count_processors()
        # An environment takes, as measured, twice its state and 1 kB: CartPole 1.9 kB, PushCube 3.4 kB.
        size = 1000 + 2 * 8 * mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION.value)
        check_memory("num_envs", f"{num_envs:,} environments", num_envs * size)
        self._batch = Batch(model, num_envs, nthread=min(threads, num_envs))
        self._fields: dict[str, np.ndarray] = {}  # the engine's; fields derived from the state are read-only
        self._is_stale = np.ones(num_envs, dtype=bool)  # derived fields older than the state
        self._stage = mujoco.mjtStage.mjSTAGE_VEL  # of the forward pass that derived fields in use need
        self._has_stale_constants = np.zeros(num_envs, dtype=bool)
        self._constants_are_stale = False
        self._warnings = self._batch.warning[:, _FIRST_DIVERGENCE : _LAST_DIVERGENCE + 1, 1]
        # The whole state of one environment right after a reset: writing the row again costs less than the call.
        self._batch.reset(keyframe=0, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._initial_state = self._batch.state[0].copy()
        if has_servos(model):
            self.servos = Servos(model, num_envs, self._batch.bind, self._batch.expand)

    @override
    def write(self, name: str, columns: Columns, values: Tensor, env_ids: Tensor | None = None) -> None:
        # NumPy writes and converts in one go, and costs less than torch on arrays of this size.
        field = self._field(name)
        at = columns if isinstance(columns, slice) else columns.numpy()
        if env_ids is None:
            field[:, at] = values.numpy()
            self._changed(slice(None))
        else:
            rows = env_ids.numpy()
            field[rows if isinstance(at, slice) else rows[:, None], at] = values.numpy()
            self._changed(rows)

    @override
    def write_initial(self, name: str, columns: Columns, values: Tensor) -> None:
        # The fields are views of the state's rows: their offset gives their part of a row.
        field = self._batch.bind(name)
        first = (field.ctypes.data - self._batch.state.ctypes.data) // field.itemsize
        at = columns if isinstance(columns, slice) else columns.numpy()
        self._initial_state[first : first + field.shape[1]][at] = values.numpy()

    @override
    def read_model(self, name: str) -> Tensor:
        values = self._batch.expanded(name)
        if values is None:
            shared = torch.from_numpy(np.array(getattr(self.model, name)))
            return shared.expand(self.num_envs, *shared.shape)
        return torch.from_numpy(np.array(values))

    @override
    def write_model(
        self, name: str, index: Index, values: Tensor, env_ids: Tensor | None = None, derive: bool = True
    ) -> None:
        rows = slice(None) if env_ids is None else env_ids.numpy()
        self._put_model(name, index, values.numpy(), rows, derive)

    @override
    def write_model_parts(
        self, parts: Sequence[ModelPart], table: Tensor, env_ids: Tensor, derive: bool = True
    ) -> None:
        # Each tensor that is cut or shown to NumPy costs as much as a write.
        values, rows = table.numpy(), env_ids.numpy()
        for name, part, columns in parts:
            self._put_model(name, part, values[:, columns], rows, derive)

    @override
    def step(self, substeps: int, env_ids: Tensor | None = None) -> None:
        self._update_constants()
        ids = None if env_ids is None else np.sort(env_ids.numpy())
        rows = slice(None) if ids is None else ids
        if self.servos is None:
            self._batch.step(ids, nstep=substeps)
        else:
            self.servos.step(rows, substeps, lambda: self._batch.step(ids))
        self._changed(rows)

    @override
    def reset(self, env_ids: Tensor) -> None:
        # Derived fields are computed when asked for, after the writes that follow a reset.
        rows = env_ids.numpy()
        self._batch.state[rows] = self._initial_state
        self._batch.warning[rows] = 0
        if self.servos is not None:
            self.servos.reset(rows)
        self._changed(rows)

    @override
    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        return nullcontext(mask.nonzero().squeeze(1))

    @override
    def copy_rows(self, env_ids: Tensor) -> np.ndarray:
        return self._batch.state[env_ids.numpy()]

    @override
    def put_rows(self, env_ids: Tensor, rows: np.ndarray) -> None:
        self._batch.state[env_ids.numpy()] = rows
        self._changed(env_ids.numpy())

    @override
    def diverged(self) -> Tensor | None:
        return torch.from_numpy(self._warnings.any(axis=1)) if np.count_nonzero(self._warnings) else None

    @override
    def state_dict(self) -> dict[str, Any]:
        own = {name: values for name in MODEL_FIELDS if (values := self._batch.expanded(name)) is not None}
        saved = {name: getattr(self, name) for name in _SAVED}
        state = {"state": self._batch.state, "warning": self._batch.warning, "model": own, "attributes": saved}
        return state if self.servos is None else state | {"servos": declared_state(self.servos)}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "engine" in state:
            raise ConfigError(f"the checkpoint's physics ran on {state['engine']}: resume it with the same sim_device")
        for name, values in state["model"].items():
            self._batch.expand(name)[:] = values
        self._batch.state[:] = state["state"]
        self._batch.warning[:] = state["warning"]
        load_attributes(self, state["attributes"])
        if self.servos is not None:
            load_attributes(self.servos, state["servos"])
        self._changed(slice(None))

    @override
    def _own_field(self, env_id: int, name: str) -> np.ndarray | None:
        values = self._batch.expanded(name)
        return None if values is None else values[env_id]

    def _changed(self, rows: Any) -> None:
        self._is_stale[rows] = True
        self.version += 1

    def _put_model(self, name: str, index: Index, values: np.ndarray, rows: Any, derive: bool) -> None:
        if name in SEEN_FIELDS:
            self.looks[rows] += 1
        at = index if isinstance(index, tuple) else (index,)
        # NumPy combines a list of rows with a list of columns only where they are told to span a table.
        if not isinstance(rows, slice) and list in map(type, at):
            rows = rows[:, None]
        self._batch.expand(name)[(rows, *at)] = values
        if derive and name in _CONSTANTS_FOLLOW:
            self._has_stale_constants[rows] = True
            self._constants_are_stale = True
        self._changed(rows)

    def _update_constants(self) -> None:
        """Derive the constants again where the model fields behind them were written; once, however many were."""
        if self._constants_are_stale:
            self._batch.set_const(np.flatnonzero(self._has_stale_constants))
            self._has_stale_constants[:] = False
            self._constants_are_stale = False

    @override
    def read_exact(self, name: str) -> Tensor:
        return torch.from_numpy(self._field(name).astype(np.float64))

    @override
    def read_last(self, name: str) -> Tensor:
        return torch.from_numpy(self._field(name).astype(np.float32))

    @override
    def _cast(self, name: str) -> Tensor:
        field = self._field(name)
        is_derived = not field.flags.writeable
        if is_derived and name not in _KINEMATIC and self._stage != mujoco.mjtStage.mjSTAGE_ACC:
            self._stage = mujoco.mjtStage.mjSTAGE_ACC
            self._is_stale[:] = True
        if is_derived and self._is_stale.any():
            self._update_constants()
            # The forward pass of an unchanged state gives the same values: after a partial reset only its rows need it.
            rows = None if self._is_stale.all() else np.flatnonzero(self._is_stale)
            self._batch.forward(rows, stage=self._stage.value)
            self._is_stale[:] = False
        return torch.from_numpy(field.astype(np.float32))

    def _field(self, name: str) -> np.ndarray:
        """Return the engine's view of a field."""
        if name not in self._fields:
            self._fields[name] = self._batch.bind(name)
            if not self._fields[name].flags.writeable:
                self._is_stale[:] = True  # it is zero until the next call
        return self._fields[name]
