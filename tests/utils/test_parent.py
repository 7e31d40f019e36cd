from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embodichain.utils import parent

ROOT = Path(__file__).resolve().parents[2]
CHILD = (
    "from embodichain.utils import parent; import time; parent._PERIOD = 0.01; parent.end_with_parent(); time.sleep(60)"
)
# Tells whether its child is there, and is killed.
PARENT = f"""
import os, subprocess, sys
from embodichain.utils.parent import with_this_parent
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=os.environ | with_this_parent(), start_new_session=True)
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_process_ends_with_its_killed_parent() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # The output's other end is closed by the last process that has it: the child.
    done = subprocess.run([sys.executable, "-c", PARENT], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    command = Path(f"/proc/{done.stdout.strip()}/cmdline")
    assert not (command.exists() and command.read_bytes())  # nothing is left, or what nobody has asked the code of


def test_only_children_of_ours_and_of_torchrun_watch_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[int] = []
    monkeypatch.setattr(parent, "_watch", watched.append)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    parent.end_with_parent()
    assert watched == []
    monkeypatch.setenv("EMBODICHAIN_PARENT", "12")
    parent.end_with_parent()
    assert "EMBODICHAIN_PARENT" not in os.environ  # a process started from here has another parent
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    parent.end_with_parent()
    assert watched == [12, os.getppid()]
