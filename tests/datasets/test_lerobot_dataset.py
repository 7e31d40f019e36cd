from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from embodichain.datasets.lerobot_dataset import LeRobotWriter
from embodichain.utils import ConfigError


def test_missing_library_is_an_error_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"need pyarrow: .*pip install .*'pyarrow"):
        LeRobotWriter(tmp_path, 25, "cart", {})
