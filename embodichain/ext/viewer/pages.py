"""Pages in the browser, by viser: a training while it runs, and a task at its own pace.

Shapes of a task: one environment, H steps of an action chunk, A action size, S size of a policy's hidden state.
"""

import html
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import rich
import torch

from embodichain.agents.rl.metrics.panel import Rows, panel_rows
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.trainer.viewer import Viewer
from embodichain.commands.view import HandAgent
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import CommandTerm
from embodichain.lab.gym.envs.managers.motion.commands import MotionCommand
from embodichain.lab.sim.rendering.live_scene import LiveScene, add_geom, geom_looks, is_seen, texture_colours
from embodichain.utils import logger

_OWN_NAMES = ("127.0.0.1", "localhost", "::1")
_SHOWN = 100  # characters of a foreign header at most
HOST = "127.0.0.1"  # this machine's users alone
PORT = 8080  # or the next one that is free
_PERIOD = 0.05  # s between two images at least
_SHARE = 0.05  # of the stepping thread's time that images may take at most
_POLL = 0.1  # s between two looks for a signal while the training is paused
_LISTED = 5  # episodes on the page
_IDLE = 0.05  # s between checks for a click while paused
_SPEEDS = (0.1, 4.0)
_NOTCHES = 40  # of a command's slider
_REFERENCE_COLOUR = (0.3, 0.6, 0.9, 0.35)


# --- a training while it runs ---


class BrowserViewer(Viewer):
    """A page of viser on this machine's own address: some environments, the latest metrics, and a button to pause.

    The thread that steps the environments renders the images, because only it may read their state; at most twenty a
    second, in at most a twentieth of its time, and none while no page is open.

    Args:
        make_scene: puts the environments into a ``viser.ViserServer``; ``update()`` of its result shows their present
            state.
    """

    def __init__(self, make_scene: Callable[[Any], Any]) -> None:
        self._server = open_server()
        self._continues = threading.Event()
        self._continues.set()
        self._next = 0.0
        self._is_shown = True
        self._columns: dict[str, Rows] = {}
        self._button = self._server.gui.add_button("Pause")
        self._button.on_click(self._switch)
        self._metrics = self._server.gui.add_html(metrics_html({}))
        self._scene = make_scene(self._server)
        self.url = page_address(self._server)
        logger.log_info(f"viewer: {self.url}")

    def on_step(self, check_stop: Callable[[], None]) -> None:
        """Show the environments; see ``Viewer``."""
        self._show()
        if self._continues.is_set():
            return
        start = time.perf_counter()
        try:
            while not self._continues.wait(_POLL):
                check_stop()  # may raise
                self._show()  # a page may have been opened meanwhile
        finally:
            self.paused_seconds += time.perf_counter() - start

    def on_iteration(self, iteration: int, iterations: int, step: int, latest: Mapping[str, float]) -> None:
        """Store the metrics for the next image; see ``Viewer``."""
        # Shown with the next image: iterations may be shorter than the time between two.
        counts = [("iteration", f"{iteration:,} of {iterations:,}"), ("steps", f"{step:,}")]
        self._columns = {"training": counts, **panel_rows(latest)}

    def close(self) -> None:
        """Stop the server; open pages show that."""
        self._continues.set()
        close_server(self._server)

    def _show(self) -> None:
        start = time.monotonic()
        if start < self._next or not self._is_shown:
            return
        if self._server.get_clients():
            try:
                with self._server.atomic():
                    self._scene.update()
                    self._metrics.content = metrics_html(self._columns)
            except Exception as error:  # noqa: BLE001 (another library's; an image is not worth a training)
                self._is_shown = False
                logger.log_warning(f"viewer: {error!r}: the page shows no movement any more; the training continues")
        end = time.monotonic()
        self._next = max(start + _PERIOD, end + (end - start) / _SHARE)

    async def _switch(self, event: Any) -> None:
        """Pause or continue; in the server's loop, so that clicks of several pages do not overlap."""
        if self._continues.is_set():
            self._continues.clear()
            self._button.label = "Resume"
        else:
            self._continues.set()
            self._button.label = "Pause"


# --- a task at its own pace, for ``play --viewer`` and ``view --viewer`` ---


def play_live(env: EmbodiedEnv, policy: Policy, device: torch.device, seed: int, episodes: int | None = None) -> None:
    """Play a task in the browser until Ctrl-C, or for ``episodes``; see :class:`LiveTask`."""
    with closing(LiveTask(env, policy, device, seed)) as task, suppress(KeyboardInterrupt):
        task.run(episodes)


class LiveTask:
    """Plays a task in the browser.

    It pauses while no page is open. The page has buttons to pause, to make one step, to begin the episode again and to
    begin the next one, a slider for the speed relative to simulated time, switches to follow a robot with a free base
    and to show contact points, and the metrics of the step in the first environment. If the task has commands, each has
    a switch and sliders to steer by hand.

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
        self._is_paused, self._wants_step = False, False
        self._wanted_seed: int | None = None
        self._pause = gui.add_button("Pause")
        self._pause.on_click(self._switch)
        gui.add_button("One step").on_click(self._ask_step)
        gui.add_button("Restart").on_click(partial(self._ask_episode, 0))
        gui.add_button("Next episode").on_click(partial(self._ask_episode, 1))
        self._speed = gui.add_slider("Speed", *_SPEEDS, step=0.1, initial_value=1.0)
        self._count = gui.add_slider("Environments", 1, max(2, env.num_envs), 1, env.num_envs, visible=env.num_envs > 1)
        self._follows = gui.add_checkbox("Follow", env.followed_uid is not None, visible=env.followed_uid is not None)
        self._contacts = gui.add_checkbox("Contacts", True)
        if isinstance(policy, HandAgent):
            policy.place_sliders(gui)
        self._steering = Steering(env.command_manager.terms, gui)
        self._metrics = gui.add_html("")
        followed = None if env.followed_uid is None else env.sim.get_asset(env.followed_uid)
        self._scene = LiveScene(self._server, env.sim.backend, env.sim.appearance, followed, env.num_envs)
        self._reference = Reference(self._server.scene, env)
        self.url = page_address(self._server)
        logger.log_info(f"viewer: {self.url}   Ctrl-C ends it")

    def run(self, episodes: int | None = None) -> None:
        """Play ``episodes`` to their end; None: until KeyboardInterrupt."""
        period = self._env.step_dt
        due = time.monotonic()
        while episodes is None or self.num_ended < episodes:
            if self._wanted_seed is not None:
                self._seed, self._wanted_seed = self._wanted_seed, None
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
        count, size = self._env.num_envs, self._policy.state_size
        self._state = torch.zeros(count, size, device=self._device) if size else None
        self._plan: list[torch.Tensor] = []
        self._returns, self._lengths = torch.zeros(2, count, device=self._env.device)
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
        self._returns += reward
        self._lengths += 1
        done = terminated | truncated
        for env_id in done.nonzero().flatten().tolist():
            self.num_ended += 1
            outcome = "success" if self._info["success"][env_id] else "no success"
            text = f"{outcome}, {float(self._returns[env_id]):.3f}, {int(self._lengths[env_id])} steps"
            self.ended.append((f"{self.num_ended}", text))
        if done.any():
            if self._env.num_envs == 1:  # so that *Restart* begins this episode, not the seed's first
                self._wanted_seed = self._seed + 1
            self._returns[done], self._lengths[done], self._plan = 0.0, 0.0, []
            if self._state is not None:
                self._state[done.to(self._device)] = 0.0

    def _wait_for_click(self) -> None:
        self._clicked.wait(_IDLE)
        self._clicked.clear()

    def _show(self) -> None:
        with self._server.atomic():
            scene, switches = self._scene, (self._follows, self._contacts, self._count)
            scene.follows, scene.shows_contacts, scene.count = (switch.value for switch in switches)
            scene.update()
            self._reference.update()
            self._metrics.content = metrics_html(self._columns(), "No step yet.")

    def _columns(self) -> dict[str, list[tuple[str, str]]]:
        if self._info is None:
            return {}
        episode = [("step", f"{int(self._lengths[0])}"), ("return", f"{float(self._returns[0]):.3f}")]
        if instruction := self._env.instructions()[0]:
            episode.append(("instruction", instruction))
        return {
            "episode": episode,
            **{
                f"command {name}": _rows(dict(zip(term.numbers, term.tracked.unbind(1), strict=True)))
                for name, term in self._env.command_manager.terms.items()
                if term.numbers
            },
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

    def _ask_episode(self, further: int, event: Any) -> None:
        self._wanted_seed = self._seed + further
        self._clicked.set()


class Reference:
    """The reference motion of an environment's ``MotionCommand`` as a translucent second robot; else nothing.

    The scene is a viser server's, with a :class:`LiveScene`.
    """

    def __init__(self, scene: Any, env: EmbodiedEnv) -> None:
        self._motion, self._frames = env.command_manager.terms.get("motion"), list[Any]()
        if not isinstance(self._motion, MotionCommand):
            return
        model = env.sim.backend.visual_model
        looks = geom_looks(model, texture_colours(model))
        seen = is_seen(looks)
        looks[:, :4] = _REFERENCE_COLOUR
        for name in env.robot.link_names:
            body, frame = model.body(f"{env.robot.uid}/{name}").id, f"/env_0/reference/{name}"
            self._frames.append(scene.add_frame(frame, show_axes=False))
            for geom in np.flatnonzero(seen & (model.geom_bodyid == body)).tolist():
                add_geom(scene, f"{frame}/geom_{geom}", model, geom, looks[geom], np.zeros((2, 2)))
        self.update()

    def update(self) -> None:
        """Show the present frame."""
        if isinstance(self._motion, MotionCommand):
            states = self._motion.clips.links[self._motion.frame[0]].cpu().numpy()
            for frame, state in zip(self._frames, states, strict=True):
                frame.position, frame.wxyz = state[:3], state[3:7]


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
    """Return the first environment's values as text."""
    return [(name, f"{float(value[0]) + 0.0:.4g}") for name, value in values.items()]  # + 0: no "-0"


# --- the page and its server ---


def metrics_html(columns: Mapping[str, Rows], nothing: str = "The first iteration is not finished yet.") -> str:
    """Return the tables of ``panel_rows`` as HTML, or ``nothing`` if there are none."""
    tables = []
    for heading, rows in columns.items():
        if rows:
            cells = "".join(
                f"<tr><td>{html.escape(name)}</td><td style='text-align:right'>{html.escape(text)}</td></tr>"
                for name, text in rows
            )
            tables.append(f"<table style='width:100%'><caption><b>{html.escape(heading)}</b></caption>{cells}</table>")
    style = "padding:0 0.75em;font-size:0.85em;font-variant-numeric:tabular-nums"
    return f"<div style='{style}'>{''.join(tables) or nothing}</div>"


def open_server() -> Any:
    """Return a running ``viser.ViserServer`` that only this machine's own pages can reach."""
    import viser  # noqa: PLC0415 (an optional extra)

    with _quiet(), _own_pages_only():
        server = viser.ViserServer(host=HOST, port=PORT, label="EmbodiChain", verbose=False)
    # Otherwise a page may request a public address on the internet.
    server.request_share_url = _refuse_to_share
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server


def refusal(headers: Mapping[str, str]) -> str | None:
    """Return why a request is refused, or None.

    A browser lets any page of the internet open a WebSocket to this machine, with the page's ``Origin``. Allowed are
    requests to a name of this machine, on any port (tunnels), from a page of the same origin.

    Args:
        headers: headers of the request, case-insensitive.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in _OWN_NAMES:
        return f"Host '{host[:_SHOWN]}' is no name of this machine"
    if "Upgrade" in headers and origin != f"http://{host}":
        return f"Origin '{(origin or '')[:_SHOWN]}' is another page than http://{host}"
    return None


@contextmanager
def _own_pages_only() -> Iterator[None]:
    """Let a server that is started in the block refuse other pages; viser has no setting for it."""
    from websockets.asyncio import server  # noqa: PLC0415 (comes with the optional extra)

    serve, is_used, was_refused = server.serve, threading.Event(), threading.Event()

    def checked_serve(*args: Any, process_request: Callable[[Any, Any], Any], **kwargs: Any) -> Any:
        def check(connection: Any, request: Any) -> Any:
            reason = refusal(request.headers)
            if reason is None:
                return process_request(connection, request)
            if not was_refused.is_set():  # once: a page may ask again and again
                was_refused.set()
                logger.log_warning(f"viewer: a request from outside was refused: {reason!r}")
            return connection.respond(HTTPStatus.FORBIDDEN, f"{reason}\n")

        is_used.set()
        return serve(*args, process_request=check, **kwargs)

    vars(server)["serve"] = checked_serve
    try:
        yield
    finally:
        vars(server)["serve"] = serve
    if not is_used.is_set():
        raise RuntimeError("viewer: this version of viser does not let its server be guarded; install another one")


def page_address(server: Any) -> str:
    """Return the address of a server's page."""
    return f"http://{HOST}:{server.get_port()}"


def close_server(server: Any) -> None:
    """Stop a server; open pages show that."""
    with _quiet():
        server.stop()


def _refuse_to_share(*args: Any, **kwargs: Any) -> None:
    logger.log_warning("viewer: a page asked to be shared on the internet, which this server does not do")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress viser's output about its start and stop, on rich's own console."""
    console = rich.get_console()
    was_quiet, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = was_quiet
