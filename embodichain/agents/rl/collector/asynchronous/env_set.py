"""One set of environments that rollouts come from, and where it stands.

Legend: N envs, T rollout steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.collector.asynchronous.inference import InferencePolicy
from embodichain.agents.rl.collector.base import StepCallback
from embodichain.agents.rl.collector.divergence import Divergences
from embodichain.agents.rl.collector.step_figures import RolloutOrigin, StepFigures
from embodichain.agents.rl.collector.sync_collector import SyncCollector
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.utils.state import freeze, thaw

__all__ = ["GroupWorker"]


class GroupWorker:
    """Fills rollouts of its own storage from one set of environments, one thread at a time.

    Args:
        group: its number.
        env: the environments; reset here, and then by themselves.
        policy: chooses the actions.
        device: where the rollouts live.
        on_step_callback: called after every step.
    """

    def __init__(
        self,
        group: int,
        env: VecEnv,
        policy: InferencePolicy,
        device: torch.device | str,
        on_step_callback: StepCallback | None,
    ) -> None:
        self.group = group
        self._figures = StepFigures()
        self._divergences = Divergences()
        self._versions: list[torch.Tensor] = []
        self._callback = on_step_callback
        self._engine = SyncCollector(env, policy, device, self._on_step)
        self._state: dict[str, Any] | None = None
        self._holds_rollout = False
        self._begun = 0
        self._last = -1  # number of the last rollout that was handed out

    def collect(self, num_steps: int, resets: bool) -> TensorDict:
        """Return a new rollout [N, T+1], with ``policy_version``, ``figures`` and ``origin``.

        Args:
            num_steps: T.
            resets: begin with new episodes.
        """
        self._holds_rollout = True
        number, self._begun = self._begun, self._begun + 1
        if resets:
            self._engine.reset()
        rollout = self._engine.collect(num_steps, self._engine.allocate(num_steps))
        # Not the version in use now: another group's thread may have taken a newer one since.
        bootstrap = self._engine.bootstrap["policy_version"]
        rollout["policy_version"] = torch.stack([*self._versions, bootstrap], dim=1)
        rollout["figures"] = self._figures.take()
        self._versions.clear()
        # New episodes are whole, whatever is missing before them.
        origin = RolloutOrigin(self.group, number, resets, self._take_divergences(rollout), self._capture())
        rollout.set_non_tensor("origin", origin)
        return rollout

    def delivered(self) -> None:
        """Take note that somebody else has the last rollout now."""
        self._holds_rollout = False

    def abandon(self) -> bool:
        """Forget a rollout that was not delivered, finished or not; return whether there was one."""
        held, self._holds_rollout = self._holds_rollout, False
        self._figures.clear()
        self._divergences = Divergences()
        self._versions.clear()
        return held

    def reset(self) -> None:
        """Begin new episodes in all environments."""
        self._engine.reset()
        self._state = None

    def remember_state(self) -> None:
        """Take the state as it is now for the one to resume from."""
        self._state = self._capture()

    def hand_out(self, rollout: TensorDict) -> None:
        """Take note that the learner gets a rollout: say whether it continues, and resume from the state after it."""
        origin: RolloutOrigin = rollout["origin"]
        continues = origin.continues or origin.number == self._last + 1
        rollout.set_non_tensor("origin", replace(origin, continues=continues))
        self._state, self._last = origin.state, origin.number

    def state(self) -> dict[str, Any]:
        """Return ``env`` and ``collector`` to resume from, as plain data."""
        return self._state if self._state is not None else self._capture()

    def load_state(self, state: dict[str, Any]) -> None:
        """Take ``collector`` of what ``state`` returned."""
        self._engine.load_state_dict(state)
        self._state, self._last = None, self._begun - 1

    def load_env_state(self, state: dict[str, Any]) -> bool:
        """Take ``env`` of what ``state`` returned; return whether the environments could."""
        self._state = None
        return self._engine.load_env_state_dict(state)

    def _capture(self) -> dict[str, Any]:
        # A copy, as the environments go on; thawed, so that it is the same as what they would say themselves.
        live = {"env": self._engine.env_state_dict(), "collector": self._engine.state_dict()}
        state: dict[str, Any] = thaw(freeze(live))
        return state

    def _take_divergences(self, rollout: TensorDict) -> tuple[int, dict[str, torch.Tensor]]:
        count, record = self._divergences.take(rollout)
        if count:
            record["env_ids"] = record["env_ids"] + self.group * rollout.batch_size[0]
        return count, record

    def _on_step(self, step: TensorDict, info: dict[str, Any]) -> None:
        self._versions.append(step["policy_version"])
        self._figures.on_step(step, info)
        self._divergences.on_step(info)
        if self._callback is not None:
            self._callback(step, info)
