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
from embodichain.utils.parent import child_variables
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=os.environ | child_variables(), start_new_session=True)
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


WORKER = """
import multiprocessing
from embodichain.utils.parent import starting_workers
from embodichain.utils.system import worker_start_method
if __name__ == "__main__":
    with starting_workers():
        process = multiprocessing.get_context(worker_start_method([])).Process(target=print)
        process.start()
    process.join()
"""
COMMAND = """
import os, subprocess, sys
from embodichain.utils.parent import child_variables
subprocess.run([sys.executable, "-m", "embodichain.cli", "--version"], env=os.environ | child_variables())
"""


@pytest.mark.parametrize("script", [WORKER, COMMAND], ids=["multiprocessing", "command"])
def test_started_processes_run_no_file_of_the_folder(script: str, tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "starts.py").write_text(script)
    for name in ("pickle", "logging", "socket", "argparse"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "script/starts.py"], cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, done.stderr, (tmp_path / "ran").exists()) == (0, b"", False)
