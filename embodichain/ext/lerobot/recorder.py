"""Recorders of datasets. Shapes: N environments, n ended ones, T steps, J joints, A action size."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.ext.lerobot.dataset import LeRobotWriter, check_parquet
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg
from embodichain.lab.sim.rows import row_numbers
from embodichain.utils import ConfigError, logger, observations, unknown_name
from embodichain.utils.files import SavePath

_ROBOT = ("fpath", "robot_type", "ur_type", "urdf_cfg")
_BLOCKS = ("actions", "commands", "observations", "rewards", "terminations", "extensions", "sim_steps_per_control")


class LeRobotRecorder(Functor):
    """Write every finished episode of every environment into a LeRobot dataset (format v3.0).

    A frame has ``observation.state`` (the observation's entry ``state``, else the joint positions, rad or m),
    ``observation.images.<camera>``, ``action``, and of the step that follows ``next.reward``, ``next.done`` and
    ``next.success``. With action terms of mode ``post``, ``action`` is the targets as they make them, by kind in
    alphabetical order. An episode's description has ``success``.
    With ``environment_state``, which ``algorithm.cfg.demonstrations`` needs, it also has
    ``observation.environment_state``: all numbers of the observation, as policies read them; and the description has
    ``environment``: the meaning of actions, observations and rewards, as JSON.
    If a file cannot be written, a warning is logged and recording ends; the run continues.

    Args:
        robot_meta: ``robot_type`` names the robot; ``observation.vision`` has the cameras by name (default: all with
            colour).
        instruction: ``lang``: the task in words, where the environment has no instruction for the episode.
        extra: written into each episode's description, as text.
        use_videos: record the cameras.
        export_success_only: leave out the episodes that fail.
        environment_state: write ``observation.environment_state`` and ``environment``, too.
        num_episodes: number E of an evaluation's episodes, of which no further one is written; None: all.
        save_path: folder of the dataset inside the run's folder; None: ``datasets/<robot>_<date>_<time>``. If that
            dataset exists, ``_2`` and so on is appended.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        params = cfg.params
        meta = params.get("robot_meta", {})
        self._cameras = _cameras(meta, env) if params.get("use_videos", True) else []
        self._task = params.get("instruction", {}).get("lang", "")
        self._success_only = params.get("export_success_only", False)
        self._has_environment = params.get("environment_state", False)
        self._extra = {"extra": str(params["extra"])} if params.get("extra") else {}
        self._save_path = params.get("save_path") or f"datasets/{env.robot.uid}_{datetime.now():%Y%m%d_%H%M%S}"
        self._robot_type = meta.get("robot_type", env.robot.uid)
        check_parquet()
        for uid in self._cameras:
            camera = env.sim.get_sensor(uid).cfg
            if camera.width % 2 or camera.height % 2:
                raise ConfigError(f"LeRobotRecorder: sensor '{uid}': videos need an even width and height")
        self._names: list[str] | None = None
        self._writer: LeRobotWriter | None = None
        self._is_recording = True
        self._frames: list[list[dict[str, Tensor]]] = [[] for _ in range(env.num_envs)]
        self._before: dict[str, Tensor] = {}

    def __call__(
        self,
        env: TermEnv,
        action: Tensor,
        reward: Tensor,
        done: Tensor,
        info: dict[str, Any],
        robot_meta: dict[str, Any] | None = None,
        instruction: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
        use_videos: bool = True,
        export_success_only: bool = False,
        environment_state: bool = False,
        num_episodes: PositiveInt | None = None,
        save_path: SavePath | None = None,
    ) -> None:
        """Record one step, and write the episodes that it ends."""
        if not self._is_recording:
            return
        if targets := env.action_manager.processed_action:
            action = torch.cat([targets[kind] for kind in sorted(targets)], dim=1)
        step = {"action": action, "next.reward": reward, "next.done": done, "next.success": info["success"]}
        frame = self._before | step
        for i, frames in enumerate(self._frames):
            frames.append({name: value[i] for name, value in frame.items()})
        if num_episodes is not None and env.random.enumerates_episodes:
            done = done & (env.random.stream_ids < num_episodes)
        for i in done.nonzero().squeeze(1).tolist():
            self._write(i)

    @override
    def reset(self, env_ids: Tensor) -> None:
        for i in row_numbers(env_ids).tolist():
            self._frames[i] = []

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"_frames": self._frames, "_before": self._before}  # each process writes into its own folder

    @override
    def close(self) -> None:
        if self._writer is not None and self._is_recording:
            try:
                self._writer.join()
            except OSError as error:
                logger.log_warning(f"dataset {self._writer.root}: its files stay many, one for an episode: {error}")
        self._writer = None

    def begin(self, obs: TensorDict) -> None:
        """Store the observation after resets, from which the next step starts."""
        images = {f"observation.images.{uid}": image_of(obs, uid) for uid in self._cameras}
        self._names = self.env.robot.joint_names if obs.get("state", None) is None else None
        self._before = {"observation.state": state_of(self.env, obs), **images}
        if self._has_environment:
            self._before["observation.environment_state"] = observations.flat_input(obs)

    def _describe(self, size: int) -> dict[str, dict[str, Any]]:
        """Return the features of the dataset, with actions of this size."""
        state_size = self._before["observation.state"].shape[1]
        names = self._names or [f"state_{i}" for i in range(state_size)]
        features: dict[str, dict[str, Any]] = {
            "observation.state": {"dtype": "float32", "shape": [state_size], "names": names},
            "action": {"dtype": "float32", "shape": [size], "names": [f"action_{i}" for i in range(size)]},
            "next.reward": {"dtype": "float32", "shape": [1], "names": None},
            "next.done": {"dtype": "bool", "shape": [1], "names": None},
            "next.success": {"dtype": "bool", "shape": [1], "names": None},
        }
        if self._has_environment:
            names = observations.column_names(self.env.single_observation_space)
            features["observation.environment_state"] = {"dtype": "float32", "shape": [len(names)], "names": names}
        for uid in self._cameras:
            cfg = self.env.sim.get_sensor(uid).cfg
            shape = [cfg.height, cfg.width, 3]
            features[f"observation.images.{uid}"] = {
                "dtype": "video",
                "shape": shape,
                "names": ["height", "width", "channels"],
            }
        return features

    def _write(self, i: int) -> None:
        frames, self._frames[i] = self._frames[i], []
        success = bool(frames and frames[-1]["next.success"])
        if not self._is_recording or not frames or (self._success_only and not success):
            return
        arrays: dict[str, np.ndarray] = {
            name: torch.stack([frame[name] for frame in frames]).cpu().numpy() for name in frames[0]
        }
        try:
            if self._writer is None:
                self._writer = self._begin(arrays["action"].shape[1])
            task = self.env.instructions()[i] or self._task
            self._writer.add_episode(arrays, task, {"success": success, **self._extra})
        except (OSError, ValueError) as error:
            folder = self.env.output.place(self._save_path) if self._writer is None else self._writer.root
            logger.log_warning(f"dataset {folder} could not be written, recording ends: {error}")
            self._is_recording = False

    def _begin(self, action_size: int) -> LeRobotWriter:
        """Create the dataset in the run's folder."""
        if self._has_environment:
            self._extra["environment"] = json.dumps(task_record(self.env.config_data()))
        wanted = folder = self.env.output.place(self._save_path)
        count = 1
        while LeRobotWriter.is_there(folder):
            count += 1
            folder = wanted.with_name(f"{wanted.name}_{count}")
        if folder != wanted:
            logger.log_info(f"{wanted} is there already: the dataset is {folder}")
        rate = 1.0 / self.env.step_dt
        if abs(round(rate) / rate - 1.0) > 1e-3:
            logger.log_warning(f"dataset {folder}: {rate:.4g} frames a second become {round(rate)}, a whole number")
        return LeRobotWriter(folder, round(rate), self._robot_type, self._describe(action_size))


def state_of(env: TermEnv, obs: TensorDict) -> Tensor:
    """Return the robot's state [N, S] in a dataset: the observation's entry ``state``, else the joint positions."""
    state: Tensor | None = obs.get("state", None)
    return env.robot.get_qpos() if state is None else state


def image_of(obs: TensorDict, uid: str) -> Tensor:
    """Return a camera's colours [N, H, W, 3]; a task may give them as ``image/<uid>``."""
    image: Tensor | None = obs.get(("image", uid), None)
    return obs["sensor", uid, "color"] if image is None else image


def colour_cameras(env: TermEnv) -> list[str]:
    """Return the names of the cameras with colour."""
    return [uid for uid, camera in env.sim.sensors.items() if camera.cfg.enable_color]


def _cameras(meta: dict[str, Any], env: TermEnv) -> list[str]:
    """Return the cameras to record; ConfigError where a named one does not exist or has no colour."""
    there = colour_cameras(env)
    named = meta.get("observation", {}).get("vision")
    for uid in named or []:
        if uid not in there:
            raise ConfigError(f"LeRobotRecorder: robot_meta.observation.vision: {unknown_name('camera', uid, there)}")
    return there if named is None else list(named)


def task_record(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a whole config that determines actions, observations, rewards and ends of episodes."""
    env, robot = config["env"], config["robot"]
    blocks = {name: env[name] for name in _BLOCKS if name in env}
    return {
        "id": config["id"],
        "robot": {name: robot[name] for name in _ROBOT if name in robot},
        "env": blocks | {"sim_cfg": {"physics_dt": env["sim_cfg"]["physics_dt"]}},
    }
