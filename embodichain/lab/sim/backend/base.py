"""The interface of physics engines, and the cache of values that follow from their state.

Shapes: N environments, n in ``env_ids`` (None: all), nq/nv/nu the model's positions, velocities and controls.
Returned tensors are float32 on ``device`` and never change afterwards.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.servos import Servos
from embodichain.utils import ConfigError

Columns = slice | Tensor
"""Columns of a state tensor: a slice where they are neighbours, else int64 indices."""
Index = int | slice | list[int] | tuple[int | slice | list[int], ...]
"""A part of a model field, as NumPy indexes; at most one list."""
SEEN_FIELDS = frozenset({"body_pos", "body_quat", "geom_size", "geom_group"})
"""Fields of the model that cameras see."""
_ACCELERATIONS = ("accelerometer", "force", "torque", "framelinacc", "frameangacc")
_SENSORS = {
    **dict.fromkeys(("cacc", "cfrc_int", "cfrc_ext"), _ACCELERATIONS),
    **dict.fromkeys(("subtree_linvel", "subtree_angmom"), ("subtreelinvel", "subtreeangmom")),
    "energy": ("e_potential", "e_kinetic"),
}
"""Fields of the data that the engine computes for sensors alone, of these types; elsewhere they are zeros."""


class ModelPart(NamedTuple):
    """A part of a model field, in its dimensions after N, and the columns of a table that are written into it."""

    name: str
    part: Index
    columns: int | slice


class Backend(ABC):
    """N copies of one model, stepped together.

    Attributes:
        visual_model: model with visual geoms, for rendering; ``model`` has none.
        version: counter of changes of the state.
        looks: [N] int64 array, counters of changes of the model that cameras see.
        servos: servos and joints with play; None without.
    """

    servos: Servos | None = None

    is_asynchronous: ClassVar[bool]
    """Whether the host runs ahead of the physics; then reading a value on the host waits for it."""

    def __init__(
        self, model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, device: torch.device
    ) -> None:
        self.model = model
        self.visual_model = visual_model
        self.num_envs = num_envs
        self.device = device
        self.version = 0
        self.looks = np.zeros(num_envs, dtype=np.int64)
        self._casts: dict[str, tuple[int, Tensor, int | None]] = {}  # version of the state, cast, its count of writes
        self._named_geoms, self._seen_geoms = named_geoms(model, visual_model)

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

        The current value, [N, ...]; stale fields are computed first. A ConfigError for one that the engine computes for
        sensors alone, in a model without them.
        """
        version, cast, writes = self._casts.get(name, (-1, None, None))
        if cast is None and name in _SENSORS:
            types = [getattr(mujoco.mjtSensor, f"mjSENS_{kind.upper()}") for kind in _SENSORS[name]]
            if not np.isin(self.model.sensor_type, types).any():
                kinds = ", ".join(_SENSORS[name])
                raise ConfigError(f"'{name}' is computed for sensors alone, and the model has none of {kinds}")
        if cast is None or version != self.version:
            cast = self._cast(name)
            self._casts[name] = (self.version, cast, _writes(cast))
        else:
            _check_unwritten(cast, writes, f"the state's '{name}', or a view of it,")
        return cast

    def read_exact(self, name: str) -> Tensor:
        """Return a field of the state as float64, [N, ...], where differences of near numbers matter.

        It is as precise as the engine, which computes in float32 on a GPU.
        """
        return self.read(name).double()

    @abstractmethod
    def read_last(self, name: str) -> Tensor:
        """Return a field that follows from the state as the engine last computed it, [N, ...].

        After a step that is the state before the last substep. The first call, before any step, starts the reading.
        """

    @abstractmethod
    def _cast(self, name: str) -> Tensor:
        """Return a float32 copy of a field of the current state."""

    @abstractmethod
    def write(self, name: str, columns: Columns, values: Tensor, env_ids: Tensor | None = None) -> None:
        """Write values, [n, columns ...] or broadcastable to it, to columns of a state field (``qpos``, ``ctrl``, ...).

        Fields with more than two dimensions (``mocap_pos``, ...) are indexed by their first one after N.
        """

    @abstractmethod
    def write_initial(self, name: str, columns: Columns, values: Tensor) -> None:
        """Set the reset values [columns] of columns of a state field of two dimensions, in every environment."""

    @abstractmethod
    def read_model(self, name: str) -> Tensor:
        """Return a model field (``body_mass``, ...) as it is in each environment, [N, ...]; do not write into it."""

    @abstractmethod
    def write_model(
        self, name: str, index: Index, values: Tensor, env_ids: Tensor | None = None, derive: bool = True
    ) -> None:
        """Write a part of a model field, which then has a value of its own for each environment.

        The index is in the dimensions after N; values are [n, ...], or broadcastable to it. Constants that MuJoCo
        derives from the field (``_setconst_inputs``) follow before the next step, unless the caller writes them, too,
        and ``derive`` is false.
        """

    def write_model_parts(
        self, parts: Sequence[ModelPart], table: Tensor, env_ids: Tensor, derive: bool = True
    ) -> None:
        """Write parts of several model fields from a table [n, columns], as :meth:`write_model` does one."""
        for name, part, columns in parts:
            self.write_model(name, part, table[:, columns], env_ids, derive)

    @abstractmethod
    def step(self, substeps: int, env_ids: Tensor | None = None) -> None:
        """Advance environments [n] (None: all) by ``substeps`` substeps under the present controls."""

    @abstractmethod
    def reset(self, env_ids: Tensor) -> None:
        """Put environments [n] into the model's initial state (keyframe 0)."""

    @abstractmethod
    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        """Restrict writes inside the block to the environments of a mask [N] bool.

        It yields the environments to compute values for, [n] int64, possibly none: the mask's, or all where reading
        the mask would wait for the device.
        """

    @abstractmethod
    def copy_rows(self, env_ids: Tensor) -> Any:
        """Return the states of environments [n], controls included, for :meth:`put_rows`."""

    @abstractmethod
    def put_rows(self, env_ids: Tensor, rows: Any) -> None:
        """Put environments [n] back into the states that :meth:`copy_rows` returned for them."""

    @abstractmethod
    def diverged(self) -> Tensor | None:
        """Return which environments' physics diverged since their last reset, [N] bool; None: known to be none."""

    def report(self) -> list[str]:
        """Return and handle the problems since the last call, a sentence each; between rollouts, since it may wait."""
        return []

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next steps depend on: states, warnings and the environments' own model fields."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state_dict` for the same model."""

    def load_render_data(self, env_id: int, data: mujoco.MjData) -> None:
        """Write one environment's state, sizes, meshes and base poses into data of a copy of ``visual_model``.

        The poses are computed, too. Not while the physics steps.
        """
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = self.read(name)[env_id].cpu()
        for name in ("body_pos", "body_quat"):
            if (own := self._own_field(env_id, name)) is not None:
                getattr(data.model, name)[:] = own
        for name in ("geom_size", "geom_group"):
            if (own := self._own_field(env_id, name)) is not None:
                getattr(data.model, name)[self._seen_geoms] = own[self._named_geoms]
        mujoco.mj_kinematics(data.model, data)
        mujoco.mj_comPos(data.model, data)
        mujoco.mj_camlight(data.model, data)
        if data.model.nflex:
            mujoco.mj_flex(data.model, data)
        if data.model.ntendon:
            mujoco.mj_tendon(data.model, data)

    @abstractmethod
    def _own_field(self, env_id: int, name: str) -> np.ndarray | None:
        """Return a field of the model in one environment, or None where it is the same in all."""


def named_geoms(model: mujoco.MjModel, visual_model: mujoco.MjModel) -> tuple[list[int], list[int]]:
    """Return the ids in both models of the named geoms; their bodies' fields may differ between environments."""
    names = {visual_model.geom(i).name: i for i in range(visual_model.ngeom)}
    named = [i for i in range(model.ngeom) if model.geom(i).name]
    return named, [names[model.geom(i).name] for i in named]


class StateCache:
    """Values computed from the present state of the physics; :func:`cached_per_state` fills it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._version = -1
        self._values: dict[Hashable, tuple[Tensor, int | None]] = {}

    def values(self) -> dict[Hashable, tuple[Tensor, int | None]]:
        """Return the values of the present state, and their counts of writes, by function and arguments."""
        if self._version != self._backend.version:
            self._values.clear()
            self._version = self._backend.version
        return self._values


class _Owner(Protocol):
    @property
    def state_cache(self) -> StateCache: ...


Owner = TypeVar("Owner", bound=_Owner)
P = ParamSpec("P")


def cached_per_state(func: Callable[Concatenate[Owner, P], Tensor]) -> Callable[Concatenate[Owner, P], Tensor]:
    """Cache a function's value until the physics state changes.

    The first argument is an environment, or another object with a ``state_cache``. Everything else that the value
    depends on, such as a target, must be an argument; a tensor is compared by identity and by its count of writes. Do
    not write into the value: the next call in the same state raises a ConfigError.

    Example::

        @cached_per_state
        def offset(env: EmbodiedEnv, target: Tensor) -> Tensor:
            return env.robot.get_eef_pose()[:, :3, 3] - target
    """

    @functools.wraps(func)
    def cached(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        values = owner.state_cache.values()
        named = ((name, _identity(value)) for name, value in kwargs.items())
        key: Hashable = (func, *map(_identity, args), *named) if args or kwargs else func
        known = values.get(key)
        if known is None:
            value = func(owner, *args, **kwargs)
            values[key] = value, _writes(value)
            return value
        value, writes = known
        _check_unwritten(value, writes, f"a result of {func.__qualname__}")
        return value

    return cached


def _identity(argument: Any) -> Hashable:
    """Return the cache key of an argument; a tensor's includes its count of writes, where torch has one."""
    key: Hashable = argument if (writes := _writes(argument)) is None else (argument, writes)
    return key


def _writes(value: Any) -> int | None:
    """Return a tensor's count of writes, None where torch has none."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def _check_unwritten(value: Any, writes: int | None, what: str) -> None:
    """Raise a ConfigError if a tensor has another count of writes than before."""
    if writes is not None and value._version != writes:
        raise ConfigError(
            f"{what} was changed in place by a term that was called before, and others read it, too: make a new "
            "tensor, x * 0.1 instead of x *= 0.1"
        )
