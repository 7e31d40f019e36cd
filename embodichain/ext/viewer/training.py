"""A page in the browser that shows a training while it runs, and pauses it."""

import html
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

import rich

from embodichain.agents.rl.metrics.panel import Rows, panel_rows
from embodichain.agents.rl.trainer.viewer import Viewer
from embodichain.utils import logger

_OWN_NAMES = ("127.0.0.1", "localhost", "::1")
_SHOWN = 100  # characters of a foreign header at most
HOST = "127.0.0.1"  # this machine's users alone
PORT = 8080  # or the next one that is free
_PERIOD = 0.05  # s between two images at least
_SHARE = 0.05  # of the stepping thread's time that images may take at most
_POLL = 0.1  # s between two looks for a signal while the training is paused


class Scene(Protocol):
    """The page's view of the environments."""

    def update(self) -> None:
        """Show their present state; called by the thread that steps them, between two steps."""


class Pause:
    """Lets one thread pause another; ``seconds`` is the total time of the pauses."""

    def __init__(self) -> None:
        self._continues = threading.Event()
        self._continues.set()
        self.seconds = 0.0

    @property
    def is_on(self) -> bool:
        """Whether :meth:`wait` blocks."""
        return not self._continues.is_set()

    def switch(self, is_on: bool) -> None:
        """Begin or end the pause; from any thread."""
        if is_on:
            self._continues.clear()
        else:
            self._continues.set()

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Wait for the end of the pause; call ``meanwhile`` ten times a second, which may raise."""
        if not self.is_on:
            return
        start = time.perf_counter()
        try:
            while not self._continues.wait(_POLL):
                meanwhile()
        finally:
            self.seconds += time.perf_counter() - start


class BrowserViewer(Viewer):
    """A page of viser on this machine's own address: some environments, the latest metrics, and a button to pause.

    The thread that steps the environments renders the images, because only it may read their state; at most twenty a
    second, in at most a twentieth of its time, and none while no page is open.

    Args:
        make_scene: puts the environments into a ``viser.ViserServer``.

    Attributes:
        url: address of the page; it is logged.
    """

    def __init__(self, make_scene: Callable[[Any], Scene]) -> None:
        self._server = open_server()
        self._pause = Pause()
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
        if self._pause.is_on:

            def meanwhile() -> None:
                check_stop()
                self._show()  # a page may have been opened meanwhile

            self._pause.wait(meanwhile)
            self.paused_seconds = self._pause.seconds

    def on_iteration(
        self, iteration: int, iterations: int, step: int, metrics: Mapping[str, float], latest: Mapping[str, float]
    ) -> None:
        """Store the metrics for the next image; see ``Viewer``."""
        # Shown with the next image: iterations may be shorter than the time between two.
        counts = [("iteration", f"{iteration:,} of {iterations:,}"), ("steps", f"{step:,}")]
        self._columns = {"training": counts, **panel_rows(latest)}

    def close(self) -> None:
        """Stop the server; open pages show that."""
        self._pause.switch(is_on=False)
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
        self._pause.switch(not self._pause.is_on)
        self._button.label = "Resume" if self._pause.is_on else "Pause"


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
    server.request_share_url = _refuse_to_share  # type: ignore[method-assign]
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
