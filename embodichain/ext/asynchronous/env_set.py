"""One set of environments of asynchronous collection, and its state to resume from.

Legend: N envs, T rollout steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import RolloutOrigin
from embodichain.agents.rl.collector.sync_collector import StepCallback, SyncCollector
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.ext.asynchronous.inference import InferencePolicy
from embodichain.utils.state import freeze, thaw


class EnvSet:
    """Fills newly allocated rollouts from one set of environments, one thread at a time."""

    def __init__(
        self,
        index: int,
        env: VecEnv,
        policy: InferencePolicy,
        device: torch.device | str,
        on_step_callback: StepCallback | None,
    ) -> None:
        self.index = index
        self.collector = SyncCollector(env, policy, device, on_step_callback, versioned=True)
        self._state: dict[str, Any] | None = None
        self._begun = 0
        self._last = -1  # number of the last rollout that was handed out

    def collect(self, num_steps: int, resets: bool, keeps_final_obs: bool) -> TensorDict:
        """Return a new rollout [N, T+1] with ``policy_version`` and ``origin``; ``resets``: begin new episodes."""
        number, self._begun = self._begun, self._begun + 1
        if resets:
            self.collector.reset()
        rollout = self.collector.collect(num_steps, self.allocate(num_steps, keeps_final_obs))
        # New episodes are whole, even if rollouts before them were dropped.
        rollout.set_non_tensor("origin", RolloutOrigin(self.index, number, resets, self._capture()))
        return rollout

    def allocate(self, num_steps: int, keeps_final_obs: bool) -> TensorDict:
        """Return new storage for a rollout [N, T+1]."""
        self.collector.keeps_final_obs = keeps_final_obs
        return self.collector.allocate(num_steps)

    def reset(self) -> None:
        """Begin new episodes in all environments."""
        self.collector.reset()
        self._state = None

    def save_state(self) -> None:
        """Make the current state the one to resume from."""
        self._state = self._capture()

    def hand_out(self, rollout: TensorDict) -> None:
        """Set a rollout's ``origin.continues`` as the learner gets it; its state is the one to resume from."""
        origin: RolloutOrigin = rollout["origin"]
        continues = origin.continues or origin.number == self._last + 1
        rollout.set_non_tensor("origin", replace(origin, continues=continues))
        self._state, self._last = origin.state, origin.number

    def state(self) -> dict[str, Any]:
        """Return ``env`` and ``collector`` to resume from, as plain data."""
        return self._state if self._state is not None else self._capture()

    def load_state(self, state: dict[str, Any]) -> None:
        """Load ``collector`` of the result of ``state``."""
        self.collector.load_state_dict(state)
        self._state, self._last = None, self._begun - 1

    def load_env_state(self, state: dict[str, Any]) -> bool:
        """Load ``env`` of the result of ``state``; return whether the environments can."""
        self._state = None
        return self.collector.load_env_state_dict(state)

    def _capture(self) -> dict[str, Any]:
        # A copy, as the environments continue; thawed, so that it equals their result.
        live = {"env": self.collector.env_state_dict(), "collector": self.collector.state_dict()}
        state: dict[str, Any] = thaw(freeze(live))
        return state
