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
import torch

from embodichain.agents.rl.distributed import launch
from embodichain.agents.rl.distributed import process_group as ranks
from embodichain.agents.rl.distributed.launch import (
    FailedProcessError,
    Launch,
    Placement,
    as_arguments,
    find_launched_run,
    hand_back,
    num_devices,
    rank_device,
    record_launch,
    share_processors,
    start_local_processes,
)
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.utils import ConfigError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "2",
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_placement_is_what_torchrun_says() -> None:
    placement = Placement.from_environment(TORCHRUN)
    assert placement is not None
    assert (placement.rank, placement.world_size, placement.local_rank, placement.local_world_size) == (3, 4, 1, 2)
    assert placement.restarts == 2
    assert placement.launch is not None
    assert placement.launch.run_id == "job7"
    assert f":{os.getppid()}:" in placement.launch.agent


def test_without_a_launcher_there_is_no_placement() -> None:
    assert Placement.from_environment({}) is None
    assert Placement.from_environment({"RANK": "0", "WORLD_SIZE": "1"}) is None  # as some clusters set it everywhere


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"MASTER_PORT": "abc"}, "MASTER_PORT: a launcher such as torchrun sets it to a number, got 'abc'"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT: must be from 1 to 65535, got 65536"),
        ({"MASTER_PORT": ""}, "MASTER_PORT: RANK and WORLD_SIZE are set, so this must be too"),
        ({"RANK": "one"}, "RANK: a launcher such as torchrun sets it to a number, got 'one'"),
        ({"RANK": "4"}, "RANK: must be less than WORLD_SIZE, got 4 and 4"),
        ({"LOCAL_RANK": ""}, "LOCAL_RANK: a launcher such as torchrun sets it to a number, got ''"),
    ],
)
def test_variables_that_make_no_sense_are_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Placement.from_environment(TORCHRUN | change)


def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert rank_device("auto", 1) == torch.device("cuda", 1)
    assert rank_device("cuda:0", 1) == torch.device("cuda", 1)
    assert rank_device("cpu", 1) == torch.device("cpu")
    assert num_devices(torch.device("cuda")) == 2
    with pytest.raises(
        ConfigError, match=r"LOCAL_RANK: process 2 of this machine has no GPU: there are 2 \(cuda:0 to cuda:1"
    ):
        rank_device("auto", 2)


def test_without_gpus_there_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert rank_device("auto", 5) == torch.device("cpu")
    assert num_devices(torch.device("cpu")) == 1


def test_processors_are_shared_on_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert share_processors(Placement(local_world_size=3)) == 2
    assert share_processors(Placement(local_world_size=16)) == 1
    assert given == [2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert share_processors(Placement(local_world_size=2)) == 4  # the physics'
    assert given == [2, 1]


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
    ranks._record(RuntimeError("the robot fell"))
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
