"""What goes wrong in users' code, as terms that a config names. Shapes: N environments."""

from typing import Any

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers import Functor
from embodichain.lab.gym.envs.managers.base import ActionTerm


class bad_reward(Functor):  # noqa: N801 (terms are named like functions)
    """0, but not-a-number in environment 1 from one step on, up to another one; steps are counted from 1."""

    def __init__(self, cfg: Any, env: Any) -> None:
        super().__init__(cfg, env)
        self.count = 0

    def __call__(self, env: Any, obs: Any, action: Any, info: Any, since: int = 1, until: int = 10**9) -> Tensor:
        self.count += 1
        reward = torch.zeros(env.num_envs)
        if since <= self.count < until:
            reward[1] = float("nan")
        return reward


class bad_observation(Functor):  # noqa: N801
    """Two numbers, of which the second is not-a-number, or ``bad``, in environment 1 from one observation on."""

    def __init__(self, cfg: Any, env: Any) -> None:
        super().__init__(cfg, env)
        self.count = 0

    def __call__(self, env: Any, since: int = 1, until: int = 10**9, bad: str = "nan") -> Tensor:
        self.count += 1
        numbers = torch.zeros(env.num_envs, 2)
        if since <= self.count < until:
            numbers[1, 1] = float(bad)
        return numbers


class bad_drive(ActionTerm):  # noqa: N801
    """Holds the joints, but gives that of environment 1 no target in every ``period``-th step from the first on."""

    kind = "qpos"

    def configure(self, period: int = 3) -> None:
        self.period = period
        self.count = 0

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        target = self.present_qpos().clone()
        if self.count % self.period == 0:
            target[1] = float("nan")
        self.count += 1
        return {"qpos": target}
