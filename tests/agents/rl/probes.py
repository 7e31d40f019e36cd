"""Small environments that only a policy with the right inputs can solve. Shapes: N environments."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

IMAGE = "sensor/cam/color"


class ProbeEnv:
    """One number ``robot/clock``, the share of the episode that is left, and two classes of episodes.

    The right action is +1 or -1 by the class, drawn anew for each episode; the reward is -(action - right)^2 at the
    last step of an episode, 0 before. Every episode lasts ``length`` steps and ends as a termination.
    """

    length = 1

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.num_envs = num_envs
        self.device = torch.device("cpu")
        self.single_action_space = spaces.Box(-1, 1, (1,))
        self.action_space = spaces.Box(-1, 1, (num_envs, 1))
        self.single_observation_space = self.make_space()
        self.flattened_observation_space = spaces.Box(-1, 1, (self.num_numbers,))
        self.rollout: TensorDict | None = None
        self.slot = 0
        self._generator = torch.Generator().manual_seed(seed)
        self.t = 0
        self.right = self._draw()

    num_numbers = 1

    def make_space(self) -> spaces.Dict:
        return spaces.Dict({"robot": spaces.Dict({"clock": spaces.Box(-1, 1, (1,))})})

    def observe(self) -> dict[str, Any]:
        return {"robot": {"clock": torch.full((self.num_envs, 1), 1 - self.t / self.length)}}

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        self.t, self.right = 0, self._draw()
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        self.t += 1
        is_last = self.t == self.length
        reward = -(action.squeeze(-1) - self.right).square() * is_last
        info = {"final_obs": self._obs()}
        if is_last:
            self.t, self.right = 0, self._draw()
        terminated = torch.full((self.num_envs,), is_last)
        truncated = torch.zeros(self.num_envs, dtype=torch.bool)
        if self.rollout is not None:
            flags = {"reward": reward, "done": terminated, "terminated": terminated, "truncated": truncated}
            for name, value in flags.items():
                self.rollout[name][:, self.slot] = value
            self.slot += 1
        return self._obs(), reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        self.rollout, self.slot = rollout, 0

    def _draw(self) -> Tensor:
        return 2.0 * torch.randint(2, (self.num_envs,), generator=self._generator) - 1

    def _obs(self) -> TensorDict:
        return TensorDict(self.observe(), batch_size=[self.num_envs])


class ColourEnv(ProbeEnv):
    """The class is the colour of an image: red for +1, blue for -1, with noise."""

    def make_space(self) -> spaces.Dict:
        camera = spaces.Dict({"color": spaces.Box(0, 255, (8, 8, 3), np.uint8)})
        return spaces.Dict({**super().make_space().spaces, "sensor": spaces.Dict({"cam": camera})})

    def observe(self) -> dict[str, Any]:
        image = torch.randint(60, (self.num_envs, 8, 8, 3), dtype=torch.uint8, generator=self._generator)
        image[self.right > 0, :, :, 0] += 190
        image[self.right < 0, :, :, 2] += 190
        return super().observe() | {"sensor": {"cam": {"color": image}}}


class MemoryEnv(ProbeEnv):
    """The class is shown in ``robot/cue`` at the first step, and to be acted on at the fourth and last."""

    length = 4
    num_numbers = 2

    def make_space(self) -> spaces.Dict:
        number = spaces.Box(-1, 1, (1,))
        return spaces.Dict({"robot": spaces.Dict({"clock": number, "cue": number})})

    def observe(self) -> dict[str, Any]:
        robot = super().observe()["robot"]
        return {"robot": {**robot, "cue": (self.right * (self.t == 0)).unsqueeze(-1)}}
