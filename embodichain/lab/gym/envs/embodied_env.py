"""Environments made from a config: a scene, and managers for actions, observations, rewards and events.

An :class:`EmbodiedEnv` assembles its scene; a :class:`SceneEnv` has one MJCF file.
Shapes: N environments, n in ``env_ids``, nq and nv MuJoCo's positions and velocities.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import NonNegativeFloat
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs import managers
from embodichain.lab.gym.envs.base_env import BaseEnv, StepResult
from embodichain.lab.gym.envs.chunk_env import step_chunk
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg, build_mirror_map, check_parts, config_data, terms_data
from embodichain.lab.gym.envs.managers.base import is_users
from embodichain.lab.gym.envs.managers.record import recorders_in
from embodichain.lab.sim.objects import Robot, cached_per_state
from embodichain.utils import ConfigError, files, observations, profiling, replace, video
from embodichain.utils.choices import Choices
from embodichain.utils.state import is_all_saved

_ACTIVE = "<active>"  # the name of a part made of several parts, or of joints


class EmbodiedEnv(BaseEnv):
    """The environment of a task; a task subclasses it and writes ``compute_task_state``.

    :class:`~embodichain.lab.gym.envs.managers.base.TermEnv` says what terms and tasks read of it.
    """

    cfg: EmbodiedEnvCfg
    action_manager: managers.ActionManager
    config_defaults: ClassVar[Mapping[str, Any]] = {}
    """Content of a config file that a config of this task may leave out, key by key, also inside ``env``."""
    base_entries: ClassVar[tuple[str, ...]] = ("robot/qpos", "robot/qvel", "robot/qf")
    """Entries of the observation before the terms, with the class's own. A config is checked against them,
    unless a class overrides ``_base_obs`` or ``_extend_obs`` without declaring them."""
    added_uids: ClassVar[tuple[str, ...]] = ()
    """Entities that a class adds to the scene. A config is checked against these names too, unless a class overrides
    ``_setup_robot``, ``_prepare_scene`` or ``_setup_sensors`` without declaring them."""
    needed_uids: ClassVar[Mapping[str, str]] = {}
    """Entities that a config must have, each with its kind, such as ``"rigid object"``."""

    @classmethod
    def config_problems(cls, cfg: EmbodiedEnvCfg) -> list[str]:
        """Return the problems of a valid config for this task, one per line."""
        return []

    def __init__(self, cfg: EmbodiedEnvCfg) -> None:
        for name, value in cfg.extensions.items():
            setattr(self, name, value)
        self.output = files.OutputFolder(Path("outputs"))
        super().__init__(cfg)
        self._mirror_map: observations.MirrorMap | None = None
        if cfg.symmetry is not None:
            sizes = {name: term.action_dim for name, term in self.action_manager.terms.items()}
            self._mirror_map = build_mirror_map(cfg.symmetry, self.single_observation_space, sizes)

    def _setup_robot(self) -> None:
        if self.cfg.robot is None:
            raise ConfigError("robot: required, but missing")
        self.sim.add_robot(self.cfg.robot)

    def _prepare_scene(self) -> None:
        cfg, background = self.cfg, [replace(body, body_type="static") for body in self.cfg.background]
        bodies: list[Any] = [*background, *cfg.rigid_object, *cfg.articulation, *cfg.rigid_object_group]
        for entity in (*bodies, *cfg.light.direct):
            self.sim.add(entity)
        if self.cfg.terrain is not None:
            self.sim.add_terrain(self.cfg.terrain)
        if self.cfg.light.indirect is not None:
            self.sim.add_emission_light(self.cfg.light.indirect.emission_light)
        for event in self.cfg.events.values():
            if isinstance(event.func, type) and issubclass(event.func, managers.Functor):
                event.func.prepare_scene(self.sim, event.params)

    def _setup_sensors(self) -> None:
        for sensor in self.cfg.sensor:
            self.sim.add_sensor(sensor)

    def _init_sim_state(self) -> None:
        self._take_robot()
        self._assign_cells(self.all_env_ids)
        self.action_manager = managers.ActionManager(self.cfg.actions, self)
        self.command_manager = managers.CommandManager(self.cfg.commands, self)
        self.event_manager = managers.EventManager(self.cfg.events, self)
        self.observation_manager = managers.ObservationManager(self.cfg.observations, self)
        self.reward_manager = managers.RewardManager(self.cfg.rewards, self)
        self.termination_manager = managers.TerminationManager(self.cfg.terminations, self)
        self.dataset_manager = managers.DatasetManager(self.cfg.dataset, self)
        self.curriculum_manager = managers.CurriculumManager(self.cfg.curriculum, self)
        self.event_manager.apply("startup", self.all_env_ids)

    def _take_robot(self) -> None:
        """Set ``robot``, ``active_part`` and ``active_joint_ids``."""
        assert self.cfg.robot is not None
        self.robot = self.sim.get_robot(self.cfg.robot.uid)
        self.active_part = self._choose_part()
        self.active_joint_ids = self.robot.get_joint_ids(self.active_part)

    def _choose_part(self) -> str | None:
        """Return the control part that the actions move, or None for all joints."""
        robot, parts, ids = self.robot, self.cfg.control_parts, self.cfg.active_joint_ids
        if ids is not None:
            return self._choose_joints(ids)
        if parts is None:
            if "arm" in robot.control_parts:
                return "arm"
            all_or_none = len(robot.driven_ids) in (0, robot.dof)  # none: tendons or muscles move them
            return None if all_or_none else self._choose_joints(robot.driven_ids)
        check_parts(parts, robot.control_parts)
        if len(parts) == 1:
            return parts[0]
        return self._choose_joints([joint for part in parts for joint in robot.get_joint_ids(part)])

    def _choose_joints(self, ids: list[int]) -> str:
        """Make a part of these joints, and return its name."""
        robot = self.robot
        if self.cfg.active_joint_ids is not None and self.cfg.control_parts is not None:
            raise ConfigError("env.active_joint_ids: not together with control_parts, which says the same")
        if not ids or len(set(ids)) < len(ids) or not {*ids} <= {*robot.driven_ids}:
            allowed = ", ".join(f"{joint} ({robot.joint_names[joint]})" for joint in robot.driven_ids)
            raise ConfigError(f"env.active_joint_ids: must be joints with drives, each once: {allowed}. Got {ids}")
        robot.add_part(_ACTIVE, ids)
        return _ACTIVE

    def _action_limits(self) -> tuple[Tensor, Tensor]:
        return self.action_manager.low, self.action_manager.high

    def _join_action(self, action: Mapping[str, Tensor]) -> Tensor:
        if missing := [name for name in self.action_manager.terms if name not in action]:
            raise ValueError(f"actions by name lack {', '.join(missing)}; got {', '.join(action) or 'none'}")
        return torch.cat([action[name] for name in self.action_manager.terms], dim=-1)

    def _restart(self, env_ids: Tensor) -> None:
        self._assign_cells(env_ids)
        self.event_manager.restart()

    def _assign_cells(self, env_ids: Tensor) -> None:
        """Distribute environments [n] over the terrain, if there is one, and put their robots there."""
        if self.sim.terrain is not None:
            self.sim.terrain.assign(self.random, env_ids)
            self.sim.place_on_terrain(env_ids)

    @profiling.section("actions")
    def _step_action(self, action: Tensor) -> None:
        self.action_manager.apply_action(action)

    @profiling.section("task state")
    def _update_sim_state(self) -> None:
        self.command_manager.advance()

    @override
    def advance(self, action: Tensor) -> StepResult:
        self.event_manager.begin_step()
        return super().advance(action)

    @profiling.section("interval events")
    def _apply_interval_events(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> Tensor | None:
        changed = self.event_manager.apply_interval(reward, done, info["success"])
        self._moved = self.command_manager.move(done)
        return changed

    def _base_obs(self) -> dict[str, Tensor]:
        robot = self.robot
        if not (robot.dof and self.base_entries):
            return self._images()
        qpos, qvel, qf = robot.get_qpos(), robot.get_qvel(), robot.get_qf()
        return {"robot/qpos": qpos, "robot/qvel": qvel, "robot/qf": qf} | self._images()

    def _images(self) -> dict[str, Tensor]:
        """Return the cameras' images by slash-separated name."""
        obs = {}
        for uid, sensor in self.sim.sensors.items():
            for kind, image in sensor.get_data().items():
                # All images have channels last, [N, H, W, C].
                obs[f"sensor/{uid}/{kind}"] = image if image.dim() == 4 else image.unsqueeze(-1)
        return obs

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        self.observation_manager.compute(obs)
        if not obs:
            raise ConfigError("env.observations: a robot without joints needs at least one observation term")
        return obs

    def _rewind_observation(self) -> None:
        self.observation_manager.rewind()

    def _observe(self, mask: Tensor, before: TensorDict | None = None) -> TensorDict:
        manager = self.observation_manager
        is_own = is_users(type(self)._extend_obs) or is_users(type(self)._base_obs)  # a user's hook may have state
        if not (is_own or manager.has_state):
            return self.get_obs()
        with manager.changing(mask):
            obs = self.get_obs()
        manager.keep_other_rows(obs, mask, before, is_own)
        return obs

    def _make_spaces(self) -> None:
        with self.observation_manager.leaving_no_trace():
            super()._make_spaces()
        sizes = [size for term in self.action_manager.terms.values() for size in term.choices]
        if sizes and len(sizes) < self.action_manager.total_action_dim:
            raise ConfigError("env.actions: discrete actions (ChoiceTerm) cannot be learned together with numbers")
        if sizes:
            self.single_action_space = Choices(sizes)

    @override
    @profiling.section("info")
    def get_info(self, **kwargs: Any) -> dict[str, Any]:
        info = super().get_info(**kwargs)
        metrics = self.action_manager.metrics | self.curriculum_manager.metrics() | info["metrics"]
        if self.termination_manager.has_terms:
            failed, info["time_out"], ended = self.termination_manager.compute()
            info["fail"] = info["fail"] | failed
            info["success"] = info["success"] & ~info["fail"]
            metrics |= ended
        info["metrics"] = metrics
        return info

    def _info_of_reset(self) -> dict[str, Any]:
        with self.termination_manager.leaving_no_trace():  # its terms are called once a step
            return super()._info_of_reset()

    def _ended(self, obs: TensorDict, info: dict[str, Any]) -> tuple[Tensor, Tensor]:
        terminated, truncated = super()._ended(obs, info)
        return terminated, truncated | info["time_out"] if "time_out" in info else truncated

    def _end_episodes(self, env_ids: Tensor) -> None:
        self.curriculum_manager.end_episodes(env_ids)

    @override
    @profiling.section("rewards")
    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        reward, info["rewards"] = self.reward_manager.compute(obs, action, info)
        return reward

    def _draw_scene(self, env_ids: Tensor) -> None:
        # An evaluation's episodes do not depend on the number of environments.
        if self.random.enumerates_episodes and self.event_manager.has_startup_events:
            self.sim.reset(env_ids)  # as after building
            self.event_manager.apply("startup", env_ids)

    def _initialize_episode(self, env_ids: Tensor) -> None:
        if self.random.enumerates_episodes:
            self._assign_cells(env_ids)  # an evaluation's episode does not depend on earlier ones
        else:
            self.sim.place_on_terrain(env_ids)
        self.event_manager.apply("reset", env_ids)
        if self.sim.terrain is not None and self.sim.robots:
            self.sim.terrain.begin(self.robot.base, env_ids)
        in_order = [self.event_manager, self.command_manager, self.action_manager, self.observation_manager]
        in_order += [self.reward_manager, self.termination_manager, self.curriculum_manager, self.dataset_manager]
        for manager in in_order:
            manager.reset(env_ids)

    def _stateful(self) -> list[object]:
        return [*super()._stateful(), *(term for manager in self._managers().values() for term in manager.stateful())]

    @profiling.section("recording")
    def _record(self, action: Tensor, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        self.dataset_manager.record(action, reward, done, info)

    def _begin_step(self, obs: TensorDict) -> None:
        self.observation_manager.shown = obs
        self.reward_manager.begin_step()
        self.dataset_manager.begin(obs)

    @override
    def number_envs(self, first_env_id: int, group_size: int) -> None:
        now = (self.cfg.first_env_id, self.cfg.group_size)
        if now == (first_env_id, group_size):
            return
        drawn = [name for name, event in self.cfg.events.items() if event.mode == "startup"]
        if drawn:
            raise ConfigError(
                f"env.events.{drawn[0]}: mode 'startup' has drawn already: set first_env_id = {first_env_id} and "
                f"group_size = {group_size} in the config, before the environment is built"
            )
        super().number_envs(first_env_id, group_size)
        self._assign_cells(self.all_env_ids)

    def step_chunk(self, action: Tensor | np.ndarray | Mapping[str, Tensor]) -> StepResult:
        """Advance by the control steps of a chunk of actions [N, H, A]: see ``chunk_env.step_chunk``."""
        # A dataset records the images of every control step.
        return step_chunk(self, action, draws_each_step=self.dataset_manager.is_recording)

    def mirror_map(self) -> observations.MirrorMap:
        """Return the left-right mirror images of the flat observation and of actions, on the CPU."""
        if self._mirror_map is None:
            raise ConfigError(f"no mirror map: the config of {type(self).__name__} has no 'env.symmetry'")
        return self._mirror_map

    @property
    def followed_uid(self) -> str | None:
        """The entity that a default camera moves with; None: it stays."""
        return self.robot.uid if self.robot.base.is_free else None

    def instructions(self) -> list[str]:
        """Return each environment's instruction, N texts; empty if the task has none."""
        return [""] * self.num_envs

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Set the folder of the terms' files; a ``save_path`` is inside it, or in one of the ``allowed`` folders."""
        self.output = files.OutputFolder(folder, allowed)

    def config_data(self) -> dict[str, Any]:
        """Return the content of a config file from which this environment, without added events, can be built again."""
        return config_data(self.cfg, type(self))

    def terms_data(self, terms: Mapping[str, managers.FunctorCfg]) -> dict[str, Any]:
        """Return the content of a block of terms in a config file."""
        return terms_data(terms)

    def add_events(self, cfgs: Mapping[str, managers.EventCfg]) -> None:
        """Add events, by new names, to the config's; call :meth:`reset` before the next step.

        ``func`` is the function or class itself, or the name of a shipped one. ``startup`` events happen at once.
        """
        self.event_manager.add(cfgs)
        self._has_begun = False
        self._owners = self._stateful()

    def start_recording(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        """Let the recording events write videos ``<folder>/<name>_<label>.mp4`` of the first ``num_episodes``."""
        for recorder in recorders_in(self.event_manager.functors):
            recorder.start(folder, label, num_episodes)

    def stop_recording(self) -> list[Path]:
        """Finish the videos and return their paths."""
        return [path for recorder in recorders_in(self.event_manager.functors) if (path := recorder.recording.stop())]

    def recorded(self) -> video.Footage:
        """Return the trajectories recorded since ``start_recording``."""
        return sum((each.recording.footage for each in recorders_in(self.event_manager.functors)), video.Footage())

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"managers": {n: manager.state_dict() for n, manager in self._managers().items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> bool:
        continues = super().load_state_dict(state)
        for name, manager in self._managers().items():
            manager.load_state_dict(state["managers"][name])
        functors = [functor for manager in self._managers().values() for functor in manager.functors]
        saved_by_default = [functor for functor in functors if type(functor).state_dict is managers.Functor.state_dict]
        return all(map(is_all_saved, saved_by_default)) and continues

    def _managers(self) -> dict[str, managers.Manager]:
        return {name: value for name, value in vars(self).items() if isinstance(value, managers.Manager)}

    @override
    def close(self) -> None:
        for manager in self._managers().values():
            for functor in manager.functors:
                functor.close()
        super().close()


class SceneEnv(EmbodiedEnv):
    """The scene of an MJCF file as it is; actions are its actuators' controls. A task adds the reward.

    For example::

        @register_env("MySwimmerRL", max_episode_steps=500)
        class MySwimmer(SceneEnv):
            config_defaults = {**SceneEnv.config_defaults, "scene": "my_swimmer.xml"}

            def get_reward(self, obs, action, info):
                return self.qvel[:, 0].float()

    An assembled scene has a ground, lights, drives and solver settings of ours, so that a robot there does not move as
    its maker's whole scene does. Here the physics is MuJoCo's of the file, bit for bit: timestep, integrator,
    solver, contacts and actuators. Managers, videos, checkpoints and evaluation are as in every environment. There
    is no ``robot``; a body can be named where a camera follows an entity, and by ``get_object_pose``.
    """

    config_defaults: ClassVar[Mapping[str, Any]] = {"env": {"actions": {"control": {"func": "ActuatorTerm"}}}}
    base_entries: ClassVar[tuple[str, ...]] = ("qpos", "qvel")
    added_uids = ()
    reset_noise_scale: NonNegativeFloat = 0.0
    """Half the width of the uniform noise on the first positions and velocities."""

    @property
    def robot(self) -> Robot:  # type: ignore[override]  # there is none to set
        """A robot does not exist here: raises a ConfigError."""
        raise ConfigError(f"{type(self).__name__}: the scene of a file has no robot, which one of the terms asks for")

    @property
    @cached_per_state
    def qpos(self) -> Tensor:
        """Positions, [N, nq] float64."""
        return self.sim.backend.read_exact("qpos")

    @property
    @cached_per_state
    def qvel(self) -> Tensor:
        """Velocities, [N, nv] float64."""
        return self.sim.backend.read_exact("qvel")

    @property
    @override
    def step_dt(self) -> float:
        """Duration of a control step, s: the file's timestep times ``sim_steps_per_control``."""
        return float(self.sim.model.opt.timestep) * self.cfg.sim_steps_per_control

    @property
    @override
    def followed_uid(self) -> str | None:
        model = self.sim.model
        first = model.body(model.jnt_bodyid[0]).name if model.njnt else ""
        return first if first and self.sim.get_body(first).travels else None

    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions [n, nq] and velocities [n, nv] of new episodes, float64.

        By default they are the file's keyframe 0, or its reference pose, with noise. Random numbers come
        from ``self.random``.
        """
        first, scale = (self._first_qpos, self._first_qvel), self.reset_noise_scale
        if scale == 0.0:
            qpos, qvel = (state.expand(len(env_ids), -1) for state in first)
        else:
            qpos, qvel = (state + self.random.uniform(env_ids, -scale, scale, state.shape[1]) for state in first)
        return qpos, qvel

    def _setup_robot(self) -> None:
        if self.cfg.scene is None:
            raise ConfigError("scene: required, but missing: the MJCF file of the whole scene")
        self.sim.use_scene_file(self.cfg.scene)

    def _take_robot(self) -> None:
        model = self.sim.model
        self._first_qpos = torch.tensor(model.key_qpos[:1], dtype=torch.float64, device=self.device)
        self._first_qvel = torch.tensor(model.key_qvel[:1], dtype=torch.float64, device=self.device)
        self.active_part, self.active_joint_ids = None, []

    def _base_obs(self) -> dict[str, Tensor]:
        return {"qpos": self.qpos.float(), "qvel": self.qvel.float()} | self._images()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        backend = self.sim.backend
        with self.random.stream("hooks.initial_state"):
            qpos, qvel = self.initial_state(env_ids)
        backend.write("qpos", slice(None), qpos, env_ids)
        backend.write("qvel", slice(None), qvel, env_ids)
        super()._initialize_episode(env_ids)
