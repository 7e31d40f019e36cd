"""The page that shows a training, also in a browser."""

import asyncio
import json
import queue
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from embodichain.agents.rl import build, train
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.agents.rl.run_config import load_run_config
from embodichain.ext.viewer import pages as viewer
from embodichain.ext.viewer.pages import BrowserViewer, metrics_html, refusal
from embodichain.utils import ConfigError, install_extra
from tests.agents.rl.fakes import tiny_config, write_config


def nothing() -> None:
    pass


# --- the figures ---


def test_names_from_a_config_are_text_in_the_page() -> None:
    page = metrics_html({"reward": [("<b>|{reach}", "0.5")], "update": []})
    assert "&lt;b&gt;|{reach}" in page
    assert "update" not in page


# --- the config ---


def test_missing_extra_is_said_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "viser", None)
    monkeypatch.setattr(build, "build_env", None)  # a call of it would fail
    assert train.main(["--config", write_config(tmp_path, tiny_config(trainer__viewer=True))]) == 2
    hint = install_extra("viewer")
    assert f"error: trainer.viewer: the package viser is not installed: {hint}" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("change", [{"trainer__asynchronous": {}}, {"trainer__model_type": "vla"}])
def test_viewer_and_asynchronous_collection_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_config(trainer__viewer=True, **change))
    with pytest.raises(ConfigError, match=r"^trainer\.viewer: cannot go together with asynchronous collection"):
        load_run_config(path)


# --- the server ---


class CountingScene:
    """Counts how often it is shown; raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.updates, self.error = 0, error

    def __call__(self, server: Any) -> Self:
        return self

    def update(self) -> None:
        self.updates += 1
        if self.error is not None:
            raise self.error


def set_clock(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Let the viewer read these times, one after the other; the server has the real ones."""
    monkeypatch.setattr(viewer, "time", SimpleNamespace(monotonic=iter(times).__next__, perf_counter=time.perf_counter))


Open = Callable[[CountingScene], BrowserViewer]


@pytest.fixture
def open_viewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    opened: list[BrowserViewer] = []

    def open_one(scene: CountingScene) -> BrowserViewer:
        opened.append(BrowserViewer(scene))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_page_is_served_to_this_machine_only_and_never_shared(
    open_viewer: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = open_viewer(CountingScene())
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", shown.url)
    with urllib.request.urlopen(shown.url) as answer:
        assert answer.status == 200
    assert shown._server.get_host() == "127.0.0.1"
    shown._server.request_share_url()
    said = capsys.readouterr()
    assert said.out == ""  # viser's own words
    assert f"viewer: {shown.url}" in said.err
    assert "asked to be shared" in said.err


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"Host": "127.0.0.1:8080"}, False),
        ({"Host": "localhost:9000"}, False),  # through a tunnel
        ({"Host": "evil.example:8080"}, True),  # a name that a stranger lets point to this machine
        ({}, True),
        ({"Host": "127.0.0.1:8080", "Upgrade": "websocket", "Origin": "http://127.0.0.1:8080"}, False),
        ({"Host": "127.0.0.1:8080", "Upgrade": "websocket", "Origin": "http://evil.example"}, True),
        ({"Host": "127.0.0.1:8080", "Upgrade": "websocket", "Origin": "http://127.0.0.1:9999"}, True),
        ({"Host": "127.0.0.1:8080", "Upgrade": "websocket"}, True),
        ({"Host": "evil.example", "Upgrade": "websocket", "Origin": "http://evil.example"}, True),
    ],
)
def test_only_our_own_page_is_let_in(headers: dict[str, str], is_refused: bool) -> None:
    assert (refusal(headers) is not None) is is_refused


def test_foreign_page_cannot_open_a_websocket_and_our_own_can(
    open_viewer: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    viser = pytest.importorskip("viser")
    from websockets.exceptions import InvalidStatus  # noqa: PLC0415 (comes with the extra)
    from websockets.sync.client import connect  # noqa: PLC0415

    shown = open_viewer(CountingScene())
    address = shown.url.replace("http", "ws")
    protocols: Any = [f"viser-v{viser.__version__}"]
    origins: list[Any] = ["http://evil.example", None]
    for origin in origins:
        with pytest.raises(InvalidStatus, match="403"):
            connect(address, origin=origin, subprotocols=protocols)
    own: Any = shown.url
    assert capsys.readouterr().err.count("a request from outside was refused: \"Origin 'http://evil.example'") == 1
    with connect(address, origin=own, subprotocols=protocols) as client:
        assert client.recv(timeout=10)
    request = urllib.request.Request(shown.url, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


def test_pause_holds_until_it_is_ended(open_viewer: Open) -> None:
    shown, looks = open_viewer(CountingScene()), []

    def look() -> None:
        looks.append(shown._button.label)
        if len(looks) == 2:
            asyncio.run(shown._switch(None))

    asyncio.run(shown._switch(None))
    shown.on_step(look)
    assert looks == ["Resume", "Resume"]
    assert shown._button.label == "Pause"
    # Two looks, a tenth of a second apart.
    assert shown.paused_seconds > 0.1


def test_signal_ends_a_training_that_is_paused(open_viewer: Open) -> None:
    def stop() -> None:
        raise InterruptedTraining(signal.SIGINT)

    shown = open_viewer(CountingScene())
    asyncio.run(shown._switch(None))
    with pytest.raises(InterruptedTraining):
        shown.on_step(stop)
    assert shown.paused_seconds > 0.05


def test_images_are_made_for_open_pages_at_most_20_a_second(open_viewer: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = CountingScene()
    shown = open_viewer(scene)
    set_clock(monkeypatch, 999.0, 999.0)
    shown.on_step(nothing)
    assert scene.updates == 0
    monkeypatch.setattr(shown._server, "get_clients", lambda: {0: None})
    counts = []
    for now in (1000.0, 1000.04, 1000.06, 1000.1, 1000.12):
        set_clock(monkeypatch, now, now)
        shown.on_step(nothing)
        counts.append(scene.updates)
    assert counts == [1, 1, 2, 2, 3]


def test_slow_images_come_less_often(open_viewer: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = CountingScene()
    shown = open_viewer(scene)
    monkeypatch.setattr(shown._server, "get_clients", lambda: {0: None})
    set_clock(monkeypatch, 10.0, 10.1, 12.0, 12.2, 12.3)  # the first takes 0.1 s: the next may come 2 s after its end
    for _ in range(3):
        shown.on_step(nothing)
    assert scene.updates == 2


def test_image_that_fails_ends_the_images_and_not_the_training(
    open_viewer: Open, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = CountingScene(RuntimeError("no triangles left"))
    shown = open_viewer(scene)
    monkeypatch.setattr(viewer, "_PERIOD", 0.0)
    monkeypatch.setattr(shown._server, "get_clients", lambda: {0: None})
    for _ in range(2):
        shown._next = 0.0
        shown.on_step(nothing)
    assert scene.updates == 1
    assert "no triangles left" in capsys.readouterr().err


def test_training_has_the_same_result_with_a_page_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viser = pytest.importorskip("viser", reason="the extra viewer is not installed")
    monkeypatch.setattr(viser.ViserServer, "get_clients", lambda server: {0: None})
    monkeypatch.setattr(viewer, "_PERIOD", 0.0)
    monkeypatch.setattr(viewer, "_SHARE", 1e9)  # an image after every step
    rows = []
    for name in ("without", "with"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        config = tiny_config(trainer__viewer=name == "with", trainer__enable_eval=False)
        assert train.main(["--config", write_config(folder, config)]) == 0
        (metrics,) = folder.glob("outputs/*/metrics.jsonl")
        lines = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
        rows.append([{k: v for k, v in line.items() if k.startswith(("train/", "rewards/"))} for line in lines])
    assert len(rows[0]) == 2
    assert rows[0] == rows[1]


# --- in a browser ---


class Stop:
    """Stands for the signals, which only the main thread gets."""

    event = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def check(self) -> None:
        if self.event.is_set():
            raise InterruptedTraining(signal.SIGINT)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, threading.Thread, list[int]]]:
    """A training of CartPole in another thread: the page's address, the thread, and where its exit code will be."""
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    monkeypatch.chdir(tmp_path)
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(viewer, "logger", SimpleNamespace(log_info=said.put))
    monkeypatch.setattr(Stop, "event", threading.Event())
    monkeypatch.setattr(train, "StopSignals", Stop)
    config = tiny_config(trainer__viewer=True, trainer__iterations=10**6, trainer__enable_eval=False)
    arguments, codes = ["--config", write_config(tmp_path, config)], []
    thread = threading.Thread(target=lambda: codes.append(train.main(arguments)))
    thread.start()
    try:
        yield said.get(timeout=30).removeprefix("viewer: "), thread, codes
    finally:
        Stop.event.set()
        thread.join(30)
        assert not thread.is_alive()


def test_browser_shows_a_training_and_pauses_it(
    training: tuple[str, threading.Thread, list[int]], browser: Any
) -> None:
    url, thread, codes = training
    page = browser.new_page(viewport={"width": 800, "height": 600})
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    pause = page.get_by_role("button", name="Pause", exact=True)
    pause.wait_for(timeout=20_000)
    assert page.locator("canvas").count() >= 1
    page.get_by_text("reward of a step").wait_for()
    row = page.locator("tr", has_text="calm")
    assert re.search(r"-?\d", row.first.inner_text())
    counter = page.locator("tr", has_text="iteration")

    pause.click()
    resume = page.get_by_role("button", name="Resume", exact=True)
    resume.wait_for()
    time.sleep(0.5)  # what was on its way
    paused_at = counter.inner_text()
    time.sleep(0.5)
    assert counter.inner_text() == paused_at
    resume.click()
    pause.wait_for()
    page.wait_for_function("before => !document.body.innerText.includes(before)", arg=paused_at)

    pause.click()
    resume.wait_for()
    Stop.event.set()  # as Ctrl-C
    thread.join(20)
    assert codes == [130]
    assert errors == []
    own = (url, f"blob:{url}", "data:")
    assert [request for request in requests if not request.startswith(own)] == []
