from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.utils.launch import (
    Launch,
    Placement,
    as_arguments,
    find_launched_run,
    num_devices,
    rank_device,
    record_launch,
    share_processors,
    start_local_processes,
)
from embodichain.agents.rl.utils.stop import InterruptedTraining
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


class FakeTorchrun:
    """Takes the place of the command: a script that leaves a run's folder, and ends with a code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        self.commands: list[list[str]] = []
        self.popen = subprocess.Popen
        self.script = script
        monkeypatch.setattr(subprocess, "Popen", self)

    def __call__(self, command: list[str], **kwargs: Any) -> Any:
        self.commands.append(command)
        (run_id,) = [word.partition("=")[2] for word in command if word.startswith("--rdzv-id=")]
        record = json.dumps({"run_id": run_id, "agent": "a"})
        return self.popen([sys.executable, "-c", self.script, record], **kwargs)


LEAVES_A_RUN = "import os, sys; os.makedirs('outputs/x_1'); open('outputs/x_1/launch.json', 'w').write(sys.argv[1])"


def test_local_processes_are_started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTorchrun(monkeypatch, LEAVES_A_RUN)
    assert start_local_processes(3, ["--config", "a.json"]) == Path("outputs/x_1")
    (command,) = fake.commands
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert "--nproc-per-node=3" in command
    assert command[-5:] == ["-m", "embodichain.agents.rl.train", "--config", "a.json", "--distributed"]


def test_local_processes_that_fail_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTorchrun(monkeypatch, "raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        start_local_processes(2, [])
    assert raised.value.returncode == 3


def test_signal_is_handed_on_to_the_local_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTorchrun(monkeypatch, "import time; print('up', flush=True); time.sleep(60)")
    real = signal.signal

    def signal_soon(number: int, handler: Any) -> Any:
        before = real(number, handler)
        if number == signal.SIGTERM and callable(handler) and handler.__name__ == "hand_on":
            time.sleep(0.2)
            os.kill(os.getpid(), number)
        return before

    monkeypatch.setattr(signal, "signal", signal_soon)
    with pytest.raises(InterruptedTraining) as raised:
        start_local_processes(2, [])
    assert raised.value.exit_code == 143
