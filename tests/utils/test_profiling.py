import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.train import main
from embodichain.utils.profiling import Profiler, section
from tests.agents.rl.fakes import tiny_config, write_config


class Clock:
    """Stands still until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("embodichain.utils.profiling.time.perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


Start = Callable[[Path], Profiler]


@pytest.fixture
def started() -> Iterator[Start]:
    """Start a profiler; it is stopped after the test."""
    profilers: list[Profiler] = []

    def start(folder: Path) -> Profiler:
        profilers.append(Profiler(folder))
        profilers[-1].start()
        return profilers[-1]

    yield start
    for profiler in profilers:
        profiler.stop()


def test_sections_nest_and_keep_what_is_their_own(tmp_path: Path, clock: Clock, started: Start) -> None:
    profiler = started(tmp_path)
    for _ in range(2):
        with section("outer"):
            clock.now += 1.0
            with section("inner"):
                clock.now += 3.0
    (root,) = profiler.threads.values()
    outer = root.children["outer"]
    # 2 x (1 + 3) s in it, of which 2 x 3 s inside the inner one
    assert (outer.seconds, outer.calls) == (8.0, 2)
    assert (outer.children["inner"].seconds, outer.children["inner"].calls) == (6.0, 2)
    assert "  inner" in profiler.report()
    assert "75.0%" in profiler.report()


def test_a_section_that_raises_is_left(tmp_path: Path, clock: Clock, started: Start) -> None:
    profiler = started(tmp_path)
    with pytest.raises(KeyError), section("fails"):
        raise KeyError
    with section("next"):
        clock.now += 1.0
    (root,) = profiler.threads.values()
    assert list(root.children) == ["fails", "next"]


def test_each_thread_has_a_tree_of_its_own(tmp_path: Path, started: Start) -> None:
    profiler = started(tmp_path)

    def work() -> None:
        with section("there"):
            pass

    with section("here"):
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    assert list(profiler.threads["worker"].children) == ["there"]
    assert list(profiler.threads["MainThread"].children["here"].children) == []
    assert "thread worker" in profiler.report()


def test_a_function_can_be_a_section_and_returns_what_it_did(tmp_path: Path, started: Start) -> None:
    @section("adding")
    def add(x: int, y: int = 1) -> int:
        return x + y

    assert add(1) == 2  # no profiler is started
    profiler = started(tmp_path)
    assert add(2, y=3) == 5
    profiler.stop()
    assert add(1) == 2
    assert profiler.threads["MainThread"].children["adding"].calls == 1


def test_a_section_that_was_entered_before_the_start_is_left_out(tmp_path: Path, started: Start) -> None:
    with section("outer"):
        profiler = started(tmp_path)
        with section("inner"):
            pass
    (root,) = profiler.threads.values()
    assert list(root.children) == ["inner"]


def test_a_training_says_where_its_time_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(Path(), tiny_config(trainer__enable_eval=False))
    assert main(["--config", config, "trainer.profile=trace", "trainer.iterations=4"]) == 0
    (folder,) = Path("outputs").iterdir()
    printed = capsys.readouterr().out
    assert (folder / "profile.txt").read_text(encoding="utf-8") in printed
    sections: dict[str, Any] = json.loads((folder / "profile.json").read_text(encoding="utf-8"))["MainThread"]
    iteration = sections["iteration"]
    # 4 iterations of 4 steps; the third is traced and not counted.
    assert iteration["calls"] == 3
    collect = iteration["children"]["collect"]["children"]
    assert collect["environment"]["calls"] == collect["policy"]["calls"] == 12
    assert collect["environment"]["children"]["physics"]["calls"] == 12
    assert {"actions", "observations", "rewards", "info"} <= collect["environment"]["children"].keys()
    update = iteration["children"]["update"]["children"]
    assert {"advantages", "loss", "optimizer"} <= update.keys()
    assert update["loss"]["calls"] > 0
    events = json.loads((folder / "profile_trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {"environment", "physics", "update"} <= {event.get("name") for event in events}
