from pathlib import Path

import pytest
import torch
from torch import nn

from embodichain import make
from embodichain.utils import ConfigError, device
from embodichain.utils.device import (
    available_memory,
    check_memory,
    constant,
    keeping_modes,
    torch_threads,
    warn_of_spinning_threads,
)

CPU = torch.device("cpu")


def test_constant_is_made_once_for_each_type() -> None:
    assert constant((1, 0), CPU) is constant((1, 0), CPU)
    assert constant((1, 0), CPU).tolist() == [1, 0]
    assert constant((True, False), CPU, torch.bool).tolist() == [True, False]
    assert constant((1.0, 0.0), CPU, torch.float32).dtype == torch.float32
    assert constant((), CPU).dtype == torch.int64


@pytest.mark.parametrize(
    ("threads", "variables", "count"), [(2, {}, 1), (1, {}, 0), (2, {"OMP_WAIT_POLICY": "PASSIVE"}, 0)]
)
def test_threads_that_spin_are_warned_of_once(
    threads: int,
    variables: dict[str, str],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    warn_of_spinning_threads.cache_clear()
    with torch_threads(threads):
        for _ in range(2):  # as a script does that builds an environment for the training and one for evaluations
            make("CartPoleRL", num_envs=1).close()
    assert capsys.readouterr().err.count("Put 'import embodichain' above the imports of torch") == count


def test_each_module_gets_its_own_mode_back_also_after_an_error() -> None:
    frozen = nn.Sequential(nn.Dropout(), nn.Dropout()).eval()
    frozen[1].train()
    network = nn.Sequential(nn.Dropout(), frozen)
    before = [module.training for module in network.modules()]
    assert before == [True, True, False, False, True]

    def fail() -> None:
        with keeping_modes(network):
            network.eval()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [module.training for module in network.modules()] == before


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    paths = tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(device, "_MEMINFO", paths[0])
    monkeypatch.setattr(device, "_CONTAINER_LIMIT", paths[1])
    return paths


def test_available_memory_is_within_the_containers_limit(limits: tuple[Path, Path]) -> None:
    meminfo, limit = limits
    assert available_memory() is None
    check_memory("num_envs", "environments", 10**18)  # nobody knows
    meminfo.write_text("MemTotal:  9 kB\nMemAvailable:  4 kB\nSwapFree:  1 kB\n")
    limit.write_text("max\n")
    assert available_memory() == 5 * 1024
    limit.write_text("4000\n")
    assert available_memory() == 4000


def test_more_than_there_is_is_refused_with_both_figures(limits: tuple[Path, Path]) -> None:
    limits[1].write_text("2000000000\n")
    check_memory("num_envs", "environments", 2_000_000_000)
    with pytest.raises(ConfigError, match=r"^num_envs: 7 environments take 3\.0 GB of memory at least, and 2\.0 "):
        check_memory("num_envs", "7 environments", 3_000_000_000)
