from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from embodichain.datasets.lerobot_dataset import LeRobotWriter
from embodichain.utils import ConfigError


def test_missing_library_is_an_error_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"need pyarrow: .*pip install .*'pyarrow"):
        LeRobotWriter(tmp_path, 25, "cart", {})


def test_each_episode_is_described_with_its_own_statistics(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    writer = LeRobotWriter(tmp_path, 25, "cart", {"action": {"dtype": "float32", "shape": [2], "names": None}})
    for start in (0.0, 10.0):
        action = np.array([[start, 1.0], [start + 2.0, 1.0]], dtype=np.float32)
        writer.add_episode({"action": action}, "balance", {})
    second = parquet.read_table(tmp_path / "meta/episodes/chunk-000/file-001.parquet").to_pylist()[0]
    found = {key: second[f"stats/action/{key}"] for key in ("min", "max", "mean", "std", "count", "q50")}
    # 10 and 12; that half of the frames does not exceed 10
    assert found == {"min": [10, 1], "max": [12, 1], "mean": [11, 1], "std": [1, 0], "count": [2], "q50": [10, 1]}
    whole = json.loads((tmp_path / "meta/stats.json").read_text())["action"]
    assert (whole["mean"], whole["count"], whole["q50"]) == ([6.0, 1.0], [4], [5.0, 1.0])  # q50: of 0 and 10
