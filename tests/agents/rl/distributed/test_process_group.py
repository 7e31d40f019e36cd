"""What several processes tell each other; ``x`` of rank r is often r + 1."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embodichain.agents.rl.distributed import process_group as group_module
from embodichain.agents.rl.distributed.process_group import (
    ProcessGroup,
    TorchProcessGroup,
    get_process_group,
    merged_moments,
    moments,
)
from embodichain.utils import ConfigError
from tests.agents.rl.distributed.processes import RankError, receive, run_ranks, start_ranks

several = pytest.mark.e2e

# --- one process ---


def test_alone_everything_is_what_was_given() -> None:
    process_group = ProcessGroup()
    x = torch.tensor([1.0, 2.0])
    assert process_group.sum(x) is x
    assert torch.equal(process_group.mean(x), x)
    assert process_group.gather(x).tolist() == [[1, 2]]
    assert process_group.gather_data("a") == ["a"]
    assert process_group.broadcast_data("a") == "a"
    assert process_group.run_on_main(lambda: 3) == 3
    parameter = nn.Parameter(x)
    process_group.average_gradients([parameter])
    assert parameter.grad is None
    assert process_group.differing({"x": x}) == []
    assert process_group.is_main
    assert isinstance(get_process_group(), ProcessGroup)


# --- moments ---


def test_moments_of_one_part() -> None:
    # 1, 3: mean 2, deviations 1 and 1; 0, 4: mean 2, deviations 2 and 2
    assert moments(torch.tensor([[1.0, 0.0], [3.0, 4.0]])).tolist() == [2, 2, 2, 2, 8]


def test_merged_parts_are_the_moments_of_all_samples() -> None:
    torch.manual_seed(0)
    x = 100 + torch.randn(11, 3, dtype=torch.float64)
    parts = torch.stack([moments(part) for part in x.split((2, 5, 1, 3))])
    count, mean, m2 = merged_moments(parts)
    assert count == 11
    torch.testing.assert_close(mean, x.mean(0))
    torch.testing.assert_close(m2, (x - x.mean(0)).square().sum(0))


def test_part_without_samples_changes_nothing() -> None:
    x = torch.randn(4, 2, dtype=torch.float64)
    alone = merged_moments(moments(x)[None])
    beside = merged_moments(torch.stack((moments(x[:0]), moments(x), moments(x[:0]))))
    assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True))


def test_one_part_comes_back_bit_for_bit() -> None:
    part = moments(torch.randn(7, 2, dtype=torch.float64))
    count, mean, m2 = merged_moments(part[None])
    assert torch.equal(torch.cat((count[None], mean, m2)), part)


# --- several ---


def collectives(process_group: TorchProcessGroup) -> dict[str, Any]:
    assert get_process_group() is process_group
    own = torch.tensor([process_group.rank + 1.0, 0.5])
    tensors = [torch.full((2, 2), float(process_group.rank)), torch.tensor(process_group.rank)]
    process_group.broadcast(tensors)

    def refuse() -> None:
        raise ConfigError("no such thing")

    try:
        process_group.run_on_main(refuse)
    except ConfigError as error:
        refusal = str(error)
    is_second = process_group.rank == 1
    compared = {"ordered": torch.tensor([2.0, 1.0] if is_second else [1.0, 2.0]), "tiny": torch.tensor(is_second)}
    return {
        "sum": process_group.sum(own).tolist(),
        "mean": process_group.mean(own).tolist(),
        "gather": process_group.gather(own)[:, 0].tolist(),
        "gather of scalars": process_group.gather(torch.tensor(process_group.rank)).tolist(),
        "gather_data": process_group.gather_data({"rank": process_group.rank, "long": "x" * process_group.rank}),
        "only_to_main": process_group.gather_data(torch.tensor([process_group.rank]), only_to_main=True),
        "broadcast": [tensor.sum().item() for tensor in tensors],
        "broadcast_data": process_group.broadcast_data(["of", process_group.rank]),
        "run_on_main": process_group.run_on_main(lambda: os.environ["RANK"]),
        "refusal": refusal,
        "own stays": own.tolist(),
        "same": process_group.differing({"same": torch.arange(5.0)}),
        "differing": process_group.differing({"same": torch.arange(5.0), **compared}),
    }


@several
def test_collective_operations() -> None:
    for rank, result in enumerate(run_ranks(3, collectives)):
        assert result["sum"] == [6, 1.5]
        assert result["mean"] == [2, 0.5]
        assert result["gather"] == [1, 2, 3]
        assert result["gather of scalars"] == [0, 1, 2]
        assert result["gather_data"] == [{"rank": r, "long": "x" * r} for r in range(3)]
        assert [x.item() for x in result["only_to_main"]] == ([0, 1, 2] if rank == 0 else [])
        assert result["broadcast"] == [0, 0]
        assert result["broadcast_data"] == ["of", 0]
        assert result["run_on_main"] == "0"
        assert result["refusal"] == "no such thing"
        assert result["own stays"] == [rank + 1, 0.5]
        assert (result["same"], result["differing"]) == ([], ["ordered", "tiny"])


def averaged(process_group: TorchProcessGroup) -> list[list[list[float] | None]]:
    """Average gradients in one bucket and in several, and weighted by samples of both ranks and of rank 0 alone.

    No rank has one of the last parameter.
    """
    results = []
    for samples, bucket_bytes in ((None, 2**20), (None, 1), ([1, 3], 2**20), ([5, 0], 2**20)):
        group_module.BUCKET_BYTES = bucket_bytes
        first, second, frozen, without, unused = (nn.Parameter(torch.zeros(2)) for _ in range(5))
        double = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        frozen.requires_grad_(False)
        first.grad = torch.tensor([1.0, 2.0]) * (process_group.rank + 1)
        second.grad = torch.tensor([1.0, float("nan") if samples and not samples[process_group.rank] else 0.0])
        double.grad = torch.tensor([process_group.rank], dtype=torch.float64)
        if process_group.rank == 0:
            without.grad = torch.tensor([8.0, 0.0])
        own = None if samples is None else torch.tensor(samples[process_group.rank])
        process_group.average_gradients([first, second, frozen, double, without, unused, first], own)
        found = (first, second, frozen, double, without, unused)
        results.append([None if p.grad is None else p.grad.tolist() for p in found])
    return results


@several
def test_gradients_are_averaged_and_weighted_by_their_samples() -> None:
    for plain, in_buckets, weighted, alone in run_ranks(2, averaged):
        # (1 + 2) / 2 and (2 + 4) / 2; the one that only rank 0 has, 8 / 2
        assert plain == in_buckets == [[1.5, 3], [1, 0], None, [0.5], [4, 0], None]
        # Samples 1 and 3: (1 * 1 + 3 * 2) / 4 = 1.75, twice as much, (0 + 3 * 1) / 4, (8 * 1) / 4.
        assert weighted == [[1.75, 3.5], [1, 0], None, [0.75], [2, 0], None]
        # Of rank 1 there are no samples: its gradients do not count.
        assert alone == [[1, 2], [1, 0], None, [0], [8, 0], None]


# --- a process is lost ---


def fail(process_group: TorchProcessGroup, how: str) -> None:
    process_group.use(torch.device("cpu"), 4.0)
    process_group.sum(torch.ones(1))
    if process_group.rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "raised":
            raise ValueError("the robot fell off the table")
    process_group.sum(torch.ones(3))


@several
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("killed", "LostProcessError: rank 0 has lost the connection to another process during 'sum'"),
        ("raised", "LostProcessError: rank 0 has lost the connection to another process during 'sum'"),
        ("stopped", "Timed out waiting 4000ms"),
    ],
)
def test_others_notice_that_a_process_is_lost(how: str, message: str) -> None:
    (_, first), (process, second) = start_ranks(2, fail, how)
    error, other = receive(first), None if how == "stopped" else receive(second)
    if how != "stopped":
        process.join(20)
    process.kill()
    assert message in str(error)
    if how == "raised":
        assert isinstance(other, RankError)
        assert "ValueError: the robot fell off the table" in str(other)


# --- processes of one machine, which meet in a folder ---


def listening_addresses(process_group: TorchProcessGroup) -> tuple[float, list[str]]:
    """Return a sum over the ranks, and the local addresses (hexadecimal) at which this process listens."""
    total = process_group.sum(torch.tensor(process_group.rank + 1.0)).item()
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            own.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            is_open = fields[3] == "0A" or table.startswith("udp")  # 0A: listening
            if is_open and f"socket:[{fields[9]}]" in own:
                found.append(fields[1].partition(":")[0])
    process_group.sum(torch.zeros(()))
    return total, found


@several
def test_processes_of_one_machine_listen_on_loopback_alone(tmp_path: Path) -> None:
    for total, addresses in run_ranks(2, listening_addresses, folder=tmp_path):
        assert total == 3  # 1 + 2
        assert set(addresses) == {"0100007F"}  # 127.0.0.1, gloo's
