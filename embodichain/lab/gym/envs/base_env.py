"""The fixed order of a step. Shapes: N environments, n those concerned, A action size, O flattened observation size."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.choosing import Chooser, episode_hooks_bound_to_ids
from embodichain.lab.gym.envs.chunks import ChunkRecord
from embodichain.lab.gym.envs.env_cfg import EnvCfg
from embodichain.lab.gym.envs.spaces import box_of, space_of
from embodichain.lab.gym.envs.task_state import TaskState, checked_task_state
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.objects import Robot
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.memory import check_memory
from embodichain.utils.observations import flatten_dict_observation, nested_observation
from embodichain.utils.random import CounterRandom
from embodichain.utils.rows import by_mask
from embodichain.utils.state import attributes, load_attributes

__all__ = ["BaseEnv", "EnvCfg"]

_MIN_BYTES = 1000  # that an environment of any scene takes


class BaseEnv(gym.Env[Any, Any]):
    """N environments that step together and reset themselves.

    A step goes: action -> physics -> state and interval events -> observation -> success, failure, time limit ->
    rewards -> reset of the environments that are done -> their new observation. Subclasses fill in the hooks whose
    names begin with an underscore.

    Attributes:
        sim: the simulation.
        robot: the first robot of the scene.
        device: of all tensors.
        random: the environments' random streams.
        elapsed_steps: [N] int64, steps in the current episode.
        last_action: [N, A], of the present step, within the limits.
        stepping_ids: [n], which environments make the present control step; all, but within a chunk of actions.
    """

    robot: Robot
    last_action: Tensor
    success_terminates = True
    """Whether an episode ends when the task is achieved."""

    def __init__(self, cfg: EnvCfg) -> None:
        _check_groups(cfg)
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        self.sim = SimulationManager(replace(cfg.sim_cfg, num_envs=cfg.num_envs))
        self.device = self.sim.device
        # Before anything is allocated; the physics looks again once it knows the scene.
        check_memory("num_envs", f"{cfg.num_envs:,} environments", cfg.num_envs * _MIN_BYTES, self.device)
        self.random = CounterRandom(cfg.seed, cfg.num_envs, self.device, cfg.first_env_id, cfg.group_size)
        self.all_env_ids = torch.arange(cfg.num_envs, device=self.device)
        self.elapsed_steps = torch.zeros(cfg.num_envs, dtype=torch.int64, device=self.device)
        self._num_diverged = torch.zeros((), dtype=torch.int64, device=self.device)
        self._warn_at = 1  # divergences at which the next warning is given: the 1st, 10th, 100th, ...
        self.current_rollout_step = 0
        self._rollout: list[tuple[Tensor, ...]] | None = None
        self.stepping_ids = self.all_env_ids
        self._waiting: list[tuple[Tensor, Any]] = []  # who ended within a chunk, and the states that they ended in
        self._never = torch.zeros(cfg.num_envs, dtype=torch.bool, device=self.device)
        self._has_begun = False
        self._setup_robot()
        self._prepare_scene()
        self._setup_sensors()
        self.sim.build()
        self._init_sim_state()
        self._make_spaces()
        self._make_chooser()

    # --- hooks -----------------------------------------------------------------------------------------------------

    def _setup_robot(self) -> None:
        """Add the robots to ``self.sim``."""

    def _prepare_scene(self) -> None:
        """Add everything else to ``self.sim``."""

    def _setup_sensors(self) -> None:
        """Add sensors."""

    def _init_sim_state(self) -> None:
        """Do once what needs the built simulation."""

    def _update_sim_state(self) -> None:
        """Change the state after the physics and before it is observed."""

    def _step_action(self, action: Tensor) -> None:
        """Turn actions [N, A] into controls of the simulation."""
        raise NotImplementedError

    def _join_action(self, action: Mapping[str, Tensor]) -> Tensor:
        """Return an action given by name as one tensor [N, A], or a chunk of them as one [N, H, A]."""
        raise NotImplementedError

    def _action_limits(self) -> tuple[Tensor, Tensor]:
        """Return the lowest and the highest action, [A] each."""
        raise NotImplementedError

    def _base_obs(self) -> dict[str, Tensor]:
        """Return the observation by slash-separated name, [N, ...] each."""
        raise NotImplementedError

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add to the observation."""
        return obs

    def _rewind_observation(self) -> None:
        """Let the next observation be made in place of the last one, where making one changes what is remembered."""

    def _observe(self, mask: Tensor) -> TensorDict:
        """Return the observation; only rows of a mask [N] bool are new, in it and in what making one changes."""
        return self.get_obs()

    def _extend_reward(self, reward: Tensor, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Change the reward [N]."""
        return reward

    def _record(self, action: Tensor, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Look at a step before the environments that are done reset."""

    def _begin_step(self, obs: TensorDict) -> None:
        """Look at the observation from which the next step starts."""

    def _may_hold_images(self) -> bool:
        """Return whether nobody looks at the images within a chunk of actions."""
        return True

    def _restart(self) -> None:
        """Forget what was counted so far: the random streams start again."""

    @by_mask
    def _initialize_episode(self, env_ids: Tensor) -> None:
        """Set up the new episodes of environments [n]; the scene is in its initial state."""

    @property
    def step_dt(self) -> float:
        """How long one step is, s."""
        return self.cfg.sim_cfg.physics_dt * self.cfg.sim_steps_per_control

    @property
    def max_episode_steps(self) -> int | None:
        """The config's."""
        return self.cfg.max_episode_steps

    @property
    def _elapsed_steps(self) -> Tensor:
        """``elapsed_steps``, as tasks written for EmbodiChain call it."""
        return self.elapsed_steps

    # --- what a task writes ------------------------------------------------------------------------------------------

    def compute_task_state(self, **kwargs: Any) -> TaskState:
        """Return whether the task is achieved [N] bool, whether it has failed [N] bool, and metrics [N] by name."""
        return self._never, self._never, {}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the reward [N]; ``info["rewards"]`` may be filled with its terms."""
        return torch.zeros(self.num_envs, device=self.device)

    def check_truncated(self, obs: TensorDict, info: dict[str, Any]) -> Tensor:
        """Return which episodes are cut off [N] bool, beside those at the time limit."""
        return self._never

    def get_info(self, **kwargs: Any) -> dict[str, Any]:
        """Return ``success``, ``fail``, ``metrics``, ``elapsed_steps`` and an empty ``rewards``."""
        success, fail, metrics = checked_task_state(self.compute_task_state(**kwargs), self.num_envs, type(self))
        return {
            "success": success,
            "fail": fail.clone() if fail is self._never else fail,
            "metrics": metrics,
            "elapsed_steps": self.elapsed_steps,
            "rewards": {},
        }

    # --- the environment ---------------------------------------------------------------------------------------------

    def get_obs(self) -> TensorDict:
        """Return the observation of the current state, batch [N], nested by the slashes in the names."""
        return nested_observation(self._extend_obs(self._base_obs()), self.device)

    @torch.no_grad()
    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Begin new episodes.

        When all environments begin one, the members of a group begin the same one.

        Args:
            seed: start the random streams again from this seed.
            options: ``reset_ids``: [n] which environments, default all. ``enumerate_episodes``: with a seed, number
                the episodes through, so that the first E are the same for any number of environments; ``share``:
                (r, W), take only the numbers r, r + W, r + 2W, ..., as one of W processes that share them.

        Returns:
            ``(obs, info)``: the observations of all environments.
        """
        options = options or {}
        if seed is not None:
            self.random.reseed(seed, options.get("enumerate_episodes", False), options.get("share", (0, 1)))
            self._restart()
        self._has_begun = True
        ids = options.get("reset_ids")
        if ids is None:
            self.random.align_groups()
            self._reset_episodes(self.all_env_ids)
            obs = self.get_obs()
        else:
            env_ids = torch.as_tensor(ids, device=self.device)
            self._rewind_observation()
            self._reset_episodes(env_ids)
            obs = self._observe(self._never.index_fill(0, env_ids, True))
        self._begin_step(obs)
        return obs, self.get_info()

    @torch.no_grad()
    def step(  # type: ignore[override]  # batched, unlike Gymnasium's own single environments
        self, action: Tensor | np.ndarray | Mapping[str, Tensor]
    ) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Advance every environment by one control step.

        Args:
            action: [N, A], or by name as the action manager calls it; clipped to the action space.

        Returns:
            ``(obs, reward [N] float32, terminated [N] bool, truncated [N] bool, info)``. Environments that are done
            have reset themselves: ``obs`` is then of the new episode, and ``info["final_obs"]`` (of all environments)
            has the last observation of the old. Where the physics became invalid, ``info["diverged"]`` [N] bool says in
            which, and ``info["state_before"]`` has ``qpos`` [N, nq] and ``qvel`` [N, nv] as they were before the step.

        Raises:
            RuntimeError: ``reset`` was never called.
        """
        action = self._take_action(action)
        obs, reward, terminated, truncated, info = self._advance(action)
        done = terminated | truncated
        info["final_obs"] = obs
        self._record(action, reward, done, info)
        obs = self._begin_episodes(obs, done)
        self._write_rollout(reward, done, terminated, truncated)
        return obs, reward, terminated, truncated, info

    @torch.no_grad()
    def step_chunk(
        self, action: Tensor | np.ndarray | Mapping[str, Tensor]
    ) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Advance every environment by H control steps, or to the end of its episode where that comes first.

        An environment whose episode ends within the chunk stays in the state that it ended in, and is reset at the end
        of the chunk, with the others. Cameras draw once, at the end: terms that look at images within the chunk see
        those from before it. Where a dataset is recorded, they draw at every step.

        Args:
            action: [N, H, A], or by name as the action manager calls it; clipped to the action space.

        Returns:
            ``(obs, reward [N, H] float32, terminated [N] bool, truncated [N] bool, info)``: as of :meth:`step`, with
            ``info["executed"]`` [N, H] bool, which control steps were made. Where none was, ``reward`` and
            ``info["rewards"]`` and ``info["metrics"]`` ([N, H] by name) are 0; ``success``, ``fail`` and
            ``elapsed_steps`` [N] are of the last one that was made. One control step is one :meth:`step`, to the bit.

        Raises:
            RuntimeError: ``reset`` was never called.
            ValueError: the actions are not of three dimensions.
        """
        action = self._take_action(action)
        if action.dim() != 3:
            raise ValueError(f"step_chunk takes actions [N, H, A], got shape {list(action.shape)}")
        length = action.shape[1]
        chunk = ChunkRecord(self.num_envs, length, self.device)
        is_held = False
        try:
            for h, own in enumerate(action.unbind(1)):
                is_held = h < length - 1 and self._may_hold_images()
                self.sim.hold_images(is_held)
                now = torch.where(chunk.alive[:, None], own, self.last_action) if self._waiting else own
                obs, reward, terminated, truncated, info = self._advance(now)
                reward, done = chunk.add(h, reward, terminated, truncated, info)
                self._record(now, reward, done, info | {"final_obs": obs})
                ended = done.nonzero().squeeze(1)
                if len(ended):
                    self._waiting.append((ended, self.sim.backend.copy_rows(ended)))
                    self.stepping_ids = chunk.alive.nonzero().squeeze(1)
                if not len(self.stepping_ids):
                    break
                if h < length - 1:
                    self._begin_step(obs)
        finally:
            self.sim.hold_images(False)
            self.stepping_ids, self._waiting = self.all_env_ids, []
        if is_held:  # all have ended before the last step
            self._rewind_observation()
            obs = self._observe(chunk.executed[:, h])
        if chunk.has_diverged:
            obs = _finite(obs)
        done = ~chunk.alive
        info = chunk.info() | {"final_obs": obs}
        obs = self._begin_episodes(obs, done)
        self._write_rollout(chunk.reward, done, chunk.terminated, chunk.truncated, chunk.executed)
        return obs, chunk.reward, chunk.terminated, chunk.truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write ``reward``, ``done``, ``terminated``, ``truncated`` of each step into a rollout [N, T + 1] from now on.

        The next step goes into slot 0; ``current_rollout_step`` counts them. A rollout with the field ``executed`` is
        one of chunks: each :meth:`step_chunk` is a step then.

        What went wrong in the physics since the last call, and could not be told at once, is logged.
        """
        self._report()
        names = ["reward", "done", "terminated", "truncated"]
        if "executed" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            names.append("executed")
        self._rollout = list(zip(*(rollout[name].unbind(1) for name in names), strict=True))
        self.current_rollout_step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next steps depend on, for a checkpoint; nothing is copied.

        Beside simulation and random streams these are the attributes that are plain data (tensors, numbers, texts, and
        containers of them; see ``embodichain.utils.state``). A task that keeps something else adds it.
        """
        return {
            "sim": self.sim.state_dict(),
            "random": self.random.state_dict(),
            "attributes": attributes(self, exclude=("_rollout", "_waiting", "stepping_ids")),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned for an environment of the same config."""
        self.sim.load_state_dict(state["sim"])
        self.random.load_state_dict(state["random"])
        load_attributes(self, state["attributes"])

    def close(self) -> None:
        """Release what the environment holds."""
        self._report()
        self.sim.close()

    @property
    def num_diverged(self) -> int:
        """How many episodes ended because the physics or the action became invalid."""
        return int(self._num_diverged)

    def number_envs(self, first_env_id: int, group_size: int) -> None:
        """Number the environments anew, on which their random streams depend; :meth:`reset` must come before a step.

        Args:
            first_env_id: global id of the first one, see ``EnvCfg``.
            group_size: see there.

        Raises:
            ConfigError: they cannot be divided into groups of that size.
        """
        self.cfg = replace(self.cfg, first_env_id=first_env_id, group_size=group_size)
        _check_groups(self.cfg)
        self.random = CounterRandom(self.cfg.seed, self.num_envs, self.device, first_env_id, group_size)
        self._has_begun = False
        self._make_chooser()

    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        """Let the block change environments of a mask [N] bool alone: their physics, and what is kept of them.

        Yields:
            [n] int64 for which environments to compute: those of the mask, or all of them, where the host would have to
            wait for the device to know which they are. It may be empty.
        """
        return self._chooser.choose(mask)

    # --- inner workings ----------------------------------------------------------------------------------------------

    def _take_action(self, action: Tensor | np.ndarray | Mapping[str, Tensor]) -> Tensor:
        """Return actions [N, A] or [N, H, A] as one tensor, within the limits."""
        if not self._has_begun:
            raise RuntimeError("call reset() before step()")
        if isinstance(action, np.ndarray):
            action = torch.as_tensor(action, dtype=torch.float32, device=self.device)
        elif not isinstance(action, Tensor):
            action = self._join_action(action)
        # Not-a-number stays what it is here: the physics reports it as a divergence.
        return torch.clamp(action, self._action_low, self._action_high)

    def _advance(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Make one control step in the environments of ``stepping_ids``, by actions [N, A]; reset nothing."""
        self.last_action = action
        # What is handed out never changes, and the last observation has asked for it: to keep it costs nothing.
        before = {"qpos": self.sim.backend.qpos, "qvel": self.sim.backend.qvel}
        self._step_action(action)
        ids: Tensor | None = None
        if self._waiting:
            ids = self.stepping_ids
            for ended, rows in self._waiting:
                self.sim.backend.put_rows(ended, rows)
        self.sim.update(self.cfg.sim_steps_per_control, ids)
        # A new tensor each step, so that the one in info stays what it is.
        ones = 1 if ids is None else torch.zeros_like(self.elapsed_steps).index_fill_(0, ids, 1)
        self.elapsed_steps = self.elapsed_steps + ones
        self._update_sim_state()
        obs = self.get_obs() if ids is None else self._observe(torch.isin(self.all_env_ids, ids))
        info = self.get_info()
        reward = self._extend_reward(self.get_reward(obs, action, info), obs, action, info)
        terminated, truncated = self._ended(obs, info)
        diverged = self.sim.backend.diverged()
        if diverged is not None:
            if ids is not None:
                diverged = torch.zeros_like(diverged).index_copy_(0, ids, diverged[ids])
            terminated = terminated | diverged
            info |= {"diverged": diverged, "state_before": before}
            reward = self._handle_divergence(diverged, reward, info)
            obs = _finite(obs)
        return obs, reward, terminated, truncated, info

    def _begin_episodes(self, obs: TensorDict, done: Tensor) -> TensorDict:
        """Reset the environments that are done [N] bool; return the observation from which the next step starts."""
        with self.choose(done) as done_ids:
            if len(done_ids):
                self._rewind_observation()
                self._reset_episodes(done_ids)
        if len(done_ids):
            obs = self._observe(done)
        self._begin_step(obs)
        return obs

    def _reset_episodes(self, env_ids: Tensor) -> None:
        self.sim.reset(env_ids)
        self.random.next_episode(env_ids)
        self.elapsed_steps = self.elapsed_steps.index_fill(0, env_ids, 0)
        self._initialize_episode(env_ids)

    def _ended(self, obs: TensorDict, info: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return which episodes are over by the task's rules and which are cut off, [N] bool each."""
        terminated = info["fail"] | info["success"] if self.success_terminates else info["fail"].clone()
        truncated = self.check_truncated(obs, info)
        if self.cfg.max_episode_steps is None:
            return terminated, truncated.clone()
        # Where the task cuts nothing off itself, there is nothing to combine.
        at_limit = self.elapsed_steps >= self.cfg.max_episode_steps
        return terminated, at_limit if truncated is self._never else truncated | at_limit

    def _handle_divergence(self, diverged: Tensor, reward: Tensor, info: dict[str, Any]) -> Tensor:
        """Count and report environments whose physics became invalid, and keep what they computed out of the learning.

        Returns:
            The reward [N], 0 for them.
        """
        self._num_diverged = self._num_diverged + diverged.sum()
        if not self.sim.backend.is_asynchronous:
            ids = diverged.nonzero().squeeze(1).tolist()
            self._warn_of_divergence(f" in environments {ids[:8]}{'...' if len(ids) > 8 else ''}")
        info["success"] = info["success"] & ~diverged
        for values in (info["rewards"], info["metrics"]):
            values |= {name: value.masked_fill(diverged, 0.0) for name, value in values.items()}
        return reward.masked_fill(diverged, 0.0)

    def _warn_of_divergence(self, where: str = "") -> None:
        """Warn at the 1st, 10th, 100th, ... time."""
        count = self.num_diverged
        if count >= self._warn_at:
            logger.log_warning(f"physics or action invalid{where}: their episodes end and reset ({count} so far)")
            while self._warn_at <= count:
                self._warn_at *= 10

    def _report(self) -> None:
        """Log what went wrong and was not told yet."""
        for problem in self.sim.backend.report():
            logger.log_warning(problem)
        if self.sim.backend.is_asynchronous:
            self._warn_of_divergence(" in some environments")

    def _write_rollout(self, *values: Tensor) -> None:
        if self._rollout is not None:
            slots = self._rollout[self.current_rollout_step]
            for slot, value in zip(slots, values, strict=True):
                slot.copy_(value)
            self.current_rollout_step += 1

    def _bound_to_ids(self) -> list[str]:
        """Return what must be told by number which environments begin an episode."""
        return episode_hooks_bound_to_ids(type(self))

    def _stateful(self) -> list[object]:
        """Return the objects that remember something of each environment."""
        return [self, self.random, *self.sim.parts()]

    def _make_chooser(self) -> None:
        self._chooser = Chooser(self.sim.backend, self._stateful(), self._bound_to_ids())

    def _make_spaces(self) -> None:
        self._action_low, self._action_high = self._action_limits()
        low, high = self._action_low.cpu().numpy(), self._action_high.cpu().numpy()
        self.single_action_space = gym.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)
        self._reset_episodes(self.all_env_ids)
        obs = self.get_obs()
        self.random.reseed(self.cfg.seed)
        self.single_observation_space = space_of(obs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.flattened_observation_space = box_of(flatten_dict_observation(obs))


def _check_groups(cfg: EnvCfg) -> None:
    if cfg.num_envs % cfg.group_size:
        raise ConfigError(f"group_size: {cfg.num_envs} environments cannot be divided into groups of {cfg.group_size}")


def _finite(obs: TensorDict) -> TensorDict:
    finite_obs = obs.apply(torch.nan_to_num)
    assert finite_obs is not None  # an empty observation cannot be
    return finite_obs
