"""What a physics engine must offer to everything above it.

Shapes: N environments, n those of ``env_ids`` (None: all), nq/nv/nu the model's positions, velocities and controls.
Tensors that are handed out are float32 on ``device`` and never change afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import mujoco
import numpy as np
import torch
from torch import Tensor

__all__ = ["Backend", "Columns", "Index", "ModelPart", "load_drawn", "named_geoms"]

Columns = slice | Tensor
"""Columns of a state tensor: a slice where they are neighbours, else int64 indices."""
Index = int | slice | list[int] | tuple[int | slice | list[int], ...]
"""A part of a model field, as NumPy indexes; at most one list."""


class ModelPart(NamedTuple):
    """Where some columns of a table go: into which part of which model field, in its dimensions after N."""

    name: str
    part: Index
    columns: int | slice


class Backend(Protocol):
    """N copies of one model, stepped together."""

    model: mujoco.MjModel
    visual_model: mujoco.MjModel
    """Has everything that is seen; ``model`` only what moves and touches."""
    num_envs: int
    device: torch.device
    version: int
    """Changes with every change of the state; what is computed from the state may be kept as long as it stays."""
    is_asynchronous: bool
    """Whether the host runs ahead of the physics, so that it should read no value before it must."""

    @property
    def qpos(self) -> Tensor:
        """Generalised positions, [N, nq]."""
        return self.read("qpos")

    @property
    def qvel(self) -> Tensor:
        """Generalised velocities, [N, nv]."""
        return self.read("qvel")

    @property
    def ctrl(self) -> Tensor:
        """Actuators' targets, [N, nu]."""
        return self.read("ctrl")

    def read(self, name: str) -> Tensor:
        """Return a field of the state (``mocap_pos``, ...) or one that follows from it (``xpos``, ``sensordata``, ...).

        It is of the current state, [N, ...]: what is out of date is computed first.
        """
        ...

    def write(self, name: str, columns: Columns, values: Tensor, env_ids: Tensor | None = None) -> None:
        """Write columns of a state field (``qpos``, ``qvel``, ``ctrl``, ``mocap_pos``, ``mocap_quat``, ...).

        Args:
            name: the field; those with more than two dimensions are indexed by their first one after N.
            values: [n, columns ...], or what broadcasts to it.
        """
        ...

    def write_initial(self, name: str, columns: Columns, values: Tensor) -> None:
        """Change what a reset puts into columns of a state field, in every environment.

        Args:
            name: a state field of two dimensions.
            values: [columns].
        """
        ...

    def read_model(self, name: str) -> Tensor:
        """Return a model field (``body_mass``, ...) as it is in each environment, [N, ...]; do not write into it."""
        ...

    def write_model(
        self, name: str, index: Index, values: Tensor, env_ids: Tensor | None = None, derive: bool = True
    ) -> None:
        """Write a part of a model field, which then has a value of its own for each environment.

        Constants that MuJoCo derives from it (``_setconst_inputs``) follow before the next step.

        Args:
            index: which part of it, in its dimensions after N.
            values: [n, ...], or what broadcasts to it.
            derive: let the constants follow; false where the caller writes them, too.
        """
        ...

    def write_model_parts(
        self, parts: Sequence[ModelPart], table: Tensor, env_ids: Tensor, derive: bool = True
    ) -> None:
        """Write parts of several model fields, as :meth:`write_model` does one.

        Args:
            table: [n, columns].
            derive: let the constants follow; false where the caller writes them, too.
        """
        for name, part, columns in parts:
            self.write_model(name, part, table[:, columns], env_ids, derive)

    def step(self, substeps: int, env_ids: Tensor | None = None) -> None:
        """Advance environments [n] (None: all) by ``substeps`` substeps under the present controls."""
        ...

    def reset(self, env_ids: Tensor) -> None:
        """Put environments [n] into the model's initial state (keyframe 0)."""
        ...

    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        """Let what is written inside the block change the environments of a mask [N] bool, and no others.

        Yields:
            [n] int64 for which environments to compute what is written: those of the mask, or where to find out which
            they are means to wait, all of them. It may be empty.
        """
        ...

    def copy_rows(self, env_ids: Tensor) -> Any:
        """Return the states of environments [n], controls included, for :meth:`put_rows`."""
        ...

    def put_rows(self, env_ids: Tensor, rows: Any) -> None:
        """Put environments [n] back into the states that :meth:`copy_rows` returned for them."""
        ...

    def diverged(self) -> Tensor | None:
        """Return which environments' physics became invalid since their last reset, [N] bool.

        None where it is known without waiting that there is none.
        """
        ...

    def report(self) -> list[str]:
        """Return what went wrong unnoticed since the last call, a sentence each, and do about it what can be done.

        This may wait for the physics: it is for the time between two rollouts.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next steps depend on: states, warnings and the environments' own model fields."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned for the same model."""
        ...

    def load_render_data(self, env_id: int, data: mujoco.MjData) -> None:
        """Write one environment's state into ``data`` and compute what drawing it needs.

        Args:
            data: of ``visual_model`` or a copy of it, which gets this environment's sizes, meshes and places of bases.
        """
        ...


def named_geoms(model: mujoco.MjModel, visual_model: mujoco.MjModel) -> tuple[list[int], list[int]]:
    """Return the geoms of rigid bodies, whose fields may differ between environments: their ids in either model.

    They have names, by which they are found in both.
    """
    names = {visual_model.geom(i).name: i for i in range(visual_model.ngeom)}
    named = [i for i in range(model.ngeom) if model.geom(i).name]
    return named, [names[model.geom(i).name] for i in named]


def load_drawn(
    data: mujoco.MjData,
    state: Mapping[str, np.ndarray],
    own: Mapping[str, np.ndarray],
    named: Sequence[int],
    seen: Sequence[int],
) -> None:
    """Write one environment's state and shapes into ``data``, and compute what drawing it needs.

    Args:
        data: of the model for pictures, or a copy of it, which is written into.
        state: its fields ``qpos``, ``mocap_pos`` and ``mocap_quat``, as far as they are there.
        own: the model fields that the environment has for itself.
        named, seen: as :func:`named_geoms` returns them.
    """
    for name, values in state.items():
        getattr(data, name)[:] = values
    for name in ("body_pos", "body_quat"):
        if name in own:
            getattr(data.model, name)[:] = own[name]
    for name in ("geom_size", "geom_group"):
        if name in own:
            getattr(data.model, name)[seen] = own[name][named]
    mujoco.mj_kinematics(data.model, data)
    mujoco.mj_comPos(data.model, data)
    mujoco.mj_camlight(data.model, data)
