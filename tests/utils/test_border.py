"""The net around every command."""

import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest
from rich.console import Console

from embodichain.utils import CommandFailedError, ConfigError, logger
from embodichain.utils.border import discard_unwritten_output, keep_tracebacks_in, printing_may_fail, run_command

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


ROOT = Path(__file__).resolve().parents[2]


def broken_stream(kind: str) -> TextIO:
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        return os.fdopen(writer, "w", encoding="utf-8")
    file = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 (closed by the test)
    if kind == "closed":
        file.close()
    return file


@pytest.mark.parametrize("kind", ["full", "pipe", "closed"])
def test_what_cannot_be_written_raises_nothing_whoever_writes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [broken_stream(kind) for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    with printing_may_fail():
        print("figures", flush=True)
        logger.log_warning("a warning")
        sys.stderr.write("UserWarning: another\n")
        Console(stderr=True, force_terminal=True).print("[bold]a panel")
        sys.stderr.flush()
    assert sys.stdout is streams[0]
    discard_unwritten_output()
    for stream in streams:
        stream.close()  # there is nothing left that could fail


IMPORTS = "from embodichain.utils.border import discard_unwritten_output, printing_may_fail"


def run(script: str, redirection: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'"$0" -c "$1" {redirection}', sys.executable, f"{IMPORTS}\n{script}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_program_ends_with_0_though_its_output_is_lost() -> None:
    script = "with printing_may_fail(): print('x')\ndiscard_unwritten_output()"
    assert run(script, "> /dev/full").returncode == 0
    # The interpreter's own last attempt fails without it.
    assert run("with printing_may_fail(): print('x')", "> /dev/full").returncode == 120
