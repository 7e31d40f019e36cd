"""Any Gymnasium environment as one that our learner trains in. Legend: N envs, T rollout steps, A action size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.wrappers.gymnasium_env.autoreset import SameStepReset
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import OWN_FORM, RENDER_MODE, GymnasiumEnvCfg, file_data
from embodichain.lab.gym.wrappers.gymnasium_env.member import (
    SUCCESS_KEYS,
    control_period,
    image_of,
    positive_number,
    success_of,
)
from embodichain.lab.gym.wrappers.gymnasium_env.recording import EpisodeRecorder, NoImageError
from embodichain.lab.gym.wrappers.gymnasium_env.spaces import ActionAdapter, ObservationAdapter
from embodichain.lab.gym.wrappers.gymnasium_env.vectorization import make_vector_env
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.errors import placed
from embodichain.utils.machine import check_memory
from embodichain.utils.random import CounterRandom
from embodichain.utils.video import Footage

StepResult = tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]
"""Observation, reward [N], terminated [N], truncated [N], info."""

_SEED_BITS = 7, 24  # of the two draws that make a seed
_MIN_BYTES = 5_000  # of an environment: its object and its spaces
_RENDER_FPS = 30.0  # of videos, where the environment does not say


class GymnasiumEnv:
    """N Gymnasium environments that step together, reset themselves and return tensors.

    Every episode begins with its own seed: a function of the config's seed, the environment's global id and the
    episode's number, and in an evaluation of the episode's number alone. An environment's own vector form, which draws
    by itself, gets a seed when all of its environments are reset.

    Attributes:
        cfg: the config.
        random: the streams that the episodes' seeds are drawn from.
        elapsed_steps: [N] int64.
        step_dt: the time between two actions, s, which many environments have as ``dt``; None: not known.
        render_fps: images a second of its videos: its metadata's, or 30.

    Raises:
        ConfigError: its spaces, or the way it resets, are not supported.
    """

    device = torch.device("cpu")

    def __init__(self, cfg: GymnasiumEnvCfg) -> None:
        check_memory("num_envs", f"{cfg.num_envs:,} environments", cfg.num_envs * _MIN_BYTES)
        self.cfg, self.num_envs = cfg, cfg.num_envs
        self.random = CounterRandom(cfg.seed, cfg.num_envs, "cpu", cfg.first_env_id, cfg.group_size)
        self.elapsed_steps = torch.zeros(cfg.num_envs, dtype=torch.int64)
        self._knows_success = False
        self.current_rollout_step = 0
        self._slots: Iterator[tuple[Tensor, ...]] = iter(())
        self._obs: TensorDict | None = None  # that the next step starts from
        self._has_members = cfg.vectorization != OWN_FORM
        self._envs = make_vector_env(cfg)
        try:
            with placed(f"{cfg.id}: "):
                self._observe = ObservationAdapter(self._envs.single_observation_space)
                self._act = ActionAdapter(self._envs.single_action_space)
                self._resetting = SameStepReset(self._envs, self._observe)
            self.step_dt = self._control_period()
        except BaseException:
            self._envs.close()
            raise
        self.single_observation_space = self._observe.space
        self.flattened_observation_space = self._observe.flat_space
        self.single_action_space = self._act.space
        self.action_space = gym.vector.utils.batch_space(self._act.space, self.num_envs)
        self.render_fps = positive_number(self._envs.metadata.get("render_fps")) or _RENDER_FPS
        self._recorder = EpisodeRecorder(self.first_image, self.render_fps)
        self._image_shape: tuple[int, ...] | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Begin new episodes; return ``(obs, info)`` of all environments.

        Args:
            seed: start the episodes' seeds again from this one.
            options: as :meth:`~embodichain.lab.gym.envs.BaseEnv.reset` takes them.
        """
        options = options or {}
        if seed is not None:
            self.random.reseed(seed, options.get("enumerate_episodes", False), options.get("share", (0, 1)))
        rows = torch.ones(self.num_envs, dtype=torch.bool)
        if "reset_ids" in options:
            rows = torch.zeros_like(rows).index_fill(0, torch.as_tensor(options["reset_ids"]), True)
        if rows.all():
            self.random.align_groups()
            seeds = self._next_seeds(rows)
            self._obs = self._observe(self._envs.reset(seed=seeds if self._has_members else seeds[0])[0])
            if not self.random.enumerates_episodes:
                self._check_groups(self._obs)
        elif rows.any():
            self._obs = self._resetting.reset_rows(self._present_obs(), rows, self._seeds_of_members(rows))
        self.elapsed_steps = self.elapsed_steps.masked_fill(rows, 0)
        if rows[0]:
            self._recorder.begin_episode()
        never = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._present_obs(), self._info(never, never)

    def step(self, action: Tensor) -> StepResult:
        """Advance every environment by one control step; see ``VecEnv.step``.

        Args:
            action: [N, A], clipped to the environment's bounds.

        Raises:
            RuntimeError: ``reset`` was never called.
        """
        self._present_obs()
        given, rewards, terminations, truncations, infos = self._envs.step(self._act(action))
        terminated, truncated = torch.from_numpy(terminations.copy()), torch.from_numpy(truncations.copy())
        done = terminated | truncated
        obs = self._observe(given)
        self.elapsed_steps = self.elapsed_steps + 1
        success = self._success(infos)
        info = self._info(success, terminated & ~success)
        info["final_obs"] = self._resetting.final_obs(obs, infos, done)
        self._recorder.add_image()
        if done.any():
            obs = self._resetting.begin_episodes(obs, done, self._seeds_of_members(done))
            self.elapsed_steps = self.elapsed_steps.masked_fill(done, 0)
        self._obs = obs
        if done[0]:
            self._recorder.begin_episode()
        reward = torch.from_numpy(np.asarray(rewards, dtype=np.float32).copy())
        self._write_rollout(reward, done, terminated, truncated)
        return obs, reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write the next steps into a rollout [N, T+1]; see ``VecEnv.set_rollout_buffer``."""
        names = ("reward", "done", "terminated", "truncated")
        self._slots = zip(*(rollout[name].unbind(1) for name in names), strict=True)
        self.current_rollout_step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data, not copied; without the environments' own where that is not known."""
        states: Sequence[Any] = self._envs.call("copy_state") if self._has_members else [_NOT_GIVEN]
        unknown = next((state for state in states if isinstance(state, str)), None)
        return {
            "random": self.random.state_dict(),
            "elapsed_steps": self.elapsed_steps,
            "obs": self._obs,
            "knows_success": self._knows_success,
            "members": unknown or list(states),
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Load what :meth:`state_dict` returned.

        Returns:
            Whether the episodes continue. If not, which is logged, ``reset`` begins the next ones.
        """
        self.random.load_state_dict(state["random"])
        self._knows_success = state["knows_success"]
        members = state["members"]
        problem = members if isinstance(members, str) else self._restore(members)
        if problem:
            logger.log_info(
                f"{self.cfg.id}: new episodes begin, since the state of these cannot be restored: {problem}"
            )
            return False
        self.elapsed_steps, self._obs = state["elapsed_steps"], state["obs"]
        return True

    def _restore(self, members: Sequence[Any]) -> str:
        """Restore the environments' states; return the reason if one cannot be, else ""."""
        if not self._has_members:
            return _NOT_GIVEN
        self._envs.set_attr("restored", members)
        return next(filter(None, self._envs.get_attr("restored")), "")

    def number_envs(self, first_env_id: int, group_size: int) -> None:
        """Change ``first_env_id`` and ``group_size``; call :meth:`reset` before the next step."""
        self.cfg = replace(self.cfg, first_env_id=first_env_id, group_size=group_size)
        self.random = CounterRandom(self.cfg.seed, self.num_envs, "cpu", first_env_id, group_size)
        self._obs = None

    def config_data(self) -> dict[str, Any]:
        """Return the content of a config file from which these environments can be built again, and their ``seed``."""
        return file_data(self.cfg) | {"seed": self.cfg.seed}

    def terms_data(self, terms: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configs of no terms, since a Gymnasium environment has none."""
        assert not terms  # it takes no events
        return {}

    def knows_success(self) -> bool:
        """Return whether an ``info`` has had ``is_success`` or ``success`` by now."""
        return self._knows_success

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Nothing is written but videos, whose folder :meth:`start_recording` is given."""

    def start_recording(self, folder: Path, label: str) -> None:
        """Write a video of the next episode of the first environment, if it renders ``rgb_array``."""
        if self.cfg.records and self.cfg.kwargs.get("render_mode") == RENDER_MODE:
            self._recorder.start(folder, label)

    def stop_recording(self) -> list[Path]:
        """Finish the video and return its path, if there is one."""
        return self._recorder.stop()

    def recorded(self) -> Footage:
        """Return what has been recorded since :meth:`start_recording`."""
        return self._recorder.footage

    def first_image(self) -> np.ndarray:
        """Return an image [H, W, 3] uint8 of the first environment, as its ``render`` makes it.

        Raises:
            NoImageError: it does not make one, or one of another size than the first was; the message says why.
        """
        image = self._envs.call("first_image")[0] if self._has_members else image_of(lambda: self._envs.render()[0])
        if isinstance(image, str):
            raise NoImageError(f"{self.cfg.id}: {image}")
        self._image_shape = self._image_shape or image.shape
        if image.shape != self._image_shape:
            sizes = " to ".join(str(list(shape[:2])) for shape in (self._image_shape, image.shape))
            raise NoImageError(f"{self.cfg.id}: the size of its images changes from {sizes}")
        return image

    def _control_period(self) -> float | None:
        if not self._has_members:
            return control_period(self._envs.unwrapped)
        period: float | None = self._envs.get_attr("control_period")[0]
        return period

    def close(self) -> None:
        """Release the environments' resources."""
        self._recorder.stop()
        self._envs.close()

    def _present_obs(self) -> TensorDict:
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        return self._obs

    def _next_seeds(self, rows: Tensor) -> list[int]:
        """Begin the next episode in the environments of a mask [N]; return its seed, 0 of the others, [N]."""
        ids = rows.nonzero().squeeze(1)
        self.random.next_episode(ids)
        with self.random.stream("episode"):
            drawn = self.random.uniform(ids, 0.0, 1.0, len(_SEED_BITS)).double()
        high, low = _SEED_BITS
        seeds = torch.zeros(self.num_envs, dtype=torch.int64)
        seeds[ids] = ((drawn[:, 0] * 2**high).long() << low) + (drawn[:, 1] * 2**low).long()
        return seeds.tolist()

    def _check_groups(self, obs: TensorDict) -> None:
        """Raise a ConfigError if the episodes of a group's members begin with different observations [N]."""
        size = self.cfg.group_size
        for name in obs.keys(include_nested=True, leaves_only=True) if size > 1 else ():
            rows = obs.get(name).flatten(1)
            first = rows[::size].repeat_interleave(size, 0)
            differs = (rows != first) & ~(rows.isnan() & first.isnan())
            if differs.any():
                i, column = differs.nonzero()[0].tolist()
                path = name if isinstance(name, str) else "/".join(name)
                raise ConfigError(
                    f"algorithm.cfg.group_size: the episodes of a group must begin equal, and reset(seed=...) of "
                    f"{self.cfg.id} returned {rows[i, column]:g} in environment {i} and {first[i, column]:g} in "
                    f"environment {i // size * size}, number {column} of its '{path}': its reset must draw from the "
                    "seed alone"
                )

    def _seeds_of_members(self, rows: Tensor) -> list[int] | None:
        seeds = self._next_seeds(rows)
        return seeds if self._has_members else None

    def _success(self, infos: Mapping[str, Any]) -> Tensor:
        """Return which environments' ``info`` says success, [N] bool."""
        success = np.zeros(self.num_envs, dtype=np.bool_)
        for source in (infos, infos.get("final_info", {})):
            for key in SUCCESS_KEYS:
                if key in source:
                    said = source.get(f"_{key}", np.ones(self.num_envs, dtype=np.bool_))
                    values = source[key]
                    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
                        self._knows_success |= bool(said.any())
                        success[said] = values[said] > 0.0
                        continue
                    for i in said.nonzero()[0]:  # of arrays, or None where it is not known
                        if (value := values[i]) is not None:
                            self._knows_success = True
                            success[i] = success_of(key, value) > 0.0
        return torch.from_numpy(success)

    def _info(self, success: Tensor, fail: Tensor) -> dict[str, Any]:
        return {
            "success": success,
            "fail": fail,
            "elapsed_steps": self.elapsed_steps,
            "rewards": {},
            "metrics": {},
        }

    def _write_rollout(self, *values: Tensor) -> None:
        slots = next(self._slots, None)
        if slots is not None:
            for slot, value in zip(slots, values, strict=True):
                slot.copy_(value)
            self.current_rollout_step += 1


_NOT_GIVEN = "the environment's own vector form does not give it"
