"""A small policy in LeRobot's format, written by LeRobot 0.6.1 (scripts/lerobot_parity.py)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

FIXTURE = Path(__file__).parent / "fixture"
ENTRIES = {"observation.images.wrist": "image/hand", "observation.images.empty_camera_0": None}
"""``features`` of a ``vla_config``; ``observation.images.top`` is ``image/top`` by its name."""

pytest.importorskip("transformers", reason="needs the extra vla")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "policy"))


@pytest.fixture(scope="session")
def expected() -> dict[str, torch.Tensor]:
    """8 observations, and what LeRobot computes for them."""
    return load_file(FIXTURE / "expected.safetensors")


@pytest.fixture(autouse=True)
def _is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that needs the network fails at once."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


Change = Callable[[dict[str, Any]], object]


def change_json(path: Path, change: Change) -> None:
    """Change a JSON file by a function of its content."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
