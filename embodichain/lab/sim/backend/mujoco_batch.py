"""Physics on the processor's threads: ``mujoco.batch.Batch``."""

from __future__ import annotations

import os
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.sim.backend.base import Backend, Columns
from embodichain.utils.state import load_attributes

__all__ = ["MujocoBatchBackend"]

_FIRST_DIVERGENCE = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_DIVERGENCE = int(mujoco.mjtWarning.mjWARN_BADCTRL)
# What is neither a view of the engine's memory nor computed from the state.
_REMEMBERED = ("_initial_state",)


def _silence_log() -> None:
    """Keep the engine from writing MUJOCO_LOG.TXT into the user's working directory and from printing.

    Divergences, which it would report there, are counted and reported by the environment.
    """
    config = mujoco.MjLogConfig.get()
    config.logto_file = False
    config.logto_console = False
    mujoco.MjLogConfig.set(config)


_silence_log()


class MujocoBatchBackend(Backend):
    """N simulations on threads; implements :class:`~embodichain.lab.sim.backend.base.Backend`.

    The engine's state is float64 and lives in one row for each environment; reads cast it, once after each change.
    Positions and velocities are always current. Fields derived from them are one substep old after a step (the engine
    integrates last), so they are recomputed when, and only when, somebody asks for one.
    """

    def __init__(
        self, model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, num_threads: int = 0
    ) -> None:
        """Start with every environment in the model's initial state.

        Args:
            model: compiled; its keyframe 0 is the initial state.
            visual_model: of the same states, for pictures.
            num_envs: N.
            num_threads: 0 for one a processor that this process may use.
        """
        self.model = model
        self.visual_model = visual_model
        self.num_envs = num_envs
        self.device = torch.device("cpu")
        self.version = 0
        threads = num_threads or len(os.sched_getaffinity(0))
        self._batch = Batch(model, num_envs, nthread=min(threads, num_envs))
        self._states: dict[str, np.ndarray] = {}
        self._derived: dict[str, np.ndarray] = {}
        self._casts: dict[str, tuple[int, Tensor]] = {}
        self._derived_version = -1
        self._warnings = self._batch.warning[:, _FIRST_DIVERGENCE : _LAST_DIVERGENCE + 1, 1]
        # The whole state of one environment right after a reset: writing the row again costs less than the call.
        self._batch.reset(keyframe=0, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._initial_state = self._batch.state[0].copy()

    @property
    @override
    def qpos(self) -> Tensor:
        return self.read("qpos")

    @property
    @override
    def qvel(self) -> Tensor:
        return self.read("qvel")

    @property
    @override
    def ctrl(self) -> Tensor:
        return self.read("ctrl")

    @override
    def read(self, name: str) -> Tensor:
        version, cast = self._casts.get(name, (-1, None))
        if cast is None or version != self.version:
            cast = self._cast(name)
            self._casts[name] = (self.version, cast)
        return cast

    @override
    def write(self, name: str, columns: Columns, values: Tensor, env_ids: Tensor | None = None) -> None:
        # NumPy writes and converts in one go, and costs less than torch on arrays of this size.
        field = self._states.get(name)
        if field is None:
            field = self._states[name] = self._batch.bind(name)
        at = columns if isinstance(columns, slice) else columns.numpy()
        if env_ids is None:
            field[:, at] = values.numpy()
        else:
            rows = env_ids.numpy()
            field[rows if isinstance(at, slice) else rows[:, None], at] = values.numpy()
        self.version += 1

    @override
    def model_field(self, name: str) -> Tensor:
        return torch.from_numpy(self._batch.expand(name))

    @override
    def step(self, substeps: int) -> None:
        self._batch.step(nstep=substeps)
        self.version += 1

    @override
    def reset(self, env_ids: Tensor) -> None:
        # Derived fields are computed when asked for, after the writes that follow a reset.
        rows = env_ids.numpy()
        self._batch.state[rows] = self._initial_state
        self._batch.warning[rows] = 0
        self.version += 1

    @override
    def diverged(self) -> Tensor | None:
        return torch.from_numpy(self._warnings.any(axis=1)) if np.count_nonzero(self._warnings) else None

    @override
    def state_dict(self) -> dict[str, Any]:
        own = {name: values for name in MODEL_FIELDS if (values := self._batch.expanded(name)) is not None}
        kept = {name: value for name, value in vars(self).items() if name in _REMEMBERED}
        return {"state": self._batch.state, "warning": self._batch.warning, "model": own, "attributes": kept}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, values in state["model"].items():
            self._batch.expand(name)[:] = values
        self._batch.state[:] = state["state"]
        self._batch.warning[:] = state["warning"]
        load_attributes(self, state["attributes"])
        self.version += 1

    @override
    def load_render_data(self, env_id: int, data: mujoco.MjData) -> None:
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = self._batch.bind(name)[env_id]
        mujoco.mj_kinematics(self.visual_model, data)
        mujoco.mj_comPos(self.visual_model, data)
        mujoco.mj_camlight(self.visual_model, data)

    def _cast(self, name: str) -> Tensor:
        """Return a float32 copy of a field of the current state."""
        if name in self._states:
            return torch.from_numpy(self._states[name].astype(np.float32))
        is_bound = name in self._derived
        array = self._derived.get(name, self._batch.bind(name))
        if array.flags.writeable:
            self._states[name] = array
            return torch.from_numpy(array.astype(np.float32))
        self._derived[name] = array
        if not is_bound or self._derived_version != self.version:
            self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_ACC.value)
            self._derived_version = self.version
        return torch.from_numpy(array.astype(np.float32))
