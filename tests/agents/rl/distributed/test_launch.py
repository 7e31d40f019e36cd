import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.distributed.launch import (
    FailedProcessError,
    Launch,
    Placement,
    count_processes,
    find_launched_run,
    rank_device,
    record_launch,
    share_processors,
    start_local_processes,
)
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.utils import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")


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


def misbehave(how: str, parent: int) -> dict[str, Any]:
    if os.environ["RANK"] == "1":
        if how == "raises":
            raise ConfigError("the robot fell")
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        with StopSignals() as stop:
            os.kill(parent, signal.SIGTERM)
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
def test_signal_is_forwarded_to_the_processes() -> None:
    with pytest.raises(InterruptedTraining) as raised:
        start_local_processes(2, partial(misbehave, "waits", os.getpid()))
    assert raised.value.exit_code == 143


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


def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    second, third = (Placement(rank, 3, rank, 3) for rank in (1, 2))
    assert rank_device("auto", second) == torch.device("cuda", 1)
    assert rank_device("cuda:0", second) == torch.device("cuda", 1)
    assert rank_device("cpu", second) == torch.device("cpu")
    assert rank_device("cuda:1", None) == torch.device("cuda", 1)  # alone, the number counts
    assert count_processes(True, None, torch.device("cuda"), None) == 2
    with pytest.raises(
        ConfigError, match=r"LOCAL_RANK: process 2 of this machine has no GPU: there are 2 \(cuda:0 to cuda:1"
    ):
        rank_device("auto", third)
    with pytest.raises(ConfigError, match="--processes 3: each needs its own GPU, and there are 2; with"):
        count_processes(True, 3, torch.device("cuda"), None)


def test_without_gpus_there_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert rank_device("auto", Placement(5, 6, 5, 6)) == torch.device("cpu")
    assert count_processes(True, None, torch.device("cpu"), None) == 1
    assert count_processes(True, 3, torch.device("cpu"), None) == 3


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


def test_several_processes_that_nothing_asks_for_are_refused() -> None:
    assert count_processes(True, None, torch.device("cpu"), Placement(1, 2, 1, 2)) == 1  # this one
    with pytest.raises(ConfigError, match="WORLD_SIZE: this is one of 2 processes, and"):
        count_processes(False, None, torch.device("cpu"), Placement(1, 2, 1, 2))


def test_only_process_of_a_launcher_may_be_distributed() -> None:
    last = TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}
    assert Placement.from_environment(last) is None
    assert Placement.from_environment(last, distributed=True) is not None  # torchrun --nnodes=1:2
