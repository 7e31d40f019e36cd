from __future__ import annotations

import os

import pytest
import torch

from embodichain.agents.rl.distributed.placement import Placement, count_processes, rank_device, share_processors
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
