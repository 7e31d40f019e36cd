"""docs/index.md runs as it is printed, with a shorter training."""

import re
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/index.md").read_text(encoding="utf-8")


@pytest.mark.e2e
def test_blocks_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    code = "\n".join(blocks).replace('"iterations": 20', '"iterations": 1')
    found: dict[str, Any] = {}

    exec(code, found)

    assert len(blocks) == 3
    assert found["summary"]["env_steps"] == 512
    assert found["result"]["episodes"] == 20
    assert "ended with success: [" in capsys.readouterr().out
