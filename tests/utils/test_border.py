"""The net around every command."""

from __future__ import annotations

import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embodichain.utils import ConfigError
from embodichain.utils.border import keep_tracebacks_in, run_command
from embodichain.utils.errors import CommandFailedError

WRITTEN = re.compile(r"; traceback in (.*), or --traceback$")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def fail(error: BaseException, folder: Path | None = None) -> int:
    if folder is not None:
        keep_tracebacks_in(folder)
    raise error


def test_exception_is_one_line_with_the_users_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = KeyError("cube")
    error.add_note("env.rewards.near")
    assert run_command(lambda: fail(error), prints_traceback=False) == 1
    (line,) = capsys.readouterr().err.splitlines()
    number = fail.__code__.co_firstlineno + 3
    assert line.startswith(f"error: env.rewards.near: KeyError: 'cube' in {__file__}, line {number}; traceback in ")
    (path,) = WRITTEN.findall(line)
    assert Path(path).parent == tmp_path
    assert Path(path).read_text(encoding="utf-8").splitlines()[-2:] == ["KeyError: 'cube'", "env.rewards.near"]


def test_users_line_is_found_below_a_library_and_above_ours(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        return len(Path("absent").read_text(encoding="utf-8"))

    assert run_command(run, prints_traceback=False) == 1
    number = run.__code__.co_firstlineno + 1
    assert f"No such file or directory: 'absent' in {__file__}, line {number};" in capsys.readouterr().err


def test_traceback_goes_to_the_runs_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for folder, place in {run: run, tmp_path / "removed": tmp_path}.items():
        run_command(partial(fail, ValueError("x"), folder), prints_traceback=False)
        assert Path(*WRITTEN.findall(capsys.readouterr().err.strip())).parent == place


def test_traceback_is_printed_on_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(lambda: fail(ValueError("a\nb" * 300)), prints_traceback=True) == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.startswith("error: ValueError: a ba ba")
    assert len(last) < 600
    assert list(tmp_path.iterdir()) == []


def test_traceback_is_printed_where_no_file_can_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert run_command(lambda: fail(ValueError("x")), prints_traceback=False) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("error: ValueError: x in ")


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("a\nb"), 2), (CommandFailedError("a\nb"), 1), (KeyboardInterrupt(), 130)],
    ids=lambda value: type(value).__name__,
)
def test_messages_for_the_user_have_no_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(lambda: fail(error), prints_traceback=False) == code
    assert capsys.readouterr().err == ("interrupted\n" if code == 130 else "error: a\nb\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [0, 3])
def test_exit_in_users_code_is_a_failure(code: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lambda: sys.exit(code), prints_traceback=False) == 1
    assert f"error: SystemExit: {code} in {__file__}" in capsys.readouterr().err
