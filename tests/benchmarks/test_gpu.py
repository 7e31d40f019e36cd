"""The smallest run of the GPU's benchmark, on the processor."""

import json

import pytest

from benchmarks.gpu import PARTS, main, union
from tests.lab.warp_scenes import needs_warp


@needs_warp
def test_smallest_size_runs_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--task", "CartPoleRL", "--device", "warp:cpu", "--num-envs", "64", "--steps", "4", "--iterations", "1"])
    *table, last = capsys.readouterr().out.splitlines()
    assert table[0] == "on the CPU, without a GPU"
    assert table[2].split()[:2] == ["CartPoleRL", "64"]
    (row,) = json.loads(last)["results"]
    assert set(row["seconds"]) == set(PARTS)
    # 64 environments x 4 steps in the sum of the parts
    assert row["steps_per_second"] == pytest.approx(256 / sum(row["seconds"].values()))
    assert min(row["seconds"].values()) >= 0.0
    assert row["idle"] is None
    assert row["diverged"] == 0


def test_overlapping_spans_count_once() -> None:
    # [0, 3] and [5, 6]
    assert union([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6), (5.0, 6.0)]) == 4.0
