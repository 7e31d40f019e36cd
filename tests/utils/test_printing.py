"""Output that fails: a full disk, a pipe without a reader, an encoding that lacks a letter, closed descriptors."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console

from embodichain.utils import logger
from embodichain.utils.printing import discard_unwritten_output, printing_may_fail

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
        sys.stdout.writelines(["more\n"])
        logger.log_warning("a warning")
        sys.stderr.write("UserWarning: another\n")
        Console(stderr=True, force_terminal=True).print("[bold]a panel")
        sys.stderr.flush()
    assert sys.stdout is streams[0]
    discard_unwritten_output()
    for stream in streams:
        stream.close()  # there is nothing left that could fail


def test_letters_that_the_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with printing_may_fail():
        print("outputs/w\xfcrfel", flush=True)
    assert written.getvalue() == b"outputs/w\\xfcrfel\n"


def test_inner_use_changes_nothing_and_another_stream_that_was_put_there_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", first)
    with printing_may_fail():
        outer = sys.stdout
        with printing_may_fail():
            assert sys.stdout is outer
            print("one")
        sys.stdout = second
    assert sys.stdout is second
    assert first.getvalue() == "one\n"


def test_stream_that_is_not_there_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with printing_may_fail():
        print("nowhere")
    discard_unwritten_output()


IMPORTS = "from embodichain.utils.printing import discard_unwritten_output, open_closed_descriptors, printing_may_fail"


def run(script: str, redirection: str) -> subprocess.CompletedProcess[str]:
    command = [
        "bash",
        "-c",
        f'"$0" -c "$1" {redirection}',
        sys.executable,
        f"{IMPORTS}\n{script}",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_program_ends_with_0_though_its_output_is_lost() -> None:
    script = "with printing_may_fail(): print('x')\ndiscard_unwritten_output()"
    assert run(script, "> /dev/full").returncode == 0
    # The interpreter's own last attempt fails without it.
    assert run("with printing_may_fail(): print('x')", "> /dev/full").returncode == 120


def test_file_never_gets_the_number_of_a_closed_descriptor(tmp_path: Path) -> None:
    script = f"open_closed_descriptors(); f = open('{tmp_path}/x', 'w'); import os; os.write(2, b'warning'); f.close()"
    assert run(script, "2>&-").returncode == 0
    assert (tmp_path / "x").read_text() == ""
