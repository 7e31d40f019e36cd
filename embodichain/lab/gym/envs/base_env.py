"""N environments, the hooks that a task may write, and their step.

Shapes: N environments, n in ``env_ids``, A action size.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tensordict import TensorCollection, TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.env_cfg import EnvCfg, check_groups
from embodichain.lab.gym.envs.managers.base import is_users, kind_of
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.objects import Robot, StateCache
from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rows import changing_rows
from embodichain.utils import ConfigError, errors, logger, observations, profiling, replace
from embodichain.utils.device import check_memory, warn_of_spinning_threads
from embodichain.utils.state import attributes, declared_state, is_all_saved, load_attributes

TaskState = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Success [N] bool, failure [N] bool, metrics [N] by name."""
StepResult = tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]
"""Observation, reward [N], terminated [N], truncated [N], info."""

_MIN_BYTES = 1000  # of an environment of any scene
# Hooks in which a task adds to what the config says.
_ADDED_TO = (
    *("_setup_robot", "_prepare_scene", "_setup_sensors", "_init_sim_state", "_update_sim_state"),
    *("_initialize_episode", "_extend_obs"),
)


class TaskHooks(gym.Env[Any, Any]):
    """The hooks of an environment. Call ``super()`` in hooks with a leading underscore."""

    cfg: EnvCfg
    sim: SimulationManager
    num_envs: int
    device: torch.device
    elapsed_steps: Tensor
    """[N] int64, steps in the current episode."""
    success_terminates = True
    """Whether an episode ends when the task is achieved."""
    _never: Tensor
    """[N] bool, false everywhere."""
    _has_success = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Warn of methods of a new class that are nearly named like a hook, and of hooks without ``super()``."""
        super().__init_subclass__(**kwargs)
        hooks = [name for name, value in vars(TaskHooks).items() if isinstance(value, FunctionType)]
        for name, value in vars(cls).items():
            is_new = isinstance(value, FunctionType) and not any(hasattr(base, name) for base in cls.__bases__)
            if is_new and (meant := errors.closest(name, hooks, errors.MISSPELT)):
                logger.log_warning(
                    f"{cls.__qualname__}.{name}: no hook has this name, so only your own code can call it. "
                    f"Did you mean '{meant}'?"
                )
        for name in _ADDED_TO if is_users(cls) else ():
            hook, inherited = vars(cls).get(name), getattr(super(cls, cls), name)
            if not isinstance(hook, FunctionType) or inherited is vars(TaskHooks)[name]:
                continue
            if not {"super", "__class__", name} & {*hook.__code__.co_names, *hook.__code__.co_freevars}:
                logger.log_warning(
                    f"{cls.__qualname__}.{name} does not call super().{name}(): the config's part of it is lost"
                )

    def compute_task_state(self, **kwargs: Any) -> TaskState:
        """Return whether the task is achieved [N] bool, whether it has failed [N] bool, and metrics [N] by name.

        Called once in each control step, and once in each ``reset()``, so counters belong in ``_update_sim_state``. A
        task that has no success returns ``self._never`` for it, and is then measured by its return.
        """
        return self._never, self._never, {}

    def knows_success(self) -> bool:
        """Return whether the task has a success, as its ``compute_task_state`` has said."""
        return self._has_success

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the reward [N]; ``info["rewards"]`` may be filled with its terms."""
        return torch.zeros(self.num_envs, device=self.device)

    def check_truncated(self, obs: TensorDict, info: dict[str, Any]) -> Tensor:
        """Return the episodes to truncate [N] bool, in addition to the time limit's."""
        return self._never

    def _setup_robot(self) -> None:
        """Add the robots to ``self.sim``."""

    def _prepare_scene(self) -> None:
        """Add everything else to ``self.sim``."""

    def _setup_sensors(self) -> None:
        """Add sensors."""

    def _init_sim_state(self) -> None:
        """Initialise once after the simulation is built."""

    def _update_sim_state(self) -> None:
        """Change the state after the physics and before it is observed; once in each control step, never in a reset.

        ``elapsed_steps`` counts the present step already.
        """

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
        """Add to the observation.

        It is called once a step, again for the first observation of an episode, and again where an interval event has
        changed the state: count steps in ``_update_sim_state``.
        """
        return obs

    def _extend_reward(self, reward: Tensor, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Change the reward [N]."""
        return reward

    def _apply_interval_events(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> Tensor | None:
        """Change the state after the rewards; return the changed environments [N] bool, or None if none is."""
        return None

    def _record(self, action: Tensor, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Record a step before the environments that are done reset."""

    def _begin_step(self, obs: TensorDict) -> None:
        """Record the observation from which the next step starts."""

    def _restart(self, env_ids: Tensor) -> None:
        """Reset counters, and the places of environments [n], since the random streams start again."""

    def _draw_scene(self, env_ids: Tensor) -> None:
        """Draw what stays over the episodes of a training, for each episode of an evaluation; the state is reset."""

    def _end_episodes(self, env_ids: Tensor) -> None:
        """Use the last state of environments [n] with ended episodes, before they reset themselves."""

    def _initialize_episode(self, env_ids: Tensor) -> None:
        """Set up the new episodes of environments [n]; the scene is in its initial state."""

    @property
    def state_cache(self) -> StateCache:
        """Cached values of the present state, see :func:`~embodichain.lab.sim.objects.cached_per_state`."""
        return self.sim.state_cache

    @property
    def max_episode_steps(self) -> int | None:
        """The config's time limit."""
        return self.cfg.max_episode_steps

    @property
    def _elapsed_steps(self) -> Tensor:
        """The name of ``elapsed_steps`` in tasks written for EmbodiChain."""
        return self.elapsed_steps


class BaseEnv(TaskHooks):
    """N environments that step together and reset themselves; a task adds :class:`TaskHooks`.

    The attributes are described in :class:`~embodichain.lab.gym.envs.managers.base.TermEnv`.
    """

    robot: Robot
    """The first robot of the scene."""
    last_action: Tensor

    def __init__(self, cfg: EnvCfg) -> None:
        warn_of_spinning_threads()
        check_groups(cfg)
        self.cfg, self.num_envs = cfg, cfg.num_envs
        self.sim = SimulationManager(replace(cfg.sim_cfg, num_envs=cfg.num_envs))
        self.device = self.sim.device
        # Before anything is allocated; the physics looks again once it knows the scene.
        check_memory("num_envs", f"{cfg.num_envs:,} environments", cfg.num_envs * _MIN_BYTES, self.device)
        self.random = CounterRandom(cfg.seed, cfg.num_envs, self.device, cfg.first_env_id, cfg.group_size)
        self.all_env_ids = torch.arange(cfg.num_envs, device=self.device)
        self.elapsed_steps = torch.zeros(cfg.num_envs, dtype=torch.int64, device=self.device)
        self.current_rollout_step = 0
        self._slots: Iterator[tuple[Tensor, ...]] = iter(())
        self._paused: list[tuple[Tensor, Any]] = []  # env_ids, and their states
        self._moved: Tensor | None = None  # [N] bool, by a command after the observation
        self.stepping_ids = self.all_env_ids
        self._never = torch.zeros(cfg.num_envs, dtype=torch.bool, device=self.device)
        self._has_begun = False
        self._setup_robot()
        self._prepare_scene()
        self._setup_sensors()
        self.sim.build()
        self.divergences = DivergenceLog(self.sim.backend)
        self._init_sim_state()
        self._owners = self._stateful()
        self._make_spaces()

    def get_info(self, **kwargs: Any) -> dict[str, Any]:
        """Return ``success``, ``fail``, ``metrics``, ``elapsed_steps`` and an empty ``rewards``."""
        success, fail, metrics = checked_task_state(self.compute_task_state(**kwargs), self.num_envs, type(self))
        self._has_success = success is not self._never
        # Copies: a task may keep them in buffers, into which its reset writes.
        flags: dict[str, Any] = {"success": success.clone(), "fail": fail.clone(), "elapsed_steps": self.elapsed_steps}
        return flags | {"metrics": {name: value.clone() for name, value in metrics.items()}, "rewards": {}}

    @property
    def step_dt(self) -> float:
        """Duration of a control step, s."""
        return self.cfg.sim_cfg.physics_dt * self.cfg.sim_steps_per_control

    @profiling.section("observations")
    def get_obs(self) -> TensorDict:
        """Return the observation of the current state, batch [N], nested by the slashes in the names."""
        with self.random.stream("hooks.observation", tick=self.elapsed_steps):
            entries = self._extend_obs(self._base_obs())
        if is_users(self):
            entries = {name: value.clone() for name, value in entries.items()}
        return observations.nested_observation(entries, self.device)

    def _rewind_observation(self) -> None:
        """Let the next observation replace the last one, where observing changes state."""

    def _observe(self, mask: Tensor, before: TensorDict | None = None) -> TensorDict:
        """Return the observation; only rows of a mask [N] bool change, in it and in state that observing changes.

        ``before`` is the previous observation; None: the observation from which the step started.
        """
        return self.get_obs()

    def _info_of_reset(self) -> dict[str, Any]:
        """Return the ``info`` of new episodes, which is of no step."""
        return self.get_info()

    @torch.no_grad()
    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Begin new episodes; return ``(obs, info)`` of all environments.

        If all environments reset, the members of a group begin the same episode.

        Args:
            seed: start the random streams again from this seed.
            options: ``reset_ids``: [n] which environments, default all. ``enumerate_episodes``: with a seed, number
                the episodes through, so that the first E are the same for any number of environments; ``share``:
                (r, W), take only the numbers r, r + W, r + 2W, ..., as one of W processes that share them.
        """
        options = options or {}
        ids = options.get("reset_ids")
        env_ids = self.all_env_ids if ids is None else torch.as_tensor(ids, device=self.device)
        if seed is not None:
            self.random.reseed(seed, options.get("enumerate_episodes", False), options.get("share", (0, 1)))
            self._restart(env_ids)
        self._has_begun = True
        if ids is None:
            self.random.align_groups()
            self._reset_episodes(env_ids)
            obs = self.get_obs()
        else:
            self._rewind_observation()
            self._reset_episodes(env_ids)
            obs = self._observe(self._never.index_fill(0, env_ids, True))
        self._begin_step(obs)
        return obs, self._info_of_reset()

    @torch.no_grad()
    def step(  # type: ignore[override]  # batched, unlike Gymnasium's own single environments
        self, action: Tensor | np.ndarray | Mapping[str, Tensor]
    ) -> StepResult:
        """Advance every environment by one control step.

        Args:
            action: [N, A], or by name as the action manager calls it; clipped to the action space.

        Returns:
            ``(obs, reward [N] float32, terminated [N] bool, truncated [N] bool, info)``. Environments that are done
            have reset themselves: ``obs`` is then of the new episode, and ``info["final_obs"]`` (of all environments)
            has the last observation of the old. ``info["diverged"]`` [N] bool, if there, says
            where the physics became invalid.
        """
        action = self.take_action(action)
        obs, reward, terminated, truncated, info = self.advance(action)
        done = terminated | truncated
        info["final_obs"] = obs
        self._record(action, reward, done, info)
        obs = self.begin_episodes(obs, done)
        self.write_rollout(reward, done, terminated, truncated)
        return obs, reward, terminated, truncated, info

    def take_action(self, action: Tensor | np.ndarray | Mapping[str, Tensor]) -> Tensor:
        """Return an action [N, A], or a chunk [N, H, A], as one tensor within the limits; RuntimeError before reset."""
        if not self._has_begun:
            raise RuntimeError("call reset() before step()")
        if isinstance(action, np.ndarray):
            action = torch.as_tensor(action, dtype=torch.float32, device=self.device)
        elif not isinstance(action, Tensor):
            action = self._join_action(action)
        size = len(self._action_low)
        if action.ndim < 2 or (action.shape[0], action.shape[-1]) != (self.num_envs, size):  # others may broadcast
            raise ValueError(
                f"actions must have the shape [{self.num_envs}, {size}] (environments, numbers of an action), got "
                f"{list(action.shape)}"
            )
        # NaN stays NaN: the physics reports it as a divergence.
        return torch.clamp(action, self._action_low, self._action_high)

    def advance(self, action: Tensor) -> StepResult:
        """Make one control step with actions [N, A] in the environments of ``stepping_ids``, without resets."""
        with self.random.stream("hooks.step", tick=self.elapsed_steps):  # what hooks draw depends on nothing else
            return self._advance(action)

    def _advance(self, action: Tensor) -> StepResult:
        self.last_action = action
        self._step_action(action)
        ids = self.stepping_ids if self._paused else None
        self.sim.update(self.cfg.sim_steps_per_control, ids)
        # A new tensor each step, so that the one in info does not change.
        stepping = None if ids is None else self._never.index_fill(0, ids, True)
        self.elapsed_steps = self.elapsed_steps + (1 if stepping is None else stepping.long())
        with nullcontext() if stepping is None else changing_rows([self], stepping):
            self._update_sim_state()
        for paused, state in self._paused:  # whatever the action and the task have written into them
            self.sim.backend.put_rows(paused, state)
        obs = self.get_obs() if stepping is None else self._observe(stepping)
        info = self.get_info()
        reward = self._extend_reward(self.get_reward(obs, action, info), obs, action, info)
        terminated, truncated = self._ended(obs, info)
        changed = self._apply_interval_events(reward, terminated | truncated, info)
        if changed is not None:
            self._rewind_observation()
            obs = self._observe(changed, obs)
        diverged = self.sim.backend.diverged()
        if diverged is not None:
            diverged = diverged if stepping is None else diverged & stepping
            reward = self.divergences.handle(diverged, reward, info)
            info["diverged"] = diverged
            obs, terminated = finite_observation(obs), terminated | diverged
        return obs, reward, terminated, truncated, info

    def begin_episodes(self, obs: TensorDict, done: Tensor) -> TensorDict:
        """Reset the environments that are done [N] bool; return the observation from which the next step starts."""
        with self.choose(done) as done_ids:
            if len(done_ids):
                self._end_episodes(done_ids)
                self._rewind_observation()
                self._reset_episodes(done_ids)
        if self._moved is not None:
            if not len(done_ids):
                self._rewind_observation()
            obs, self._moved = self._observe(done | self._moved, obs), None
        elif len(done_ids):
            obs = self._observe(done, obs)
        self._begin_step(obs)
        return obs

    def pause(self, env_ids: Tensor) -> None:
        """Freeze environments [n] in their present state until :meth:`resume`."""
        self._paused.append((env_ids, self.sim.backend.copy_rows(env_ids)))
        self.stepping_ids = self.stepping_ids[~torch.isin(self.stepping_ids, env_ids)]

    def resume(self) -> None:
        """Undo :meth:`pause`: all environments step again."""
        self.stepping_ids, self._paused = self.all_env_ids, []

    @contextmanager
    def choose(self, mask: Tensor) -> Iterator[Tensor]:
        """Change only the environments of a mask [N] bool inside the block: their physics and state.

        Yields:
            ``env_ids``: [n] int64; or, where the host would wait for the device to learn n, all N as
            :class:`~embodichain.lab.sim.rows.ChosenRows`, and the other rows are put back. It may be empty.
        """
        rows = changing_rows(self._owners, mask) if self.sim.backend.is_asynchronous else nullcontext()
        with self.sim.backend.choose(mask) as env_ids, rows:
            yield env_ids

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write ``reward``, ``done``, ``terminated``, ``truncated`` of each step into a rollout [N, T + 1] from now on.

        The next step goes into slot 0; ``current_rollout_step`` counts them. A rollout with the field ``executed`` is
        one of chunks, of which each is a step. Divergences that were not logged yet are logged.
        """
        self.divergences.report()
        is_of_chunks = "executed" in rollout.keys()  # noqa: SIM118 (a TensorDict, not a dict)
        names = ["reward", "done", "terminated", "truncated", *(["executed"] if is_of_chunks else [])]
        self._slots = zip(*(rollout[name].unbind(1) for name in names), strict=True)
        self.current_rollout_step = 0

    def write_rollout(self, *values: Tensor) -> None:
        """Write a step's values into the next slot of the rollout, in the order of its fields."""
        slots = next(self._slots, None)
        if slots is not None:
            for slot, value in zip(slots, values, strict=True):
                slot.copy_(value)
            self.current_rollout_step += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state for a checkpoint, without copies.

        A task's own state is its attributes that are plain data (see ``embodichain.utils.state``), and its additions.
        """
        return {
            "sim": self.sim.state_dict(),
            "random": declared_state(self.random),
            "attributes": attributes(self, exclude=("_paused", "stepping_ids")),
            "divergences": declared_state(self.divergences),
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Restore the result of :meth:`state_dict` for an environment of the same config.

        Returns:
            Whether the episodes continue. They do not, which is logged, where something of the task is not saved.
        """
        self.sim.load_state_dict(state["sim"])
        load_attributes(self.random, state["random"])
        load_attributes(self, state["attributes"])
        load_attributes(self.divergences, state["divergences"])
        return is_all_saved(self)

    def close(self) -> None:
        """Release the environment's resources."""
        self.divergences.report()
        self.sim.close()

    def number_envs(self, first_env_id: int, group_size: int) -> None:
        """Change ``first_env_id`` and ``group_size``; call :meth:`reset` before the next step."""
        self.cfg = replace(self.cfg, first_env_id=first_env_id, group_size=group_size)
        check_groups(self.cfg)
        self.random = CounterRandom(self.cfg.seed, self.num_envs, self.device, first_env_id, group_size)
        self._has_begun = False
        self._owners = self._stateful()

    @profiling.section("resets")
    def _reset_episodes(self, env_ids: Tensor) -> None:
        self.random.next_episode(env_ids)
        self._draw_scene(env_ids)
        self.sim.reset(env_ids)
        self.elapsed_steps = self.elapsed_steps.index_fill(0, env_ids, 0)
        with self.random.stream("hooks.episode"):
            self._initialize_episode(env_ids)

    def _ended(self, obs: TensorDict, info: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return which episodes are terminated and which are truncated, [N] bool each."""
        terminated = info["fail"] | info["success"] if self.success_terminates else info["fail"].clone()
        truncated = self.check_truncated(obs, info)
        if self.cfg.max_episode_steps is None:
            return terminated, truncated.clone()
        # Tasks that truncate nothing return _never.
        at_limit = self.elapsed_steps >= self.cfg.max_episode_steps
        return terminated, at_limit if truncated is self._never else truncated | at_limit

    def _stateful(self) -> list[object]:
        """Return the objects with state of each environment."""
        return [self, self.random, *self.sim.parts().values()]

    def _make_spaces(self) -> None:
        self._action_low, self._action_high = self._action_limits()
        self.last_action = torch.zeros(self.num_envs, len(self._action_low), device=self.device)
        low, high = self._action_low.cpu().numpy(), self._action_high.cpu().numpy()
        self.single_action_space = gym.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)
        # By mask, like later resets on a GPU: a term that does not support it raises here.
        with self.choose(~self._never) as env_ids:
            self._reset_episodes(env_ids)
        obs = self.get_obs()
        self.random.reseed(self.cfg.seed)
        self.single_observation_space = space_of(obs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.flattened_observation_space = box_of(observations.flatten_dict_observation(obs))


def checked_task_state(value: object, num_envs: int, task: type) -> TaskState:
    """Return the value of a task's ``compute_task_state``; ConfigError if it has another type or shape."""
    got = kind_of(value)
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], dict):
        success, fail, metrics = value
        for name, each in (("success", success), ("fail", fail), *metrics.items()):
            is_right = isinstance(each, Tensor) and each.shape == (num_envs,)
            if not is_right or ((each is success or each is fail) and each.dtype != torch.bool):
                got = f"{kind_of(each)} as {name}"
                break
        else:
            return success, fail, metrics
    wanted = f"two bool tensors [N] = [{num_envs}] and a dict of tensors [N]"
    raise ConfigError(
        f"{task.__qualname__}.compute_task_state must return (success, fail, metrics): {wanted}. Got {got}"
    )


def space_of(obs: TensorCollection) -> gym.spaces.Dict:
    """Return the nested space of one environment's observation."""
    return gym.spaces.Dict({str(n): box_of(v) if isinstance(v, Tensor) else space_of(v) for n, v in obs.items()})


def box_of(value: Tensor) -> gym.spaces.Box:
    """Return the space of one environment's row of a tensor [N, ...], with the bounds of its type, such as 0 to 255."""
    array = value[0].cpu().numpy()
    dtype: Any = array.dtype.type
    low, high = (-np.inf, np.inf)
    if array.dtype == np.bool_:
        low, high = 0, 1
    elif np.issubdtype(dtype, np.integer):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return gym.spaces.Box(low, high, shape=array.shape, dtype=dtype)


class DivergenceLog:
    """Counts the episodes that end because physics or action became invalid; warns at the 1st, 10th, 100th, ..."""

    state_names = ("count", "warn_at")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.count = torch.zeros((), dtype=torch.int64, device=backend.device)
        self.warn_at = 1

    def handle(self, diverged: Tensor, reward: Tensor, info: dict[str, Any]) -> Tensor:
        """Count diverged environments [N] bool, zero their rewards, metrics and success, and return the reward [N]."""
        self.count = self.count + diverged.sum()
        if not self._backend.is_asynchronous:
            ids = diverged.nonzero().squeeze(1).tolist()
            self._warn(f"environments {ids[:8]}{'...' if len(ids) > 8 else ''}")
        info["success"] = info["success"] & ~diverged
        for values in (info["rewards"], info["metrics"]):
            values |= {name: value.masked_fill(diverged, 0.0) for name, value in values.items()}
        return reward.masked_fill(diverged, 0.0)

    def report(self) -> None:
        """Log the backend's problems, and on a GPU the count; this waits for the device."""
        for problem in self._backend.report():
            logger.log_warning(problem)
        if self._backend.is_asynchronous:
            self._warn("some environments")

    def _warn(self, where: str) -> None:
        count = int(self.count)  # waits for the device
        if count >= self.warn_at:
            logger.log_warning(f"physics or action invalid in {where}: their episodes end and reset ({count} so far)")
            while self.warn_at <= count:
                self.warn_at *= 10


def finite_observation(obs: TensorDict) -> TensorDict:
    """Return an observation with numbers in place of NaN and infinity."""
    finite = obs.apply(torch.nan_to_num)
    assert finite is not None  # an empty observation cannot be
    return finite
