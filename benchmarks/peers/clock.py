"""Splits the iterations of any learner: seconds in env.step, in the update, and in everything else.

Legend: N environments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


@dataclass(frozen=True)
class Iteration:
    """One iteration, from the end of an update to the end of the next.

    Attributes:
        seconds: all of it.
        env_step: in the environment's own ``step``.
        update: in the update.
        gradient_steps: of all optimizers.
        threads: number of the update's threads.
        returns: mean return of the episodes that ended in it; None without such episodes.
    """

    seconds: float
    env_step: float
    update: float
    gradient_steps: int
    threads: int
    returns: float | None

    @property
    def policy(self) -> float:
        """Seconds in everything else: policy, storage, adapters, logs."""
        return self.seconds - self.env_step - self.update


class Clock:
    """Watches an environment's ``step`` and a learner's update.

    The clock's own work at a step (it stores the rewards, to check that the learner learns), and ``on_iteration``, are
    in none of the times.

    Attributes:
        iterations: the finished ones.
        act: set by a learner that can be evaluated: the deterministic actions [N, A] of flat observations [N, O].

    Args:
        now: returns the time, s.
        on_iteration: called after each iteration.
    """

    act: Callable[[torch.Tensor], torch.Tensor]

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, on_iteration: Callable[[Clock], None] | None = None
    ) -> None:
        self._now = now
        self._on_iteration = on_iteration
        self.iterations: list[Iteration] = []
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._return: np.ndarray | None = None
        self._begin()
        self._hook = register_optimizer_step_post_hook(self._count_gradient_step)

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def watch(self, env: Any) -> None:
        """Time ``env.step`` from now on: the first iteration begins."""
        step = env.step

        def timed(action: Any) -> Any:
            begun = self._now()
            result = step(action)
            end = self._now()
            self._env_step += end - begun
            _, reward, terminated, truncated, _ = result
            self._seen.append((reward.clone(), terminated | truncated))
            self._own += self._now() - end
            return result

        env.step = timed
        self._begin()

    def count_as_update(self, owner: Any, name: str, is_last: bool = False) -> None:
        """Count a method of a learner as part of its update.

        Args:
            owner: object with the method.
            name: the method's.
            is_last: the iteration ends with it.
        """
        method: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.updating(is_last):
                return method(*args, **kwargs)

        setattr(owner, name, timed)

    @contextmanager
    def updating(self, is_last: bool = False) -> Iterator[None]:
        """Count the block as part of the update; ``is_last``: the iteration ends with it."""
        begun = self._now()
        yield
        end = self._now()
        self._update += end - begun
        if is_last:
            self._end_iteration(end)

    def _begin(self) -> None:
        self._env_step = self._update = self._own = 0.0
        self._gradient_steps = 0
        self._begun = self._now()

    def _end_iteration(self, end: float) -> None:
        seconds = end - self._begun - self._own
        threads, returns = torch.get_num_threads(), self._mean_return()
        self.iterations.append(Iteration(seconds, self._env_step, self._update, self._gradient_steps, threads, returns))
        if self._on_iteration is not None:
            self._on_iteration(self)
        self._begin()

    def _mean_return(self) -> float | None:
        """Accumulate returns over the recorded steps; return the mean return of the episodes that ended."""
        ended: list[float] = []
        for reward, done in self._seen:
            rewards, dones = reward.double().cpu().numpy(), done.cpu().numpy()
            self._return = rewards if self._return is None else self._return + rewards
            ended.extend(self._return[dones].tolist())
            self._return = np.where(dones, 0.0, self._return)
        self._seen.clear()
        return sum(ended) / len(ended) if ended else None

    def _count_gradient_step(self, *_: Any) -> None:
        self._gradient_steps += 1
