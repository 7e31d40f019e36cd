"""The fields of a VLA policy's rollouts are declared."""

from __future__ import annotations

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.collector import SyncCollector
from tests.agents.rl.buffer.test_layout import T, check
from tests.agents.rl.fakes import ChunkedEnv
from tests.ext.vla.test_policy import build


class SeeingEnv(ChunkedEnv):
    """Has an image and an instruction beside its numbers, as VLA policies read them."""

    def __init__(self) -> None:
        super().__init__(2)
        self.action_space = spaces.Box(-1, 1, (2, 2))

    def _obs(self) -> TensorDict:
        obs = super()._obs()
        obs["image"] = TensorDict({"front": torch.zeros(2, 16, 16, 3, dtype=torch.uint8)}, batch_size=[2])
        obs["state"] = torch.zeros(2, 4)
        obs["instruction"] = torch.zeros(2, 8, dtype=torch.int64)
        return obs


def test_every_field_of_a_rollout_is_in_the_table() -> None:
    policy = build()
    check(SyncCollector(SeeingEnv(), policy, "cpu").collect(T), policy, {"info", "executed", "entries"})
