"""A task in a page of the browser, at its own pace: for ``play --viewer`` and ``view --viewer``.

Shapes: one environment, H steps of an action chunk, A action size, S size of a policy's hidden state."""

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import torch

from embodichain.agents.rl.models import Policy, policy_input
from embodichain.commands.view import HandAgent
from embodichain.ext.viewer.training import close_server, metrics_html, open_server, page_address
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import CommandTerm
from embodichain.lab.sim.rendering.live_scene import LiveScene
from embodichain.utils import logger

_LISTED = 5  # episodes on the page
_IDLE = 0.05  # s between checks for a click while paused
_SPEEDS = (0.1, 4.0)
_NOTCHES = 40  # of a command's slider


def play_live(env: EmbodiedEnv, policy: Policy, device: torch.device, seed: int, episodes: int | None = None) -> None:
    """Play a task in the browser until Ctrl-C, or for ``episodes``; see :class:`LiveTask`."""
    with closing(LiveTask(env, policy, device, seed)) as task:
        try:
            task.run(episodes)
        except KeyboardInterrupt:
            return


class LiveTask:
    """Plays a task in the browser.

    It pauses while no page is open. The page has buttons to pause, to make one step and to begin the next episode, a
    slider for the speed relative to simulated time, and the metrics of the step. If the task has commands, each has a
    switch and sliders to steer by hand.

    Args:
        policy: policy that acts deterministically.
        seed: seed of the first episode; *Next episode* increments it.
    """

    def __init__(self, env: EmbodiedEnv, policy: Policy, device: torch.device, seed: int) -> None:
        self._env, self._policy, self._device, self._seed = env, policy, device, seed
        self._begin_episode()
        self.ended: deque[tuple[str, str]] = deque(maxlen=_LISTED)
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
        self._steering = Steering(env.command_manager.terms, gui)
        self._metrics = gui.add_html("")
        self._scene = LiveScene(self._server, env.sim.backend, env.sim.appearance)
        self.url = page_address(self._server)
        logger.log_info(f"viewer: {self.url}   Ctrl-C ends it")

    def run(self, episodes: int | None = None) -> None:
        """Play ``episodes`` to their end; None: until KeyboardInterrupt."""
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
        self._steering.apply()
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
            self._metrics.content = metrics_html(self._columns(), "No step yet.")

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

    # The server's thread calls the methods below.

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


class Steering:
    """Sliders that replace the drawn commands of an environment while their switch is on.

    Args:
        terms: the environment's commands by name; commands without ``numbers`` have no sliders.
        gui: gui of a viser server.
    """

    def __init__(self, terms: Mapping[str, CommandTerm], gui: Any) -> None:
        self._panels: list[tuple[CommandTerm, Any, list[Any]]] = []
        for name, term in terms.items():
            if not term.numbers:
                continue
            with gui.add_folder(f"Command {name}"):
                switch = gui.add_checkbox("Steer by hand", initial_value=False)
                bounds = zip(term.numbers, *term.limits(), strict=True)
                sliders = [
                    gui.add_slider(label, low, high, (high - low) / _NOTCHES or 1.0, min(max(0.0, low), high))
                    for label, low, high in bounds
                ]
            self._panels.append((term, switch, sliders))

    def apply(self) -> None:
        """Give the environment the sliders' commands, or let it draw its own."""
        for term, switch, sliders in self._panels:
            term.hold([slider.value for slider in sliders] if switch.value else None)


def _rows(values: Mapping[str, torch.Tensor]) -> list[tuple[str, str]]:
    return [(name, f"{float(value) + 0.0:.4g}") for name, value in values.items()]  # + 0: no "-0"
