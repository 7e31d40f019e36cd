"""Event terms of the scene and its attributes, ``func(env, env_ids, **params)``, and the event manager.

Shapes: N environments, n in ``env_ids``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import checks, types
from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term, TermEnv, is_users
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES, EventCfg
from embodichain.lab.gym.envs.managers.randomization.physics import draw, entity_uid
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.math import pose_from_row, row_from_pose
from embodichain.lab.sim.objects import Robot
from embodichain.utils import ConfigError, collected, from_dict, raise_problems, replace
from embodichain.utils.device import constant
from embodichain.utils.module_utils import find_admitted

_MESHES = (".obj", ".stl")
_EXTRA = "extra_attrs"
_POSE_OF_OBJECT = "_pose_object"
_MOVED = ("qpos", "qvel", "mocap_pos", "mocap_quat")


class replace_assets_from_group(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Give a rigid body with a mesh one of a folder's meshes, drawn for each environment.

    The mass properties are the mesh's; the mass stays, or where the configured one is 0 it follows from the volume.

    Args:
        folder_path: folder of .obj and .stl files, relative to the working directory or absolute; or a pattern of files
            such as ``"assets/cups/cup_*.obj"``.
    """

    @classmethod
    @override
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        sim.add_mesh_variants(entity_uid(params["entity_cfg"]), _meshes(params["folder_path"]))

    @override
    def __call__(self, env: TermEnv, env_ids: Tensor, entity_cfg: types.RigidEntity, folder_path: str) -> None:
        physics = env.sim.get_rigid_object(entity_cfg.uid).physics
        # The configured mesh, number 0, is not of the folder.
        count = physics.num_variants - 1
        number = env.random.uniform(env_ids, 0.0, float(count), 1).squeeze(1).long().clamp(max=count - 1)
        physics.choose_variant(1 + number, env_ids)


def drop_rigid_object_group_sequentially(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.GroupEntity,
    drop_position: types.Vec3 = (0.0, 0.0, 1.0),
    position_range: types.Range3 = ((-0.1, -0.1, 0.0), (0.1, 0.1, 0.0)),
    physics_step: NonNegativeInt = 2,
) -> None:
    """Drop the objects of a group one after the other, unturned and from rest.

    Args:
        drop_position: x, y, z from where they fall, m.
        position_range: ``[lowest, highest]`` offset from there along x, y, z, m, drawn for each object.
        physics_step: physics substeps that these environments make after each object.
    """
    group = env.sim.get_rigid_object_group(entity_cfg.uid)
    start = constant(tuple(drop_position), env.device, torch.float32)
    upright = constant((1.0, 0.0, 0.0, 0.0), env.device, torch.float32).expand(len(env_ids), 4)
    for i in range(group.num_objects):
        pos = start + draw(env, env_ids, position_range, 3)
        group.set_local_pose(torch.cat((pos, upright), dim=1)[:, None], env_ids, obj_ids=[i])
        group.members[i].clear_dynamics(env_ids)
        if physics_step:
            env.sim.update(physics_step, env_ids)


def set_detached_uids_for_env_reset(env: TermEnv, env_ids: Tensor, uids: list[str]) -> None:
    """Let entities keep their state at every reset from now on, in all environments.

    Args:
        uids: names of rigid bodies, articulations or robots.
    """
    env.sim.detach_from_reset(uids)


def _meshes(folder_path: str) -> list[Path]:
    """Return the mesh files of a folder or of a pattern, sorted; ConfigError where there is none."""
    path = Path(folder_path).expanduser()
    folder, pattern = (path, "*") if folder_path.endswith("/") or path.is_dir() else (path.parent, path.name)
    found = sorted(file for file in folder.glob(pattern) if file.suffix.lower() in _MESHES)
    if not found:
        kinds = " or ".join(_MESHES)
        raise ConfigError(f"replace_assets_from_group: folder_path: no {kinds} file '{pattern}' in {folder.resolve()}")
    return found


def prepare_extra_attr(env: TermEnv, env_ids: Tensor, attrs: list[dict[str, Any]]) -> None:
    """Give entities further attributes, stored in ``env.extra_attrs`` by uid.

    Each entry of ``attrs`` has ``name``; ``entity_cfg`` or ``entity_uids`` (a list, a name, ``"all_objects"`` or
    ``"all_robots"``); and ``mode``: ``"static"`` with a ``value``, or ``"callable"`` with ``func_name``, a method of
    the entity or of its ``physics``, such as ``"get_mass"``, and ``func_kwargs``.

    Args:
        attrs: the attributes.
    """
    for attr in attrs:
        uids = [attr["entity_cfg"]["uid"]] if "entity_cfg" in attr else _resolve_uids(env, attr["entity_uids"])
        for uid in uids:
            value = _extra_value(env.sim.get_asset(uid), attr)
            _store(env, env_ids, _dictionary(env, _EXTRA).setdefault(uid, {}), attr["name"], value)


def register_entity_attrs(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.Entity,
    registration: str = "affordance_datas",
    attrs: Sequence[str] = (),
    prefix: bool = True,
) -> None:
    """Store attributes of an entity: its own, its ``physics``' (``mass``, ...), or ``prepare_extra_attr``'s.

    Args:
        registration: the environment's attribute to store them in.
        attrs: names of the attributes.
        prefix: store them as ``<uid>_<name>``, else by their names.
    """
    asset = env.sim.get_asset(entity_cfg.uid)
    extra = _dictionary(env, _EXTRA).get(entity_cfg.uid, {})
    for name in attrs:
        value = extra[name] if name in extra else _own_attribute(asset, name)
        if value is None:
            raise ConfigError(f"register_entity_attrs: '{entity_cfg.uid}' has no attribute '{name}'")
        key = f"{entity_cfg.uid}_{name}" if prefix else name
        _store(env, env_ids, _dictionary(env, registration), key, value)


def register_entity_pose(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.SceneEntityCfg,
    registration: str = "affordance_datas",
    compute_relative: bool | list[str] | str = "all_robots",
    compute_pose_object_to_arena: bool = True,
    to_matrix: bool = True,
) -> None:
    """Store the pose of an entity as ``<uid>_pose``; of a robot the tool's pose, as ``<control part>_pose``.

    Poses of other entities in its frame are stored as ``<other>_pose_<uid>``. Poses in its own frame that
    ``prepare_extra_attr`` gave it, ``<name>_pose_object``, are stored as ``<uid>_<name>_pose_object``, and in the
    environment's frame as ``<uid>_<name>_pose``.

    Args:
        entity_cfg: the entity; ``control_parts`` names the robot part with the tool, None: ``arm``.
        registration: the environment's attribute to store them in.
        compute_relative: the other entities: all, none, ``"all_objects"``, ``"all_robots"``, or their names.
        compute_pose_object_to_arena: store the poses in the environment's frame, too.
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
    """
    name, pose = _pose_of(env, entity_cfg)
    notes = {f"{name}_pose": pose}
    inverse = torch.linalg.inv(pose)
    for other in _resolve_uids(env, compute_relative):
        if other != entity_cfg.uid:
            notes[f"{other}_pose_{name}"] = inverse @ env.sim.get_asset(other).get_local_pose(to_matrix=True)
    for key, value in _dictionary(env, _EXTRA).get(entity_cfg.uid, {}).items():
        if key.endswith(_POSE_OF_OBJECT):
            local = torch.as_tensor(value, dtype=torch.float32, device=env.device)
            local = pose_from_row(local.reshape(-1, 7)) if local.shape[-1] == 7 else local.reshape(-1, 4, 4)
            notes[f"{entity_cfg.uid}_{key}"] = local.expand(env.num_envs, 4, 4)
            if compute_pose_object_to_arena:
                arena = f"{key.removesuffix(_POSE_OF_OBJECT)}_pose"
                notes[f"{entity_cfg.uid}_{arena}"] = pose @ local
    for key, matrix in notes.items():
        value = matrix if to_matrix else row_from_pose(matrix)
        _store(env, env_ids, _dictionary(env, registration), key, value)


def register_info_to_env(
    env: TermEnv,
    env_ids: Tensor,
    registry: list[dict[str, Any]],
    registration: str = "affordance_datas",
    sim_update: bool = True,
) -> None:
    """Store attributes and poses of several entities.

    Each entry of ``registry`` has ``entity_cfg``; ``attrs`` and ``prefix`` as :func:`register_entity_attrs` takes them;
    and ``pose_register_params``, the parameters of :func:`register_entity_pose`.

    Args:
        registry: the entities.
        registration: the environment's attribute to store them in.
        sim_update: let the entities come to rest before: 100 physics substeps of these environments.
    """
    if sim_update:
        env.sim.update(100, env_ids)
    for entry in registry:
        entity = from_dict(types.SceneEntityCfg, entry["entity_cfg"], "register_info_to_env: entity_cfg")
        if "attrs" in entry:
            register_entity_attrs(env, env_ids, entity, registration, entry["attrs"], entry.get("prefix", True))
        if "pose_register_params" in entry:
            register_entity_pose(env, env_ids, entity, registration, **entry["pose_register_params"])


def _dictionary(env: TermEnv, name: str) -> dict[str, Any]:
    """Return the environment's attribute, created if missing."""
    return vars(env).setdefault(name, {})


def _store(env: TermEnv, env_ids: Tensor, notes: dict[str, Any], key: str, value: Any) -> None:
    """Store a value; of a tensor [N, ...] that exists already only the rows of environments [n]."""
    before = notes.get(key)
    has_rows = isinstance(value, Tensor) and value.shape[:1] == (env.num_envs,)
    if has_rows and isinstance(before, Tensor) and before.shape == value.shape:
        value = before.index_copy(0, env_ids, value[env_ids])
    notes[key] = value


def _resolve_uids(env: TermEnv, uids: bool | str | Sequence[str]) -> list[str]:
    """Return the entities by name: all, none, all of a kind, or some."""
    objects, robots = [*sorted(env.sim.rigid_objects), *sorted(env.sim.articulations)], sorted(env.sim.robots)
    if isinstance(uids, bool):
        return objects + robots if uids else []
    if isinstance(uids, str):
        return {"all_objects": objects, "all_robots": robots}.get(uids, [uids])
    return list(uids)


def _extra_value(asset: object, attr: Mapping[str, Any]) -> Any:
    if attr.get("mode", "static") == "static":
        return attr["value"]
    name = attr["func_name"]
    for owner in (asset, getattr(asset, "physics", None)):
        method = getattr(owner, name, None)
        if callable(method) and not name.startswith("_"):
            return method(**attr.get("func_kwargs", {}))
    raise ConfigError(f"prepare_extra_attr: func_name: {type(asset).__name__} has no method '{name}'")


def _own_attribute(asset: object, name: str) -> Any:
    """Return an attribute of an entity or its physics, or the result of a ``get_<name>``; None: there is none."""
    for owner in (asset, getattr(asset, "physics", None)):
        if not name.startswith("_") and getattr(owner, name, None) is not None:
            return getattr(owner, name)
        getter = getattr(owner, f"get_{name}", None)
        if getter is not None:
            return getter()
    return None


def _pose_of(env: TermEnv, entity: types.SceneEntityCfg) -> tuple[str, Tensor]:
    """Return the name under which a pose is stored, and the pose [N, 4, 4]."""
    asset = env.sim.get_asset(entity.uid)
    if isinstance(asset, Robot):
        parts = entity.control_parts or "arm"
        part = parts if isinstance(parts, str) else parts[0]
        return part, asset.get_eef_pose(part)
    return entity.uid, asset.get_local_pose(to_matrix=True)


class _Intervals(Functor):
    """When the next call of an event with a range of intervals is due."""

    cfg: EventCfg

    def __init__(self, cfg: EventCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self.due = torch.zeros_like(env.elapsed_steps)  # [N] int64, in steps of the present episode

    @override
    def reset(self, env_ids: Tensor) -> None:
        self.draw(env_ids)

    def draw(self, env_ids: Tensor) -> None:
        """Draw the interval from the present step on for environments [n], from the present random stream."""
        assert isinstance(self.cfg.interval_step, tuple)
        shortest, longest = self.cfg.interval_step
        steps = shortest + self.env.random.uniform(env_ids, 0.0, longest - shortest + 1, 1)[:, 0].long()
        self.due = self.due.index_copy(0, env_ids, self.env.elapsed_steps[env_ids] + steps)


class EventManager(Manager):
    """Calls the events ``func(env, env_ids, **params)``; each draws from a random stream of its own."""

    state_names = ("_steps", "_begun")

    def __init__(self, cfgs: Mapping[str, EventCfg], env: TermEnv) -> None:
        super().__init__(env, [])
        self._by_mode: dict[str, list[Term[EventCfg]]] = {"startup": [], "reset": [], "interval": []}
        self._steps = 0
        self._begun: list[str] = []
        self._intervals: dict[str, _Intervals] = {}
        self._unchecked: set[str] = set()  # users' events to check at their first call for a part of the environments
        self._take(checks.build_terms(cfgs, env, "env.events"))

    def add(self, cfgs: Mapping[str, EventCfg]) -> None:
        """Add events, by new names, to a scene that is compiled already; ``startup`` events happen at once."""
        problems: list[str] = []
        found: dict[str, EventCfg] = {}
        for name, cfg in cfgs.items():
            with collected(problems):
                found[name] = self._addable(cfg, name)
        raise_problems(problems)
        terms = checks.build_terms(found, self._env, "events")
        self._take(terms)
        self._happen([term for term in terms if term.cfg.mode == "startup"], self._env.all_env_ids)

    @property
    def has_startup_events(self) -> bool:
        """Whether there is an event of mode ``startup``."""
        return bool(self._by_mode["startup"])

    def apply(self, mode: str, env_ids: Tensor) -> None:
        """Call the events of mode ``startup`` or ``reset`` for environments [n]."""
        self._happen(self._by_mode[mode], env_ids)

    def apply_interval(self, reward: Tensor, done: Tensor, success: Tensor) -> Tensor | None:
        """Count one control step, with these results [N], and call the interval events that are due.

        Returns:
            Environments [N] bool that events may have changed; None: no environment.
        """
        self._steps += 1
        env = self._env
        stepping = env.stepping_ids
        changed: list[Tensor] = []
        for term in self._by_mode["interval"]:
            if isinstance(term.func, Functor):
                term.func.after_rewards(reward, done, success)
            interval = term.cfg.interval_step
            if isinstance(interval, tuple):
                is_due = env.elapsed_steps == self._intervals[term.name].due
            elif checks.is_global(term.cfg):
                if self._steps % interval == 0:
                    self._call_global(term, stepping)
                    changed += [] if _only_reads(term) else [torch.ones_like(done)]
                continue
            else:
                is_due = env.elapsed_steps % interval == 0
            # An attribute that the first call creates cannot be restored in other rows.
            if len(stepping) == env.num_envs and term.name in self._begun:
                with env.choose(is_due) as due:
                    self._call(term, due)
            else:
                self._call(term, stepping[is_due[stepping]])
            changed += [] if _only_reads(term) else [is_due]
        if not changed:
            return None
        mask = torch.stack(changed).any(dim=0) & torch.zeros_like(done).index_fill(0, stepping, True)
        return mask if env.sim.backend.is_asynchronous or mask.any() else None

    def begin_step(self) -> None:
        """Call the recorders that show the first state of an episode."""
        for term in self._by_mode["interval"]:
            if isinstance(term.func, Functor) and term.func.shows_first_state():
                term(self._env, self._env.all_env_ids)

    def _take(self, terms: Sequence[Term[EventCfg]]) -> None:
        self._add(terms)
        self._unchecked |= {term.name for term in terms if is_users(term.func)}
        for term in terms:
            self._by_mode[term.cfg.mode].append(term)
            if term.cfg.mode == "interval" and isinstance(term.cfg.interval_step, tuple):
                intervals = self._intervals[term.name] = _Intervals(term.cfg, self._env)
                name = f"{term.name}.interval_step"
                self._add([Term(name, term.cfg, intervals, {}, f"env.events.{name}")])

    def _happen(self, terms: Sequence[Term[EventCfg]], env_ids: Tensor) -> None:
        for term in terms:
            with self._env.random.stream(term.name):
                self._act(term, env_ids)

    def _addable(self, cfg: EventCfg, name: str) -> EventCfg:
        """Return an event's config with its function, which may be named."""
        if any(term.name == name for terms in self._by_mode.values() for term in terms):
            raise ConfigError(f"events.{name}: the environment has an event of that name already")
        func = cfg.func
        if isinstance(func, str):
            func = find_admitted(func, BLOCK_MODULES["events"], (), f"events.{name}.func")
        if _prepares_scene(func):
            raise ConfigError(
                f"events.{name}.func: '{func.__name__}' prepares the scene before it is compiled, so it cannot be "
                "added to one that is: put it into the environment's config, env.events"
            )
        return replace(cfg, func=func)

    def _call(self, term: Term[EventCfg], env_ids: Tensor) -> None:
        """Call an interval event for environments [n], if there are any."""
        if not len(env_ids):
            return
        env = self._env
        with env.random.stream(term.name, tick=env.elapsed_steps):
            self._act(term, env_ids)
        if (intervals := self._intervals.get(term.name)) is not None:
            with env.random.stream(f"{term.name}.interval_step", tick=env.elapsed_steps):
                intervals.draw(env_ids)
        if term.name not in self._begun:
            self._begun.append(term.name)

    def _act(self, term: Term[EventCfg], env_ids: Tensor) -> None:
        """Call an event; an error if its first call for some environments alone moves another one."""
        env = self._env
        if term.name not in self._unchecked or not 0 < len(env_ids) < env.num_envs:
            term(env, env_ids)
            return
        self._unchecked.discard(term.name)
        before = [env.sim.backend.read(name).clone() for name in _MOVED]
        term(env, env_ids)
        for old, new in zip(before, map(env.sim.backend.read, _MOVED), strict=True):
            if not torch.equal(new.nan_to_num(), old.index_copy(0, env_ids, new[env_ids]).nan_to_num()):
                raise ConfigError(
                    f"{term.place}: moves environments outside env_ids: pass env_ids on, as in set_local_pose(pose, "
                    "env_ids)"
                )

    def _call_global(self, term: Term[EventCfg], env_ids: Tensor) -> None:
        with self._env.random.stream(term.name, tick=self._steps):
            term(self._env, env_ids)

    def rehearse(self, env_ids: Tensor) -> None:
        """Call every interval event once, as a trial: for environments [n], or where it is global for all."""
        for term in self._by_mode["interval"]:
            if checks.is_global(term.cfg):
                self._call_global(term, self._env.all_env_ids)
            else:
                self._call(term, env_ids)

    def restart(self) -> None:
        """Count the steps for the interval events from 0 again, as the random streams start again."""
        self._steps = 0


def _prepares_scene(func: Any) -> bool:
    if not (isinstance(func, type) and issubclass(func, Functor)):
        return False
    return func.prepare_scene.__func__ is not Functor.prepare_scene.__func__  # type: ignore[attr-defined]


def _only_reads(term: Term[EventCfg]) -> bool:
    return getattr(term.func, "only_reads", False)
