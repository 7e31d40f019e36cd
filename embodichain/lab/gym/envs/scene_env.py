"""Any MJCF scene as a task. Shapes: N environments, n in ``env_ids``, nq and nv MuJoCo's positions and velocities."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.sim.objects import Robot, cached_per_state
from embodichain.utils import ConfigError


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
        qpos, qvel = self._first_qpos.expand(len(env_ids), -1), self._first_qvel.expand(len(env_ids), -1)
        scale = self.reset_noise_scale
        if scale == 0.0:
            return qpos, qvel
        return (
            qpos + self.random.uniform(env_ids, -scale, scale, qpos.shape[1]).double(),
            qvel + self.random.uniform(env_ids, -scale, scale, qvel.shape[1]).double(),
        )

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
        with self.random.stream("initial_state"):
            qpos, qvel = self.initial_state(env_ids)
        backend.write("qpos", slice(None), qpos, env_ids)
        backend.write("qvel", slice(None), qvel, env_ids)
        super()._initialize_episode(env_ids)
