"""Evaluation on a fixed set of episodes. Shapes: N environments, E episodes, S size of a policy's recurrent state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodichain.agents.rl.distributed.process_group import ProcessGroup, get_process_group, stopping_together
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.vec_env import EvalEnv, knows_success, step_with
from embodichain.utils.device import keeping_modes, torch_threads
from embodichain.utils.state import generators_state, load_generators_state
from embodichain.utils.video import Footage

EVAL_SEED_OFFSET = 1_000_003
"""Added to a run's seed for the evaluation, so that its episodes differ from the training's."""

AT_END = "_at_end"
"""Ends the name of a metric of an episode's last step."""

_ONCE = 2  # row of an ``EpisodeTable``


def footage_of(env: Any) -> Footage:
    """Return the environments' recordings since ``start_recording``, as far as they report them."""
    return env.recorded() if hasattr(env, "recorded") else Footage()


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    success_rate: float | None  # share of episodes with a success at the last step; None: the environment reports none
    success_interval: tuple[float, float] | None  # its 95 % interval (Wilson, 1927)
    success_once: float | None  # share of episodes with a success at any step; None: the environment does not know
    avg_reward: float  # mean return
    avg_length: float  # mean length, steps
    episodes: int  # E
    videos: list[str] = field(default_factory=list)
    # Each metric's mean over the episodes, see :meth:`EpisodeTable.metrics`; a flag's is a share of them.
    metrics: dict[str, float] = field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """Return the scalars for the log."""
        names = ("success_rate", "success_once", "avg_reward", "avg_length", "episodes")
        own = {f"eval/{name}": getattr(self, name) for name in names if getattr(self, name) is not None}
        return own | {f"eval/metrics/{name}": value for name, value in self.metrics.items()}


class EpisodeTable:
    """Rewards, metrics and success of E episodes."""

    def __init__(self, num_episodes: int) -> None:
        self.num_ended = 0  # number of ended episodes
        self.knows_success = True  # the environment reports success
        self._num_episodes = num_episodes
        self._names: list[str] = []
        self._sums = torch.empty(0)  # [K, N], of unfinished episodes; empty before the first step, like the others
        self._rows = torch.empty(0)  # [K, E]
        self._ends = torch.empty(0)  # [metrics, E], at the last step
        self._metrics: list[str] = []
        self._flags: frozenset[str] = frozenset()  # metrics of type bool

    def on_step(self, reward: Tensor, info: dict[str, Any], done: Tensor, episode: Tensor) -> None:
        """Add one step.

        Args:
            reward: [N]; of a chunk of actions [N, H], as the entries of ``info``, which then has ``executed``.
            episode: numbers of the environments' present episodes, [N] int64; those from E on do not count.
        """
        metrics = info["metrics"]
        made = info.get("executed", torch.ones_like(reward))
        columns = {"return": reward, "length": made, "success_once": info.get("success_once", info["success"])}
        columns |= {f"rewards/{name}": value for name, value in info["rewards"].items()}
        columns |= {f"metrics/{name}": value.masked_fill(value.isnan(), 0.0) for name, value in metrics.items()}
        columns |= {f"given/{name}": made * ~value.isnan() for name, value in metrics.items()}
        # Of a chunk the sum over its steps, 0 where not executed.
        values = torch.stack([value.double().reshape(len(done), -1).sum(dim=1) for value in columns.values()])
        if list(columns) != self._names:
            self._join(list(columns), list(metrics), values)
            self._flags |= {name for name, value in metrics.items() if value.dtype == torch.bool}
        self._sums += values
        ended = (done & (episode < self._num_episodes)).nonzero().squeeze(1)
        rows = episode[ended]
        self.num_ended += len(rows)
        self._rows[:-1, rows] = self._sums[:, ended]
        self._rows[_ONCE, rows] = self._rows[_ONCE, rows].clamp(max=1.0)
        self._rows[-1, rows] = info["success"][ended].double()
        if metrics:
            last = {name: _last(value, info) for name, value in metrics.items()}
            self._ends[:, rows] = torch.stack([value[ended].double() for value in last.values()])
        self._sums[:, done] = 0.0

    def _join(self, names: list[str], metrics: list[str], values: Tensor) -> None:
        """Make room for new names; episodes that have ended do not have them."""
        sums, rows = torch.zeros_like(values), values.new_zeros(len(names) + 1, self._num_episodes)
        ends = values.new_full((len(metrics), self._num_episodes), math.nan)
        if self._names:
            at = [names.index(name) for name in self._names]
            sums[at], rows[[*at, -1]] = self._sums, self._rows
            ends[[metrics.index(name) for name in self._metrics]] = self._ends
        self._names, self._metrics, self._sums, self._rows, self._ends = names, metrics, sums, rows, ends

    def results(self) -> Tensor:
        """Return each episode's success, return, length and success at any step, [4, E] float64 on the CPU.

        All are 0 for episodes of other processes.
        """
        if not self._names:
            return torch.zeros(4, self._num_episodes, dtype=torch.float64)
        return self._rows[[-1, 0, 1, _ONCE]].cpu()

    def metrics(self) -> dict[str, Tensor]:
        """Return each metric of the episodes, [E] float64 on the CPU; NaN of those not played here.

        A flag's value is the one at the last step; a number ``<name>`` is the mean over an episode's steps that have
        it, NaN without any, and ``<name>_at_end`` its value at the last step.
        """
        columns = self.columns()
        if not columns:  # a process without an episode
            return {}
        is_played = torch.from_numpy(columns["length"]) > 0
        found: dict[str, Tensor] = {}
        for name in self._metrics:
            mean, end = (torch.from_numpy(columns[f"metrics/{name}{suffix}"]) for suffix in ("", " at the end"))
            if name in self._flags:
                found[name] = torch.where(is_played, end.nan_to_num(nan=0.0), end)  # it was false before it was there
            else:
                found |= {name: mean, f"{name}{AT_END}": end}
        return found

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns by name, float64 [E] each; none before the first step.

        ``success`` and ``success_once`` (at the last step and at any; 0 or 1; if the environment knows it), ``return``,
        ``length`` (steps), ``rewards/<term>`` (the episode's sum of the weighted term), ``metrics/<name>`` (its mean
        over the episode's steps that have it) and ``metrics/<name> at the end`` (at its last).
        """
        if not self._names:
            return {}
        rows, ends = self._rows.cpu().numpy(), self._ends.cpu().numpy()
        table = dict(zip(self._names, rows[:-1], strict=True))
        for name, end in zip(self._metrics, ends, strict=True):
            with np.errstate(invalid="ignore"):  # never given, or not played here: NaN
                mean = table[f"metrics/{name}"] / table.pop(f"given/{name}")
            table |= {f"metrics/{name}": mean, f"metrics/{name} at the end": end}
        once = table.pop("success_once")
        return {"success": rows[-1], "success_once": once, **table} if self.knows_success else table


def _last(value: Tensor, info: dict[str, Any]) -> Tensor:
    """Return a value at the last executed step, [N]."""
    if value.dim() == 1:
        return value
    at = info["executed"].sum(dim=1, keepdim=True) - 1
    return value.gather(1, at.clamp(min=0)).squeeze(1)


class Evaluator:
    """Evaluates a policy on the same E episodes each time, each to its end.

    The episodes are numbered across the environments (see ``CounterRandom.reseed``), so that the set depends only on
    the seed; taking the first E that end instead would favour short episodes. Of W processes, rank r plays the episodes
    r, r + W, r + 2W, ...; rank 0 records.

    Args:
        env: environments with episodes that end.
        video_folder: folder of the videos, if the environments record any.
        process_group: shares the episodes; None: the training's.
    """

    def __init__(
        self,
        env: EvalEnv,
        num_episodes: int,
        seed: int,
        device: torch.device,
        video_folder: Path,
        process_group: ProcessGroup | None = None,
    ) -> None:
        self.env = env
        self.table = EpisodeTable(num_episodes)  # of the last evaluation
        self.num_episodes = num_episodes
        self.seconds = 0.0  # s, of all evaluations so far
        self.footage = Footage()  # of all their videos
        self._seed = seed
        self._device = device
        self._video_folder = video_folder
        self._ranks = process_group or get_process_group()

    @torch.no_grad()
    def run(
        self,
        policy: Policy,
        label: str,
        check_stop: Callable[[], None] = lambda: None,
        deterministic: bool = True,
        on_step: Callable[[], None] = lambda: None,
    ) -> Evaluation:
        """Evaluate a policy; ``table`` then has this rank's episodes.

        Args:
            check_stop: function called after every step; raises to end the evaluation, on all processes.
            deterministic: take the most likely actions; else explore, as in training.
            on_step: function called after every step.
        """
        env, process_group, start = self.env, self._ranks, time.perf_counter()
        generators = generators_state()  # the training's draws depend on no evaluation
        try:
            if process_group.is_main:
                env.start_recording(self._video_folder, label, self.num_episodes)
            # One thread: torch's idle workers would take the physics' cores.
            with keeping_modes(policy), torch_threads(1), stopping_together(process_group):
                policy.eval()
                self.table = EpisodeTable(self.num_episodes)
                self._play(policy, check_stop, deterministic, on_step)
                self.table.knows_success = knows_success(env)
            results = process_group.sum(self.table.results())
            metrics = means_of(process_group.gather_data(self.table.metrics()))
            has_success = any(process_group.gather_data(self.table.knows_success))
        finally:
            videos = list(map(str, env.stop_recording())) if process_group.is_main else []
            load_generators_state(generators)
            self.footage += footage_of(env)
            self.seconds += time.perf_counter() - start
        success, returns, lengths, once = results.mean(dim=1).tolist()
        rate, interval = (success, wilson_interval(success, self.num_episodes)) if has_success else (None, None)
        once = once if has_success else None
        return Evaluation(rate, interval, once, returns, lengths, self.num_episodes, videos, metrics)

    def progress(self) -> tuple[int, int, int]:
        """Return the numbers of this rank's episodes, of ended ones, and of recorded images."""
        num_own = len(range(self._ranks.rank, self.num_episodes, self._ranks.world_size))
        return num_own, self.table.num_ended, footage_of(self.env).frames

    def _play(
        self, policy: Policy, check_stop: Callable[[], None], deterministic: bool, on_step: Callable[[], None]
    ) -> None:
        """Play this rank's episodes, each to its end."""
        env, process_group, num_own = self.env, self._ranks, self.progress()[0]
        # Number of each environment's present episode.
        episode = torch.arange(env.num_envs, device=env.device) * process_group.world_size + process_group.rank
        options: dict[str, Any] = {"enumerate_episodes": True}
        if process_group.world_size > 1:
            options["share"] = (process_group.rank, process_group.world_size)
        obs, _ = env.reset(seed=self._seed, options=options)
        state = torch.zeros(env.num_envs, policy.state_size, device=self._device) if policy.state_size else None
        take = step_with(env, policy.chunk_length)
        while self.table.num_ended < num_own:
            step = policy.get_action(policy_input(policy, obs, state, self._device), deterministic)
            obs, reward, terminated, truncated, info = take(step["action"].to(env.device))
            check_stop()
            done = terminated | truncated
            self.table.on_step(reward, info, done, episode)
            on_step()
            if state is not None:
                state = step["next_state"].masked_fill(done.to(self._device).unsqueeze(-1), 0.0)
            episode[done] += env.num_envs * process_group.world_size


def means_of(shares: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return the means of metrics [E] over the episodes that have them; each process has its own episodes."""
    names = {name: None for share in shares for name in share}
    return {name: float(torch.cat([share[name] for share in shares if name in share]).nanmean()) for name in names}


def wilson_interval(rate: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, 1927)."""
    z = 1.96
    centre = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (rate * (1 - rate) / count + z * z / (4 * count * count)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)
