"""The state of one bare MuJoCo simulation, for environments that are not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
# Large, and not changed by environments: meshes, textures, height fields, skins, bounding volumes.
_ASSETS = ("mesh_", "tex_", "hfield_", "skin_", "bvh_", "oct_")


MuJoCoFatalError: type[Exception] = mujoco.FatalError
"""Raised among others where there is no OpenGL."""


def draw_without_shadows(model: Any) -> None:
    """Make images that are not yet begun ten times as fast: on a processor, shadows and smoothing take the most."""
    model.vis.quality.shadowsize = model.vis.quality.offsamples = 0


def is_model(value: object) -> bool:
    """Return whether an object is an ``MjModel``."""
    return isinstance(value, mujoco.MjModel)


def is_data(value: object) -> bool:
    """Return whether an object is an ``MjData``."""
    return isinstance(value, mujoco.MjData)


class SingleData:
    """Copies and restores an ``MjData``, with the parameters of its ``MjModel``.

    Derived fields are part of it: after a step they are one substep old, and an environment may read them before the
    next one, so that computing them again would change a reward. Fields of contacts and constraints are not: each step
    computes them anew.
    """

    def __init__(self, data: Any) -> None:
        self._data, self._model = data, data.model
        self._size = mujoco.mj_stateSize(self._model, _STATE)
        # In data that were never used, the fields of contacts and constraints are empty.
        self._derived = [getattr(data, name) for name in _float_fields(mujoco.MjData(self._model))]
        self._parameters = [
            getattr(owner, name)
            for owner in (self._model, self._model.opt)
            for name in _float_fields(owner)
            if not name.startswith(_ASSETS)
        ]

    def copy(self) -> dict[str, np.ndarray]:
        """Return the integration state, the derived fields and the model's floating-point parameters, an array each."""
        state = np.empty(self._size)
        mujoco.mj_getState(self._model, self._data, state, _STATE)
        return {"state": state, "derived": _joined(self._derived), "parameters": _joined(self._parameters)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restore the result of :meth:`copy` for such a model.

        Raises:
            ValueError: the copy belongs to another model.
        """
        sizes = {"state": self._size, "derived": _size(self._derived), "parameters": _size(self._parameters)}
        for name, size in sizes.items():
            if saved[name].size != size:
                raise ValueError(f"saved are {saved[name].size} numbers of a simulation's {name}, its model has {size}")
        _put(self._parameters, saved["parameters"])
        mujoco.mj_setState(self._model, self._data, saved["state"], _STATE)
        _put(self._derived, saved["derived"])


def _float_fields(owner: Any) -> list[str]:
    """Return the names of an object's arrays of floating-point numbers that are not empty."""
    names = [name for name, kind in vars(type(owner)).items() if isinstance(kind, property)]
    values = {name: getattr(owner, name) for name in sorted(names)}
    return [name for name, value in values.items() if _is_float_array(value)]


def _is_float_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.size > 0 and np.issubdtype(value.dtype, np.floating)


def _size(views: Sequence[np.ndarray]) -> int:
    return sum(view.size for view in views)


def _joined(views: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([view.ravel() for view in views]).astype(np.float64)


def _put(views: Sequence[np.ndarray], values: np.ndarray) -> None:
    start = 0
    for view in views:
        view[...] = values[start : start + view.size].reshape(view.shape)
        start += view.size
