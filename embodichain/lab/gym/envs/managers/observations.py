"""Observation terms, ``func(env, **params)`` or ``func(env, data, **params)`` to modify an entry, and their manager.

Shapes: N environments, J joints, P points.
"""

import builtins
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import checks, measurements, state_values, types
from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term, TermEnv, is_users
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, ObservationCfg
from embodichain.lab.sim.math import row_from_pose
from embodichain.lab.sim.rows import Snapshot, changing_rows
from embodichain.lab.sim.sensors import Camera, StereoCamera
from embodichain.utils import ConfigError, configclass, unknown_name
from embodichain.utils.observations import nested_observation

_OF_JOINTS = {
    "robot/qpos": "positions of all joints, rad or m",
    "robot/qvel": "velocities of all joints, rad/s or m/s",
    "robot/qf": "efforts of the drives of all joints, Nm or N",
}


def get_rigid_object_pose(env: TermEnv, entity_cfg: types.RigidEntity, to_matrix: bool = True) -> Tensor:
    """Return a rigid body's pose in the environment's frame.

    Args:
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
    """
    return env.sim.get_rigid_object(entity_cfg.uid).get_local_pose(to_matrix)


def get_object_pose(env: TermEnv, entity_cfg: types.Entity, to_matrix: bool = True) -> Tensor:
    """Return the pose of a rigid body, or of the base of an articulation or robot, in the environment's frame.

    Args:
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
    """
    return env.sim.get_asset(entity_cfg.uid).get_local_pose(to_matrix)


def get_rigid_object_velocity(env: TermEnv, entity_cfg: types.RigidEntity) -> Tensor:
    """Return a rigid body's linear (m/s) and angular (rad/s) velocity in the environment's frame, [N, 6]."""
    return env.sim.get_rigid_object(entity_cfg.uid).get_velocity()


def get_robot_eef_pose(
    env: TermEnv, part_name: types.PartName = "arm", to_matrix: bool = True, position_only: bool = False
) -> Tensor:
    """Return the pose of a control part's tool centre point in the environment's frame.

    Args:
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
        position_only: the position alone, [N, 3], m.
    """
    pose = env.robot.get_eef_pose(part_name)
    if position_only:
        return pose[:, :3, 3]
    return pose if to_matrix else row_from_pose(pose)


def target_position(env: TermEnv, target_pose_key: types.PoseKey = "goal_pose") -> Tensor:
    """Return the position of a target pose, [N, 3], m."""
    return state_values.target_pose(env, target_pose_key)[:, :3, 3]


def offset_from_eef(env: TermEnv, entity_cfg: types.RigidEntity, part_name: types.PartName = "arm") -> Tensor:
    """Return the vector from a part's tool centre point to a rigid body, in the environment's frame, [N, 3], m."""
    return env.sim.get_rigid_object(entity_cfg.uid).pos - env.robot.get_eef_pose(part_name)[:, :3, 3]


def offset_from_target(
    env: TermEnv, entity_cfg: types.SceneEntityCfg, target_pose_key: types.PoseKey = "goal_pose"
) -> Tensor:
    """Return the vector from a target pose to an entity, in the environment's frame, [N, 3], m.

    Args:
        entity_cfg: a rigid body, or an articulation or robot, by its base.
    """
    return state_values.offset_to_target(env, entity_cfg.uid, target_pose_key)


def _joint_map(
    env: TermEnv,
    joint_ids: types.JointIds | None = None,
    limit: str = "qpos_limits",
    range: types.Interval = (-1.0, 1.0),
) -> tuple[Tensor, Tensor]:
    """Return offset and scale of ``normalize_robot_joint_data``, [J] each."""
    if limit == "qpos_limits":
        low, high = env.robot.body_data.qpos_limits[0].unbind(dim=1)
    else:
        high = env.robot.body_data.qvel_limits[0]
        low = -high
    first, last = range
    chosen = torch.zeros(low.shape, dtype=torch.bool, device=low.device)
    chosen[list(builtins.range(env.robot.dof) if joint_ids is None else joint_ids)] = True
    chosen &= torch.isfinite(low) & torch.isfinite(high)
    scale = torch.where(chosen, (last - first) / (high - low), torch.ones_like(low))
    return torch.where(chosen, (first * high - last * low) / (high - low), torch.zeros_like(low)), scale


def _joint_recipe(env: TermEnv, **params: Any) -> measurements.Recipe:
    offset, scale = _joint_map(env, **params)
    return measurements.Recipe([{"multiply": scale.tolist()}, {"subtract": (-offset).tolist()}])


@measurements.deployed_as(_joint_recipe)
class normalize_robot_joint_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Map joint positions or velocities [N, J] from their limits to ``range``.

    Joints without limits and joints not named stay as they are.

    Args:
        joint_ids: robot joints; None: all.
        limit: kind of limit, of positions (rad, m) or velocities (rad/s, m/s): the drives' ``max_velocity`` either way.
        range: new values of the lower and the upper limit.
    """

    is_stateful = False

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        own = {name: cfg.params[name] for name in ("joint_ids", "limit", "range") if name in cfg.params}
        self._offset, self._scale = _joint_map(env, **own)

    @override
    def __call__(
        self,
        env: TermEnv,
        data: Tensor,
        joint_ids: types.JointIds | None = None,
        limit: Literal["qpos_limits", "qvel_limits"] = "qpos_limits",
        range: types.Interval = (-1.0, 1.0),
    ) -> Tensor:
        if data.shape[-1] != len(self._scale):
            raise ConfigError(f"needs an entry of all {len(self._scale)} joints, got one of {data.shape[-1]} numbers")
        return torch.addcmul(self._offset, data, self._scale)


def get_object_body_scale(env: TermEnv, entity_cfg: types.RigidEntity) -> Tensor:
    """Return the size of a rigid body as a factor of the configured one along its axes, [N, 3]."""
    return env.sim.get_rigid_object(entity_cfg.uid).physics.get_body_scale()


def get_object_uid(env: TermEnv, entity_cfg: types.Entity) -> Tensor:
    """Return an entity's number in the scene: [N] int32 of a rigid body, [N, links] of an articulation or robot."""
    return env.sim.get_asset(entity_cfg.uid).get_user_ids()


def get_rigid_object_physics_attributes(env: TermEnv, entity_cfg: types.RigidEntity) -> dict[str, Tensor]:
    """Return the physical attributes of a rigid body, as a group of entries.

    ``mass`` [N, 1] kg, ``friction`` [N, 1] (sliding coefficient), ``damping`` [N, 1] (decay of the linear velocity,
    1/s) and ``inertia`` [N, 3] (about the principal axes, kg m^2) of each environment.
    """
    physics = env.sim.get_rigid_object(entity_cfg.uid).physics
    return {
        "mass": physics.get_mass(),
        "friction": physics.get_friction(),
        "damping": physics.get_damping(),
        "inertia": physics.get_inertia(),
    }


def get_articulation_joint_drive(env: TermEnv, entity_cfg: types.JointedEntity) -> dict[str, Tensor]:
    """Return the drives of an articulation or robot, as a group of entries, [N, J] each.

    ``stiffness`` (N/m or Nm/rad), ``damping`` (N s/m or Nm s/rad), ``max_effort`` (N or Nm), ``max_velocity`` (m/s or
    rad/s), ``friction`` (N or Nm) and ``armature`` (kg or kg m^2) of each environment; a missing limit is 0.
    """
    articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    data, strength = articulation.body_data, articulation.drives.strength
    limits = {"max_effort": strength * data.qf_limits, "max_velocity": data.qvel_limits}
    return articulation.drives.read() | {name: limit.nan_to_num(posinf=0.0) for name, limit in limits.items()}


@configclass
class ExteroceptionSource:
    """A pose around which points are projected into an image."""

    type: Literal["robot", "affordance"]
    """A control part's tool pose, or a pose that is stored under a key."""
    control_part: str = "arm"
    """The control part, with ``robot``."""
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Offset subtracted from the tool's position, in its own frame, m, with ``robot``."""
    obj_uid: str = ""
    """Rigid body that is the pose's frame, with ``affordance``."""
    key: str = ""
    """Name of the pose with ``affordance``: [4, 4] or [N, 4, 4], in ``env.affordance_datas``; the identity if
    missing."""
    is_arena_coord: bool = False
    """Whether the pose is in the environment's frame instead, with ``affordance``."""
    follow_eef: bool | str = False
    """Points along y keep to the gripper's opening: a control part's, or with true that of the part named like
    this one with ``eef`` for ``arm``, else of ``hand``."""


def get_sensor_pose_in_robot_frame(
    env: TermEnv, entity_cfg: types.CameraEntity, robot_uid: str | None = None, is_right: bool = False
) -> Tensor:
    """Return a camera's pose in the frame of a robot's base, [N, 4, 4]; it looks along -z, and +y is up in its image.

    Args:
        robot_uid: the robot; None: the environment's.
        is_right: use a stereo camera's right one.
    """
    robot = env.robot if robot_uid is None else env.sim.get_robot(robot_uid)
    base = torch.linalg.inv(robot.get_local_pose(to_matrix=True))
    return base @ _camera(env, entity_cfg.uid, is_right).get_arena_pose(to_matrix=True)


def get_sensor_intrinsics(env: TermEnv, entity_cfg: types.CameraEntity, is_right: bool = False) -> Tensor:
    """Return a camera's matrix, [N, 3, 3], pixels.

    Args:
        is_right: use a stereo camera's right one.
    """
    return _camera(env, entity_cfg.uid, is_right).get_intrinsics()


def compute_semantic_mask(
    env: TermEnv, entity_cfg: types.CameraEntity, foreground_uids: list[str], is_right: bool = False
) -> Tensor:
    """Return a camera's masks of background, foreground and robot, [N, H, W, 3] uint8, 0 or 1; needs ``enable_mask``.

    Args:
        foreground_uids: the entities, and groups of rigid objects, in the foreground; all else but the robot is
            background.
        is_right: use a stereo camera's right one.
    """
    camera = _camera(env, entity_cfg.uid, is_right)
    if not camera.cfg.enable_mask:
        raise ConfigError(f"params.entity_cfg: camera '{camera.uid}' needs enable_mask")
    mask, numbers = camera.get_data()["mask"], []
    for uid in foreground_uids:
        is_one = uid in camera.mask_numbers
        names = [uid] if is_one else [member.uid for member in env.sim.get_rigid_object_group(uid).members]
        numbers += [camera.mask_numbers[name] for name in names]
    foreground = torch.isin(mask, torch.tensor(numbers, dtype=mask.dtype, device=mask.device))
    robot = mask == camera.mask_numbers[env.robot.uid]
    return torch.stack((~(foreground | robot), foreground, robot), dim=-1).to(torch.uint8)


def compute_exteroception(
    env: TermEnv,
    descriptor: dict[types.CameraName, list[ExteroceptionSource]],
    x_interval: float = 0.02,
    y_interval: float = 0.02,
    kpnts_number: int = 12,
    groups: int | None = None,
) -> Tensor:
    """Return the image positions of points around poses, [N, P, 2], as parts of width and height, within 0 to 1.

    Around each pose there are 1 + 2 ``kpnts_number`` points: itself, then some along its x axis, then along its y axis.
    Points beyond the edge are put on it. The order is: cameras (of a stereo camera the left, then the right one),
    sources, points.

    Args:
        descriptor: sources by camera; ``all_sensors`` stands for every camera.
        x_interval: furthest points along x, m.
        y_interval: the same along y.
        kpnts_number: points along each axis.
        groups: accepted; the number follows from the sources.
    """
    points = []
    for uid, sources in descriptor.items():
        for sensor in env.sim.sensors.values() if uid == types.ALL_SENSORS else [env.sim.get_sensor(uid)]:
            at = [_around(env, source, x_interval, y_interval, kpnts_number) for source in sources]
            for camera in [sensor, sensor.right] if isinstance(sensor, StereoCamera) else [sensor]:
                points.append(_project(camera, torch.cat(at, dim=1)))
    return torch.cat(points, dim=1)


def _camera(env: TermEnv, uid: str, is_right: bool) -> Camera:
    sensor = env.sim.get_sensor(uid)
    if not is_right:
        return sensor
    if not isinstance(sensor, StereoCamera):
        raise ConfigError(f"is_right: sensor '{uid}' is no stereo camera")
    return sensor.right


def _around(env: TermEnv, source: ExteroceptionSource, x: float, y: float, count: int) -> Tensor:
    """Return points around a source's pose in the environment's frame, [N, 1 + 2 count, 3]."""
    pose = _source_pose(env, source)
    steps = torch.linspace(-1.0, 1.0, count, device=env.device)
    offsets = torch.zeros(env.num_envs, 1 + 2 * count, 3, device=env.device)
    offsets[:, 1 : 1 + count, 0] = x * steps
    offsets[:, 1 + count :, 1] = y * steps * _opening(env, source)
    return pose[:, None, :3, 3] + offsets @ pose[:, :3, :3].transpose(1, 2)


def _source_pose(env: TermEnv, source: ExteroceptionSource) -> Tensor:
    if source.type == "robot":
        pose = env.robot.get_eef_pose(source.control_part).clone()
        pose[:, :3, 3] -= pose[:, :3, :3] @ torch.tensor(source.offset, device=env.device)
        return pose
    stored = getattr(env, "affordance_datas", {}).get(source.key, torch.eye(4))
    pose = torch.as_tensor(stored, dtype=torch.float32, device=env.device).expand(env.num_envs, 4, 4)
    return pose if source.is_arena_coord else env.sim.get_rigid_object(source.obj_uid).get_local_pose(True) @ pose


def _opening(env: TermEnv, source: ExteroceptionSource) -> Tensor | float:
    """Return the gripper's opening, [N, 1], 0 to 1; 1 if the points do not follow it."""
    if not source.follow_eef:
        return 1.0
    part = source.follow_eef
    if not isinstance(part, str):
        named_alike = source.control_part.replace("arm", "eef")
        part = named_alike if named_alike in env.robot.control_parts else "hand"
    first = env.robot.get_joint_ids(part)[0]
    return env.robot.get_qpos()[:, first, None] / env.robot.body_data.qpos_limits[:, first, 1, None]


def _project(camera: Camera, points: Tensor) -> Tensor:
    """Project points [N, P, 3] of the environment's frame into an image, [N, P, 2], 0 to 1."""
    pose = camera.get_arena_pose(to_matrix=True)
    seen = (points - pose[:, None, :3, 3]) @ pose[:, :3, :3]
    # From OpenGL's axes to OpenCV's, with y down and z forward.
    ahead = (-seen[..., 2:]).clamp(min=1e-8)
    matrix = camera.get_intrinsics()
    focal, centre = matrix[:, None, [0, 1], [0, 1]], matrix[:, None, [0, 1], [2, 2]]
    pixels = focal * seen[..., :2] * torch.tensor([1.0, -1.0], device=seen.device) / ahead + centre
    size = torch.tensor([camera.cfg.width, camera.cfg.height], dtype=torch.float32, device=seen.device)
    return (pixels / size).clamp(0.0, 1.0)


class ObservationManager(Manager):
    """Adds entries to the base observation, and modifies some, in the order of the config.

    Terms with state are called once in a control step. If episodes begin in it, they are called again for the first
    observations of these: their state from before the first call is restored, they are reset for these environments,
    and called. In the other environments' rows, state and observation of the first call stay.
    """

    def __init__(self, cfgs: Mapping[str, ObservationCfg], env: TermEnv) -> None:
        terms = checks.build_terms(cfgs, env, "env.observations")
        super().__init__(env, terms)
        self._terms: list[tuple[str, Term[ObservationCfg]]] = [(term.cfg.name or term.name, term) for term in terms]
        self._stateful = {name: func for name, func in self._functors.items() if func.is_stateful}
        kept = {*self._stateful, *(term.name for term in terms if is_users(term.func))}
        self.has_state = bool(kept)
        """Whether any term has state, or may keep some on the environment, as a user's function does."""
        self._of_state = {name for name, term in self._terms if term.name in kept}  # names of entries
        self._keys: list[Any] | None = None  # of the entries whose other rows are restored
        self.shown: TensorDict | None = None
        """The observation from which the present step started."""
        self._takes_obs = frozenset(term.name for term in terms if checks.takes_observation(term.cfg))
        self._before: dict[str, Snapshot] = {}  # state before the last call
        self._since: dict[str, Snapshot] = {}  # state after it, while that is restored
        self._is_first = True  # the next call

    def compute(self, obs: dict[str, Tensor]) -> None:
        """Add to and modify the entries of ``obs``, [N, ...] by slash-separated name, in place.

        A term that returns several tensors by name makes a group of them.
        """
        if self._stateful:
            self._before = self._snapshots()
        random = self._env.random
        shared = {name: value for name, value in obs.items() if name.startswith("robot/")} if self._is_first else {}
        self._is_first = False
        with random.stream("observations", tick=self._env.elapsed_steps):
            for name, term in self._terms:
                random.turn_to(term.stream)
                with checks.leaving_unchanged(term.place, term.func, shared) if shared else nullcontext():
                    value = self._call(name, term, obs)
                if isinstance(value, Mapping) and term.cfg.mode == "add":
                    for key, part in value.items():
                        obs[f"{name}/{key}"] = self._checked(term, part)
                else:
                    obs[name] = self._checked(term, value)

    def recipe(self, entry: str) -> measurements.Recipe | None:
        """Return how an entry follows from raw measurements; None if not all of its terms say so."""
        found = self._joints_recipe(entry)
        for name, term in self._terms:
            if name == entry:
                own = measurements.recipe_of(self._env, term.func, term.params)
                if term.cfg.mode == "modify":
                    own = None if own is None or found is None else found.followed_by(own)
                found = own
        return found

    def _joints_recipe(self, entry: str) -> measurements.Recipe | None:
        """Return the recipe of an entry of all joints of the robot; None for other ones, and for a task's own."""
        env: Any = self._env
        is_own = is_users(env._base_obs) or is_users(env._extend_obs)
        if is_own or entry not in env.base_entries or (meaning := _OF_JOINTS.get(entry)) is None:
            return None
        read = getattr(env.robot, entry.replace("robot/", "get_"))
        return measurements.raw(measurements.Measurement(entry, meaning, read, list(env.robot.joint_names)))

    def rewind(self) -> None:
        """Restore the terms' state from before their last call, which the next one replaces."""
        if self._before:
            self._since = self._snapshots()
            self._restore(self._before)

    @contextmanager
    def changing(self, mask: Tensor) -> Iterator[None]:
        """Restrict the terms' call inside the block to the rows of a mask [N] bool."""
        with changing_rows([self._env], mask):  # attributes that terms set on the environment
            yield
        states = self._since or self._before
        for name, functor in self._stateful.items():
            functor.load_state_dict(states[name].with_rows_of(functor.state_dict(), mask))
        self._since = {}

    def keep_other_rows(self, obs: TensorDict, mask: Tensor, before: TensorDict | None, by_hooks: bool) -> None:
        """Restore the rows of an observation [N] outside a mask [N] bool, in place, where state may have made them.

        Args:
            before: previous observation; None: the observation from which the step started.
            by_hooks: hooks of the task may have state, and may have changed any entry but images.
        """
        before = self.shown if before is None else before
        if before is None:
            return
        if self._keys is None:
            # A chunk of actions renders at its end, for all environments: images, and what terms read from them.
            terms = [] if by_hooks else [name for name, term in self._terms if term.cfg.mode == "add"]
            keys = before.keys(include_nested=True, leaves_only=True)
            self._keys = [key for key in keys if _is_in(key, self._of_state) or not _is_in(key, ["sensor", *terms])]
        Snapshot(before.select(*self._keys)).with_rows_of(obs, mask)

    @override
    @contextmanager
    def leaving_no_trace(self) -> Iterator[None]:
        with super().leaving_no_trace():
            yield
        self._before = {}

    @override
    def stateful(self) -> list[Any]:
        return []  # this class restores their rows itself

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"before": {name: snapshot.copy() for name, snapshot in self._before.items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._before = {name: Snapshot(value) for name, value in state.get("before", {}).items()}
        self.shown = None

    def _call(self, name: str, term: Term[ObservationCfg], obs: dict[str, Tensor]) -> Any:
        """Return a term's value for the observation so far."""
        if term.cfg.mode == "modify" and name not in obs:
            raise ConfigError(f"{term.place}.name: {unknown_name('entry', name, obs)}")
        if term.cfg.mode == "modify":
            return term(self._env, obs[name])
        if term.name in self._takes_obs:
            return term(self._env, nested_observation(obs, self._env.device))
        return term(self._env)

    def _checked(self, term: Term[ObservationCfg], value: object) -> Tensor:
        num_envs = self._env.num_envs
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != num_envs:
            raise checks.wrong_return(term.place, term.func, value, f"[N, ...] with N = {num_envs}")
        return value.clone() if is_users(term.func) else value


def _is_in(key: str | tuple[str, ...], names: Iterable[str]) -> bool:
    """Return whether an entry of a nested observation has one of these names, or is in a group of such a name."""
    entry = key if isinstance(key, str) else "/".join(key)
    return any(f"{entry}/".startswith(f"{name}/") for name in names)
