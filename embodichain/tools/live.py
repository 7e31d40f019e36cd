"""A task in a page of the browser, at its own pace: for ``play --viewer`` and ``view --viewer``.

Shapes: one environment, H steps of an action chunk, A action size, S size of a policy's hidden state."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import torch

from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.trainer.viewer import (
    close_server,
    metrics_html,
    open_server,
    page_address,
)
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.rendering.live_scene import LiveScene
from embodichain.tools.agents import ZeroAgent, action_numbers
from embodichain.utils import logger

_KEPT = 5  # episodes that the page lists
_IDLE = 0.05  # s between two looks for a click, while nothing moves
_SPEEDS = (0.1, 4.0)
_NOTCHES = 200  # of a slider


def play_live(env: EmbodiedEnv, policy: Policy, device: torch.device, seed: int, episodes: int | None = None) -> None:
    """Play a task in the browser until Ctrl-C, or for so many episodes; see ``LiveTask``."""
    with closing(LiveTask(env, policy, device, seed)) as task:
        try:
            task.run(episodes)
        except KeyboardInterrupt:
            return


class LiveTask:
    """Plays a task in the browser until it is interrupted, or for so many episodes.

    Nothing moves while no page is open. The page has buttons to pause, to make one step and to begin another episode,
    the speed by the task's own clock, and the metrics of the step.

    Args:
        policy: chooses its most likely actions.
        seed: of the first episodes; *Next episode* counts it up.
    """

    def __init__(self, env: EmbodiedEnv, policy: Policy, device: torch.device, seed: int) -> None:
        self._env, self._policy, self._device, self._seed = env, policy, device, seed
        self._begin_episode()
        self.ended: deque[tuple[str, str]] = deque(maxlen=_KEPT)
        self.num_ended = 0
        self._server = open_server()
        gui = self._server.gui
        self._clicked = threading.Event()
        self._is_paused, self._wants_step, self._wants_episode = False, False, False
        self._pause = gui.add_button("Pause")
        self._pause.on_click(self._switch)
        gui.add_button("One step").on_click(self._ask_step)
        gui.add_button("Next episode").on_click(self._ask_episode)
        self._speed = gui.add_slider("Speed", *_SPEEDS, step=0.1, initial_value=1.0)
        if isinstance(policy, HandAgent):
            policy.place_sliders(gui)
        self._figures = gui.add_html("")
        self._scene = LiveScene(self._server, env.sim.backend, env.sim.appearance)
        self.url = page_address(self._server)
        logger.log_info(f"viewer: {self.url}   Ctrl-C ends it")

    def run(self, episodes: int | None = None) -> None:
        """Play.

        Args:
            episodes: how many are played to their end; None: until KeyboardInterrupt.
        """
        period = self._env.step_dt
        due = time.monotonic()
        while episodes is None or self.num_ended < episodes:
            if self._wants_episode:
                self._wants_episode = False
                self._seed += 1
                self._begin_episode()
                self._show()
            if not self._server.get_clients() or (self._is_paused and not self._wants_step):
                self._wait_for_click()
                due = time.monotonic()
                continue
            self._wants_step = False
            self._step()
            self._show()
            due = max(due + period / self._speed.value, time.monotonic())
            time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)

    def close(self) -> None:
        """End the server."""
        close_server(self._server)

    def _begin_episode(self) -> None:
        self._obs, _ = self._env.reset(seed=self._seed)
        self._state = torch.zeros(1, self._policy.state_size, device=self._device) if self._policy.state_size else None
        self._plan: list[torch.Tensor] = []
        self._return, self._length = 0.0, 0
        self._info: dict[str, Any] | None = None

    @torch.no_grad()
    def _step(self) -> None:
        if not self._plan:
            step = self._policy.get_action(
                policy_input(self._policy, self._obs, self._state, self._device), deterministic=True
            )
            self._plan = list(step["action"].unbind(1)) if self._policy.chunk_length > 1 else [step["action"]]
            if self._state is not None:
                self._state = step["next_state"]
        action = self._plan.pop(0)
        self._obs, reward, terminated, truncated, self._info = self._env.step(action.to(self._env.device))
        self._return += float(reward)
        self._length += 1
        if terminated | truncated:
            self.num_ended += 1
            outcome = "success" if self._info["success"] else "no success"
            self.ended.append((f"{self.num_ended}", f"{outcome}, {self._return:.3f}, {self._length} steps"))
            self._return, self._length, self._plan = 0.0, 0, []
            if self._state is not None:
                self._state.zero_()

    def _wait_for_click(self) -> None:
        self._clicked.wait(_IDLE)
        self._clicked.clear()

    def _show(self) -> None:
        with self._server.atomic():
            self._scene.update()
            self._figures.content = metrics_html(self._columns(), "Nothing has moved yet.")

    def _columns(self) -> dict[str, list[tuple[str, str]]]:
        if self._info is None:
            return {}
        episode = [("step", f"{self._length}"), ("return", f"{self._return:.3f}")]
        if instruction := self._env.instructions()[0]:
            episode.append(("instruction", instruction))
        return {
            "episode": episode,
            "reward of the step": _rows(self._info["rewards"]),
            "metrics": _rows(self._info["metrics"]),
            "ended": list(self.ended),
        }

    # What follows is called by the server's thread.

    def _switch(self, event: Any) -> None:
        self._is_paused = not self._is_paused
        self._pause.label = "Resume" if self._is_paused else "Pause"
        self._clicked.set()

    def _ask_step(self, event: Any) -> None:
        if not self._is_paused:
            self._switch(event)
        self._wants_step = True
        self._clicked.set()

    def _ask_episode(self, event: Any) -> None:
        self._wants_episode = True
        self._clicked.set()


def _rows(values: Mapping[str, torch.Tensor]) -> list[tuple[str, str]]:
    return [(name, f"{float(value) + 0.0:.4g}") for name, value in values.items()]  # + 0: no "-0"


class HandAgent(ZeroAgent):
    """Does what the sliders of a page say; at first each is 0, or as near to it as it goes.

    Args:
        env: says what an action means.
    """

    def __init__(self, env: EmbodiedEnv) -> None:
        super().__init__(env.single_action_space)
        self._numbers = action_numbers(env)
        self._sliders: list[tuple[Any, float]] = []  # and where each begins

    def place_sliders(self, gui: Any) -> None:
        """Put a slider for each number of the action into a viser server's panel."""
        with gui.add_folder("Action"):
            gui.add_button("Let go").on_click(self._let_go)
            for i, number in enumerate(self._numbers):
                low = number.low if math.isfinite(number.low) else -1.0
                high = number.high if math.isfinite(number.high) else 1.0
                start = min(max(0.0, low), high)
                label = number.moves or f"{number.term} {i}"
                self._sliders.append((gui.add_slider(label, low, high, (high - low) / _NOTCHES, start), start))

    def _let_go(self, event: Any) -> None:
        for slider, start in self._sliders:
            slider.value = start

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[slider.value for slider, _ in self._sliders]], dtype=zeros.dtype)
