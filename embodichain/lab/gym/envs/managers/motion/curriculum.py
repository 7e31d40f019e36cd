"""Starts where episodes fail."""

import torch
from pydantic import PositiveInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.lab.sim.rows import chosen_rows


class motion_failures(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Start more episodes where they fail, and return the smoothed share of failures, [].

    The share f_k of episodes that fail in part k of the clips is an exponential mean over the episodes that end. The
    weight of a start at frame t is u over the number of starts, plus (1 - u) s_t / sum s with s_t = f + b f' + b^2 f''
    of the frame's part and the next two, or of the clip's last: a failure begins before it is seen (BeyondMimic's
    adaptive sampling, with means for its sums). A failure is an end before the clip's and before the time limit.

    Args:
        uniform_share: u.
        episodes: time constant of the mean, in episodes.
        before: b.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._failures: Tensor | None = None  # [K]; None before the first call

    @override
    def __call__(
        self,
        env: TermEnv,
        env_ids: Tensor,
        uniform_share: types.PositiveShare = 0.3,
        episodes: PositiveInt = 2000,
        before: types.Share = 0.5,
    ) -> Tensor:
        motion = motion_of(env)
        clips, frame, failed = motion.clips, motion.frame[env_ids], chosen_rows(env_ids)
        number = failed.sum()
        failed = failed & ~clips.is_last[frame]
        if (limit := env.cfg.max_episode_steps) is not None:
            failed = failed & (env.elapsed_steps[env_ids] < limit)
        if self._failures is None:
            self._failures = torch.zeros(int(clips.part[-1]) + 1, device=env.device)
        share = torch.zeros_like(self._failures).index_add(0, clips.part[frame], failed.float()) / number.clamp(min=1)
        self._failures = torch.lerp(share, self._failures, (1.0 - 1.0 / episodes) ** number)
        last = clips.part[clips.last]  # of each frame's clip
        follow = sum(before**k * self._failures[torch.minimum(clips.part + k, last)] for k in range(3))
        follow = (follow + 1e-9) * motion.starts  # without failures: uniform
        motion.weights = uniform_share * motion.starts / motion.starts.sum()
        motion.weights = motion.weights + (1.0 - uniform_share) * follow / follow.sum()
        return self._failures.sum()
