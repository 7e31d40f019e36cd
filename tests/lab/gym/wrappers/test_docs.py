"""The examples of docs/gymnasium.md run as they stand."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[4] / "docs" / "gymnasium.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["gymnasium", "sb3", "own_scene"])
def test_example_of_the_docs_runs(snippet: str) -> None:
    if "stable_baselines3" in snippet and importlib.util.find_spec("stable_baselines3") is None:
        pytest.skip("needs Stable-Baselines3")
    exec(compile(snippet, "docs/gymnasium.md", "exec"), {})
