"""``play --viewer`` and ``view --viewer``: a task in the browser."""

import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.models import policy_input
from embodichain.agents.rl.run_config import with_scene
from embodichain.cli import main
from embodichain.commands.validate import read_config
from embodichain.commands.view import HandAgent, ZeroAgent
from embodichain.ext.viewer import pages
from embodichain.ext.viewer.pages import LiveTask
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.motion.commands import motion_of
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import install_extra, replace
from tests.agents.rl.fakes import CART_POLE_ENV
from tests.lab.gym.envs.managers.test_motion import motion_env
from tests.lab.legs import legs_env

CPU = torch.device("cpu")
Start = Callable[..., tuple[str, threading.Thread, list[int]]]


@pytest.fixture
def env() -> Iterator[EmbodiedEnv]:
    env_id, cfg = read_config(CART_POLE_ENV, [], [])  # type: ignore[misc]
    built = build_env(env_id, replace(with_scene(cfg, "test"), num_envs=1))
    yield built
    built.close()


@pytest.fixture
def stop() -> threading.Event:
    """Return what stands for Ctrl-C, while no page is open."""
    return threading.Event()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, stop: threading.Event) -> Iterator[Start]:
    """Run a command in another thread: the page's address, the thread, and where the exit code will be."""
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    threads: list[threading.Thread] = []
    wait = LiveTask._wait_for_click

    def wait_or_stop(task: LiveTask) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        wait(task)

    monkeypatch.setattr(LiveTask, "_wait_for_click", wait_or_stop)

    def begin(*arguments: str) -> tuple[str, threading.Thread, list[int]]:
        said: queue.Queue[str] = queue.Queue()
        monkeypatch.setattr(pages, "logger", SimpleNamespace(log_info=said.put))
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(main([*arguments, "--viewer"])), daemon=True)
        thread.start()
        threads.append(thread)
        return said.get(timeout=60).split()[1], thread, codes

    yield begin
    stop.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


# --- by hand ---


def test_sliders_are_named_and_move_the_action(env: EmbodiedEnv) -> None:
    agent, gui = HandAgent(env), _Gui()
    agent.place_sliders(gui)
    (slider,) = gui.sliders
    assert (slider.label, slider.low, slider.high, slider.value) == ("slider_to_cart", -1.0, 1.0, 0.0)
    slider.value = 0.5
    td = policy_input(agent, env.reset()[0], None, CPU)
    assert agent.get_action(td)["action"].tolist() == [[0.5]]
    gui.let_go(None)
    assert agent.get_action(td)["action"].tolist() == [[0.0]]


def test_chunks_are_dropped_at_an_episodes_end(env: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("viser", reason="the extra viewer is not installed")

    class Chunks(ZeroAgent):
        chunk_length = 3
        asked = 0

        def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
            self.asked += 1
            return torch.full((1, 3, 1), 1.0)

    agent = Chunks(env.single_action_space)
    with closing(LiveTask(env, agent, CPU, seed=0)) as task:
        for _ in range(4):
            task._step()
        assert agent.asked == 2
        while not task.num_ended:
            task._step()
        asked = agent.asked
        task._step()
        assert agent.asked == asked + 1
        ((number, text),) = task.ended
        assert number == "1"
        assert re.fullmatch(r"no success, \d+\.\d{3}, \d+ steps", text)


def test_play_ends_after_the_episodes_asked_for(env: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    with closing(LiveTask(env, ZeroAgent(env.single_action_space), CPU, seed=0)) as task:
        monkeypatch.setattr(task._server, "get_clients", lambda: {0: None})
        task._speed.value = 4.0
        task.run(2)
        assert task.num_ended == len(task.ended) == 2


def test_page_shows_the_commands_of_the_first_robot() -> None:
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    legs = legs_env(2)
    with closing(LiveTask(legs, ZeroAgent(legs.single_action_space), CPU, seed=0)) as task:
        task._step()
        task._count.value, task._contacts.value = 1, False
        task._show()
        term = legs.command_manager.get_term("base_velocity")
        command = dict(task._columns()["command base_velocity"])
        assert list(command) == list(term.numbers)
        assert float(command["forwards, m/s"]) == pytest.approx(float(term.tracked[0, 0]), abs=1e-3)
        assert task._scene.count == 1
    legs.close()


def test_restart_begins_the_same_episode_again(env: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("viser", reason="the extra viewer is not installed")
    with closing(LiveTask(env, ZeroAgent(env.single_action_space), CPU, seed=0)) as task:
        monkeypatch.setattr(task._server, "get_clients", lambda: {0: None})
        task._speed.value = 4.0
        starts = []
        begin = task._begin_episode

        def noted() -> None:
            begin()
            starts.append(env.robot.get_qpos().tolist())

        monkeypatch.setattr(task, "_begin_episode", noted)
        task.run(1)  # the next one begins with the next seed
        for further in (0, 0, 1):
            task._ask_episode(further, None)
            task.run(task.num_ended + 1)
        assert starts[0] == starts[1] != starts[2]


# --- the commands ---


@pytest.mark.parametrize(("command", "out"), [(["play", "latest"], "x.mp4"), (["view", "train_config.json"], "x.png")])
def test_what_does_not_go_together_or_is_missing_is_said(
    command: list[str], out: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--viewer", "--out", out]) == 2
    assert "error: --out: nothing is written with --viewer" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "viser", None)
    assert main([*command, "--viewer"]) == 2
    hint = install_extra("viewer")
    assert f"error: --viewer: the package viser is not installed: {hint}" in capsys.readouterr().err


# --- in a browser ---


def test_browser_plays_a_policy(start: Start, stop: threading.Event, run_folder: Path, browser: Any) -> None:
    url, thread, codes = start("play", "latest")
    page = browser.new_page(viewport={"width": 800, "height": 600})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    button = lambda name: page.get_by_role("button", name=name, exact=True)  # noqa: E731
    button("Pause").click(timeout=20_000)
    button("Resume").wait_for()
    count = page.locator("tr", has_text="step").first
    before = int(count.inner_text().split()[-1])
    button("One step").click()
    # A step further, or the episode's last one.
    shown = "ns => ns.includes(document.querySelector('tr').innerText.split(/\\s/).pop())"
    page.wait_for_function(shown, arg=[str(before + 1), "0"])
    button("Next episode").click()
    page.get_by_text("No step yet.").wait_for()
    button("Resume").click()
    page.get_by_text("success, ").first.wait_for()  # 60 steps of 0.04 s
    page.close()
    stop.set()
    thread.join(20)
    assert codes == [0]
    assert errors == []


class _Gui:
    """A panel without a browser."""

    def __init__(self) -> None:
        self.sliders: list[SimpleNamespace] = []
        self.switches: list[SimpleNamespace] = []
        self.let_go: Any = None

    def add_folder(self, label: str) -> Any:
        return nullcontext()

    def add_button(self, label: str) -> Any:
        return SimpleNamespace(on_click=lambda function: setattr(self, "let_go", function))

    def add_checkbox(self, label: str, initial_value: bool) -> SimpleNamespace:
        self.switches.append(SimpleNamespace(label=label, value=initial_value))
        return self.switches[-1]

    def add_slider(self, label: str, low: float, high: float, step: float, value: float) -> SimpleNamespace:
        self.sliders.append(SimpleNamespace(label=label, low=low, high=high, value=value))
        return self.sliders[-1]


def test_a_command_is_steered_by_hand_while_its_switch_is_on() -> None:
    legs = legs_env(1)
    legs.reset()
    gui, term = _Gui(), legs.command_manager.get_term("base_velocity")
    steering = pages.Steering(legs.command_manager.terms, gui)
    drawn = term.command
    steering.apply()
    assert torch.equal(term.command, drawn)
    assert [slider.label for slider in gui.sliders] == list(term.numbers)
    gui.switches[0].value, gui.sliders[0].value = True, 0.75
    steering.apply()
    assert term.command.tolist() == [[0.75, 0.0, 0.0]]
    gui.switches[0].value = False
    steering.apply()
    legs.step(torch.zeros(1, 12))
    assert term.command.tolist() != [[0.75, 0.0, 0.0]]


def test_reference_is_a_translucent_robot_at_the_present_frame() -> None:
    env = motion_env()
    added: list[SimpleNamespace] = []

    def add(name: str, **look: Any) -> SimpleNamespace:
        added.append(SimpleNamespace(name=name, **look))
        return added[-1]

    scene: Any = SimpleNamespace(**{f"add_{kind}": add for kind in ("frame", "box", "icosphere", "cylinder")})
    reference = pages.Reference(scene, env)
    assert {shape.opacity for shape in added if hasattr(shape, "opacity")} == {0.35}
    motion = motion_of(env)
    motion.frame = torch.tensor([320])
    reference.update()
    torso = next(frame for frame in added if frame.name == "/env_0/reference/torso_link")
    state = motion.clips.links[320, env.robot.link_names.index("torso_link")].numpy()
    np.testing.assert_allclose(torso.position, state[:3])
    np.testing.assert_allclose(torso.wxyz, state[3:7])
