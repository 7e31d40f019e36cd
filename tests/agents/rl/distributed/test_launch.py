from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.distributed import launch, process_group
from embodichain.agents.rl.distributed.launch import (
    FailedProcessError,
    as_arguments,
    find_launched_run,
    hand_back,
    record_launch,
    start_local_processes,
)
from embodichain.agents.rl.distributed.placement import Launch, Placement
from embodichain.agents.rl.distributed.stop import InterruptedTraining


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


def test_damaged_record_is_passed_over() -> None:
    folder = run_of("x_1", Launch("job7", "a"))
    (folder / "launch.json").write_text("{")
    assert find("job7", "a", True) is None


def test_process_without_a_launcher_finds_no_run() -> None:
    run_of("x_1", Launch("none", ""))
    assert find_launched_run("x", Placement(), False) is None


def test_command_line_says_what_the_call_said() -> None:
    arguments = as_arguments("a.json", ["trainer.seed=3"], ["mine", "yours"], "latest", ["data"])
    imports = "--allow-import mine --allow-import yours"
    expected = f"--config a.json {imports} --allow-write data --resume latest trainer.seed=3"
    assert arguments == expected.split()
    assert as_arguments(None, [], [], None, []) == []


@pytest.fixture
def run_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], dict[str, Any]]:
    """Starts so many processes that run a script in place of the training."""
    popen, prelude = subprocess.Popen, "import json, os, signal, sys, time; rank = int(os.environ['RANK'])"
    leave = "folder = os.environ['EMBODICHAIN_RENDEZVOUS']"

    def start(count: int, script: str) -> dict[str, Any]:
        def start_one(command: list[str], **kwargs: Any) -> Any:
            assert command[1:] == ["-m", "embodichain.agents.rl.train", "--config", "a.json", "--distributed"]
            return popen([sys.executable, "-c", f"{prelude}; {leave}\n{script}"], **kwargs)

        monkeypatch.setattr(subprocess, "Popen", start_one)
        return start_local_processes(count, ["--config", "a.json"])

    return start


Run = Callable[[int, str], dict[str, Any]]


def test_local_processes_meet_in_a_private_folder_and_listen_on_loopback_alone(
    run_script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    summary = run_script(
        2,
        "said = dict(os.environ) | {'mode': os.stat(folder).st_mode & 0o777}\n"
        "if rank == 0: json.dump(said, open(folder + '/summary.json', 'w'))",
    )
    assert summary["mode"] == 0o700
    assert [summary[f"{name}_SOCKET_IFNAME"] for name in ("GLOO", "NCCL")] == ["lo", "lo"]
    assert not Path(summary["EMBODICHAIN_RENDEZVOUS"]).exists()
    placement = Placement.from_environment(summary)
    assert placement == Placement(0, 2, 0, 2, restarts=0, launch=None)


def test_summary_is_handed_back_only_to_who_has_started_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not hand_back({"a": 1})
    monkeypatch.setenv("EMBODICHAIN_RENDEZVOUS", str(tmp_path))
    assert hand_back({"a": 1})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"a": 1}


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("raise SystemExit(3)", r"rank 1 \(process \d+\) failed \(exit code 3\): see above"),
        ("os.kill(os.getpid(), 9)", r"rank 1 \(process \d+\) was ended by SIGKILL: see above"),
    ],
)
def test_process_that_fails_is_named_and_the_others_are_ended(run_script: Run, fails: str, message: str) -> None:
    with pytest.raises(FailedProcessError, match=f"^the training has failed: {message}$"):
        run_script(3, f"if rank == 1: {fails}\ntime.sleep(60)")


def test_process_that_has_said_why_it_fails_is_named_before_one_that_has_only_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error_1.json"))
    process_group._record(RuntimeError("the robot fell"))
    failed = [launch._Failed(0, 70, 1), launch._Failed(1, 71, 1), launch._Failed(2, 72, -15)]
    message = "the training has failed: rank 1 (process 71) failed (exit code 1): RuntimeError: the robot fell"
    assert str(launch._failure(failed, tmp_path)) == message
    (tmp_path / "error_1.json").unlink()
    assert "rank 2 (process 72) was ended by SIGTERM: see above" in str(launch._failure(failed, tmp_path))


def test_process_that_does_not_end_is_killed(run_script: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_GRACE", 0.2)
    stubborn = "signal.signal(15, signal.SIG_IGN); open(folder + '/up', 'w').close(); time.sleep(60)"
    fails = "while not os.path.exists(folder + '/up'): time.sleep(0.01)\n"
    with pytest.raises(FailedProcessError, match="rank 0"):
        run_script(2, f"if rank == 1: {stubborn}\n{fails}sys.exit(1)")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_is_handed_on_to_the_local_processes(run_script: Run, number: int, code: int) -> None:
    parent = f"signal.signal({int(number)}, lambda *_: sys.exit({code})); os.kill({os.getpid()}, {int(number)})"
    with pytest.raises(InterruptedTraining) as raised:
        run_script(2, f"if rank == 1: {parent}\ntime.sleep(60)")
    assert raised.value.exit_code == code
