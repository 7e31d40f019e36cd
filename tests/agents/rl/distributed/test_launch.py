from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.distributed.launch import (
    FailedProcessError,
    find_launched_run,
    record_launch,
    start_local_processes,
)
from embodichain.agents.rl.distributed.placement import Launch, Placement
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.utils import ConfigError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_of(name: str, launch: Launch, has_checkpoint: bool = True) -> Path:
    folder = Path("outputs") / name
    (folder / "checkpoints").mkdir(parents=True)
    if has_checkpoint:
        (folder / "checkpoints" / "x_step_1.pt").touch()
    record_launch(folder, launch)
    return folder


def find(run_id: str, agent: str, is_restart: bool, exp_name: str | None = "x") -> Path | None:
    return find_launched_run(exp_name, Placement(launch=Launch(run_id, agent)), is_restart)


def test_run_of_a_launch_is_found_again() -> None:
    run = run_of("x_1", Launch("job7", "node0:1:2"))
    assert find("job7", "node0:1:2", False) == run  # the same agent has started rank 0 anew
    assert find("job7", "node1:8:9", True) == run  # rank 0 is on another machine now
    assert find("job7", "node1:8:9", False) is None  # somebody uses the id a second time
    assert find("job8", "node0:1:2", True) is None
    assert find("job7", "node0:1:2", False, exp_name="y") is None
    assert find("job7", "node0:1:2", False, exp_name=None) == run


def test_launches_without_an_id_are_told_apart_by_their_agents() -> None:
    run = run_of("x_1", Launch("none", "node0:1:2"))
    assert find("none", "node0:1:2", True) == run
    assert find("none", "node0:1:3", True) is None


def test_newest_run_with_a_checkpoint_is_taken() -> None:
    first, second = (run_of(name, Launch("job7", "a")) for name in ("x_1", "x_2"))
    run_of("x_3", Launch("job7", "a"), has_checkpoint=False)
    os.utime(first / "launch.json", (1, 1))
    assert find("job7", "a", True) == second


def test_process_without_a_launcher_finds_no_run() -> None:
    run_of("x_1", Launch("none", ""))
    assert find_launched_run("x", Placement(), False) is None


# --- processes of this machine; each imports torch anew ---


def describe() -> dict[str, Any]:
    folder = os.environ["EMBODICHAIN_RENDEZVOUS"]
    mode = os.stat(folder).st_mode & 0o777
    return {"mode": mode, "folder": folder, "placement": Placement.from_environment(), "is_safe": sys.flags.safe_path}


def misbehave(how: str, parent: int, number: int = 0) -> dict[str, Any]:
    if os.environ["RANK"] == "1":
        if how == "raises":
            raise ConfigError("the robot fell")
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        with StopSignals() as stop:
            os.kill(parent, number)
            while True:
                stop.check()
                time.sleep(0.01)
    time.sleep(1)
    return {}


def test_processes_meet_in_a_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    found = start_local_processes(2, describe)
    assert found["placement"] == Placement(0, 2, 0, 2, restarts=0, launch=None)
    assert (found["mode"], found["is_safe"]) == (0o700, True)
    assert not Path(found["folder"]).exists()
    assert "RANK" not in os.environ


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("how", "message", "code"),
    [
        ("raises", r"rank 1: process 1 terminated with exit code 2 \(see above\)", 2),
        ("is killed", r"rank 1: process 1 terminated with signal SIGKILL \(see above\)", 1),
    ],
)
def test_process_that_fails_is_named(how: str, message: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FailedProcessError, match=f"^the training has failed: {message}$") as raised:
        start_local_processes(2, partial(misbehave, how, os.getpid()))
    assert raised.value.exit_code == code
    assert capfd.readouterr().err.endswith("error: the robot fell\n" if how == "raises" else "")


@pytest.mark.e2e
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_is_forwarded_to_the_processes(number: int, code: int) -> None:
    with pytest.raises(InterruptedTraining) as raised:
        start_local_processes(2, partial(misbehave, "waits", os.getpid(), number))
    assert raised.value.exit_code == code
