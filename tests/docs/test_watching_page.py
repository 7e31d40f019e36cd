"""The logger of docs/watching.md logs a training."""

import json
import re
import sys
from pathlib import Path

import pytest

from embodichain.agents.rl.train import main
from tests.agents.rl.fakes import tiny_config, write_config
from tests.pages import REPOSITORY, write_files

PAGE = (REPOSITORY / "docs/watching.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
LOGGERS = json.loads("{" + BLOCK + "}")["loggers"]


@pytest.fixture(autouse=True)
def folder_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = dict(re.findall(r"`([\w./]+)`:\n\n```python\n(.*?\n)```", PAGE, flags=re.DOTALL))
    assert list(files) == ["my_lab/loggers.py"]
    write_files(files, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("my_lab", "my_lab.loggers"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_logger_of_the_page_logs_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"trainer__import_modules": ["my_lab.loggers"], "trainer__loggers": LOGGERS}
    config = write_config(Path(), tiny_config(**changes))
    assert main(["--config", config]) == 2
    assert "pass --allow-import my_lab" in capsys.readouterr().err
    assert main(["--config", config, "--allow-import", "my_lab"]) == 0
    (curve,) = Path("outputs").glob("*/curve.csv")
    # 2 iterations x 4 steps x 2 environments
    assert [line.partition(",")[0] for line in curve.read_text().splitlines()] == ["8", "16"]
    for name in ("my_lab", "my_lab.loggers"):
        sys.modules.pop(name, None)
