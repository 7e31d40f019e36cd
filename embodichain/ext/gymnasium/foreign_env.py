"""Environments of other libraries as ones that our learner trains in: their config and their base.

Legend: N envs, T rollout steps, A action size.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field, PositiveInt
from tensordict import TensorDict
from torch import Tensor

from embodichain.ext.gymnasium.spaces import ActionAdapter, InfoReader, ObservationAdapter
from embodichain.lab.gym.envs.managers.record import EpisodeVideo, Recording
from embodichain.lab.sim.random import CounterRandom
from embodichain.utils import CommandFailedError, ConfigError, configclass, field, logger, placed, replace, to_dict
from embodichain.utils.state import declared_state, load_attributes
from embodichain.utils.video import Footage

StepResult = tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]
"""Observation, reward [N], terminated [N], truncated [N], info."""
RawStep = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]
"""A step as Gymnasium's vector environments return it; for infos the numbers in them, [N] by name."""

RENDER_MODE = "rgb_array"
"""``render_mode`` of environments that make images."""
FILE_KEYS = ("id", "kwargs", "num_envs", "max_episode_steps", "vectorization")
"""Keys of a config's file."""
_SEED_BITS = 7, 24  # of the two draws that make a seed
_MOST_IMAGES = 400  # of a video


@configclass
class ForeignEnvCfg:
    """The config of N environments of another library, with the methods of ``TaskCfg``."""

    id: str
    """``"gymnasium:HalfCheetah-v5"``, ``"envpool:HopperHop-v1"``; with a package that registers it,
    ``"gymnasium:package:Name-v0"``."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor. With ``"render_mode": "rgb_array"`` evaluations record videos."""
    num_envs: PositiveInt = 1
    """Environments that step side by side."""
    max_episode_steps: PositiveInt | None = None
    """Time limit in steps; null: the registered one."""
    seed: int = 1
    """Seed of the episodes' seeds. A training has its own."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size begin equal episodes. A training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment. A training sets it."""
    records: bool = True
    """Whether ``start_recording`` records a video, where there are images."""

    def for_run(self, seed: int, num_envs: int, **simulation: Any) -> Self:
        """Return the config of a run's environments, which have no simulation of ours."""
        return replace(self, seed=seed, num_envs=num_envs)

    def for_training(self, events: dict[str, Any], group_size: int) -> Self:
        """Return the config of a training, which records no videos and has no events."""
        return replace(self.without_records(), group_size=group_size)

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> Self:
        """Return the config with an evaluation's number of environments."""
        return replace(self, num_envs=num_envs)

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes."""
        return replace(self, num_envs=num_envs, first_env_id=first_env_id)

    def without_records(self) -> Self:
        """Return the config without videos; the environment may need its ``render_mode`` for its observations."""
        return replace(self, records=False)

    def with_images(self) -> Self:
        """Return the config of environments that make images, for others to record."""
        return replace(self, kwargs=self.kwargs | {"render_mode": RENDER_MODE}, records=False)


class ForeignEnv(ABC):
    """N environments that step together, reset themselves and return tensors.

    Every episode begins with its own seed: a function of the config's seed, the environment's global id and the
    episode's number, and in an evaluation of the episode's number alone.

    Args:
        observation_space, action_space: of one environment.

    Attributes:
        elapsed_steps: [N] int64.
        step_dt: the time between two actions, s; None: not known.
        render_fps: images a second of its videos.
    """

    device = torch.device("cpu")
    step_dt: float | None = None
    render_fps = 30.0

    def __init__(
        self, cfg: ForeignEnvCfg, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> None:
        self.cfg, self.num_envs = cfg, cfg.num_envs
        self.random = CounterRandom(cfg.seed, cfg.num_envs, "cpu", cfg.first_env_id, cfg.group_size)
        self.elapsed_steps = torch.zeros(cfg.num_envs, dtype=torch.int64)
        self.current_rollout_step = 0
        self._slots: Iterator[tuple[Tensor, ...]] = iter(())
        self._obs: TensorDict | None = None  # that the next step starts from
        self._infos = InfoReader(cfg.num_envs)
        with placed(f"{cfg.id}: "):
            self._observe = ObservationAdapter(observation_space)
            self._act = ActionAdapter(action_space)
        self.single_observation_space = self._observe.space
        self.flattened_observation_space = self._observe.flat_space
        self.single_action_space = self._act.space
        self.action_space = gym.vector.utils.batch_space(self._act.space, self.num_envs)
        self._begins = False  # the first environment's episode
        self._recording = Recording()

    @abstractmethod
    def _reset_all(self) -> Any:
        """Begin new episodes everywhere; return the batched observation."""

    def _start_reset(self, rows: Tensor) -> None:  # noqa: B027
        """Start a reset of environments [n] in other threads, if there are any; ``_reset_rows`` follows."""

    @abstractmethod
    def _reset_rows(self, rows: Tensor) -> TensorDict:
        """Reset environments [n] int64, if that has not started, and return their observations [n]."""

    @abstractmethod
    def _step(self, action: np.ndarray) -> RawStep:
        """Advance every environment by an action [N, ...], without any reset."""

    @abstractmethod
    def _render(self) -> Any:
        """Return an image [H, W, 3] uint8 of the first environment, or the reason why there is none."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments' resources."""

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
        if (env_ids := options.get("reset_ids")) is not None:
            ids = torch.as_tensor(env_ids)
            rows = torch.zeros_like(rows).index_fill(0, ids if len(ids) else ids.long(), True)
        if rows.all():
            self.random.align_groups()
            self.random.next_episode(torch.arange(self.num_envs))
            self._obs = self._observe(self._reset_all())
            self._infos.begin(is_evaluation=self.random.enumerates_episodes)
            if not self.random.enumerates_episodes:
                self._check_groups(self._obs)
        elif rows.any():
            self._obs = self._with_new_episodes(self._present_obs(), rows.nonzero().squeeze(1))
        self.elapsed_steps = self.elapsed_steps.masked_fill(rows, 0)
        self._begins |= bool(rows[0])
        return self._present_obs(), self._info(None, torch.zeros_like(rows))

    def step(self, action: Tensor) -> StepResult:
        """Advance every environment by one control step; see ``VecEnv.step``.

        Args:
            action: [N, A], clipped to the environment's bounds.
        """
        self._present_obs()
        if self._begins:  # now, since an episode that is not played is not shown
            self._recording.add(self.image)
        raw, rewards, terminations, truncations, infos = self._step(self._act(action))
        ends = np.logical_or(terminations, truncations)
        ended = torch.from_numpy(np.flatnonzero(ends))
        terminated, truncated = (torch.from_numpy(np.asarray(flags, np.bool_)) for flags in (terminations, truncations))
        done = torch.from_numpy(ends)
        if len(ended) and self._recording.video is None:  # whose image shows the last state
            self._start_reset(ended)
        self.elapsed_steps = self.elapsed_steps + 1
        info = self._info(infos, terminated)
        reward = torch.from_numpy(rewards.astype(np.float32))
        self._recording.add_step(reward, done, info["success"])
        self._recording.add(self.image)
        obs = info["final_obs"] = self._observe(raw)
        self._write_rollout(reward, done, terminated, truncated)
        if len(ended):
            self.elapsed_steps = self.elapsed_steps.masked_fill(done, 0)
            obs = self._with_new_episodes(obs, ended)
        self._obs, self._begins = obs, bool(ends[0])
        return obs, reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write the next steps into a rollout [N, T+1]; see ``VecEnv.set_rollout_buffer``."""
        names = ("reward", "done", "terminated", "truncated")
        self._slots = zip(*(rollout[name].unbind(1) for name in names), strict=True)
        self.current_rollout_step = 0
        self._infos.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the episodes' seeds as plain data, not copied."""
        return {"random": declared_state(self.random), "knows_success": self._infos.knows_success}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Load what :meth:`state_dict` returned.

        Returns:
            False: the episodes do not continue, which is logged, and ``reset`` begins the next ones.
        """
        load_attributes(self.random, state["random"])
        self._infos.knows_success = state["knows_success"]
        logger.log_info(f"{self.cfg.id}: new episodes begin: the state of other libraries' environments is not saved")
        return False

    def number_envs(self, first_env_id: int, group_size: int) -> None:
        """Change ``first_env_id`` and ``group_size``; call :meth:`reset` before the next step."""
        self.cfg = replace(self.cfg, first_env_id=first_env_id, group_size=group_size)
        self.random = CounterRandom(self.cfg.seed, self.num_envs, "cpu", first_env_id, group_size)
        self._obs = None

    def config_data(self) -> dict[str, Any]:
        """Return the content of a config file from which these environments can be built again, and their ``seed``."""
        return file_data(self.cfg) | {"seed": self.cfg.seed}

    def terms_data(self, terms: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configs of no terms, since the environments have none."""
        assert not terms  # it takes no events
        return {}

    def knows_success(self) -> bool:
        """Return whether an ``info`` has had ``is_success`` or ``success`` by now."""
        return self._infos.knows_success

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:  # noqa: B027
        """Nothing is written but videos, whose folder :meth:`start_recording` is given."""

    def start_recording(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        """Write a video of the first environment from its next episode on, if it renders ``rgb_array``."""
        if self.cfg.records and self.cfg.kwargs.get("render_mode") == RENDER_MODE:
            path = folder / f"render_{label}.mp4"
            self.film(EpisodeVideo(path, self, self.render_fps, num_episodes=num_episodes, max_frames=_MOST_IMAGES))

    def film(self, video: EpisodeVideo) -> None:
        """Add the first environment's states to a video from its next episode on."""
        self._recording.start(video)

    def stop_recording(self) -> list[Path]:
        """Finish the video and return its path, if there is one."""
        path = self._recording.stop()
        return [] if path is None else [path]

    def recorded(self) -> Footage:
        """Return what has been recorded since :meth:`start_recording`."""
        return self._recording.footage

    def image(self, env_id: int = 0) -> np.ndarray:
        """Return an image [H, W, 3] uint8 of the first environment, of an even size."""
        image = self._render()
        if not isinstance(image, np.ndarray) or image.shape[2:] != (3,) or image.dtype != np.uint8:
            kind = f"{list(image.shape)} {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
            got = image if isinstance(image, str) else f"its render() returned {kind}"
            raise CommandFailedError(f"{self.cfg.id}: no image [height, width, 3] uint8: {got}")
        height, width = (size - size % 2 for size in image.shape[:2])
        return image[:height, :width]

    def _present_obs(self) -> TensorDict:
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        return self._obs

    def _with_new_episodes(self, obs: TensorDict, rows: Tensor) -> TensorDict:
        """Begin new episodes in environments [n]; return the observation that the next step starts from.

        Args:
            obs: the present one, which is not changed.
        """
        self.random.next_episode(rows)
        first = self._reset_rows(rows)
        entries = {name: obs[name].index_copy(0, rows, first[name]) for name in obs.keys(True, True)}
        return TensorDict(entries, obs.batch_size, obs.device)

    def _seeds(self, rows: Tensor) -> list[int]:
        """Return the seeds of the present episodes of environments [n], 0 of the others, [N]."""
        with self.random.stream("episode"):
            drawn = self.random.uniform(rows, 0.0, 1.0, len(_SEED_BITS)).double()
        high, low = _SEED_BITS
        seeds = torch.zeros(self.num_envs, dtype=torch.int64)
        seeds[rows] = ((drawn[:, 0] * 2**high).long() << low) + (drawn[:, 1] * 2**low).long()
        return seeds.tolist()

    def _check_groups(self, obs: TensorDict) -> None:
        """Raise a ConfigError if the episodes of a group's members begin with different observations [N]."""
        size = self.cfg.group_size
        for name in obs.keys(include_nested=True, leaves_only=True) if size > 1 else ():
            rows = obs.get(name).flatten(1)
            first = rows[::size].repeat_interleave(size, 0)
            differs = (rows != first) & ~(rows.isnan() & first.isnan())
            if differs.any():
                path = name if isinstance(name, str) else "/".join(name)
                raise ConfigError(
                    f"algorithm.cfg.group_size: the episodes of a group must begin equal, but reset(seed=...) of "
                    f"{self.cfg.id} returned different '{path}': its reset must draw from the seed alone"
                )

    def _info(self, numbers: dict[str, np.ndarray] | None, terminated: Tensor) -> dict[str, Any]:
        info = self._infos.read(numbers)
        return info | {"fail": terminated & ~info["success"], "elapsed_steps": self.elapsed_steps}

    def _write_rollout(self, *values: Tensor) -> None:
        slots = next(self._slots, None)
        if slots is not None:
            for slot, value in zip(slots, values, strict=True):
                slot.copy_(value)
            self.current_rollout_step += 1


def rendered(render: Callable[[], Any]) -> Any:
    """Return what a foreign ``render`` returns, or the reason why it fails."""
    try:
        return render()
    except Exception as error:  # noqa: BLE001 (a training does not depend on its images)
        return f"its render() raised {error!r}"


def file_data(cfg: ForeignEnvCfg) -> dict[str, Any]:
    """Return the content of a file that is parsed to the same config."""
    return {key: value for key, value in to_dict(cfg).items() if key in FILE_KEYS and value is not None}
