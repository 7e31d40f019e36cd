import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from embodichain.utils import system
from embodichain.utils.system import limit_openmp_spinning


def test_this_system_says_what_its_own_calls_say() -> None:
    assert system.count_processors() == len(os.sched_getaffinity(0))
    assert system.process_start(os.getpid()).isdecimal()  # in the kernel's ticks
    assert system.stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_process_exists_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        assert system.process_exists(process.pid)
    assert system.process_exists(process.pid) is False
    assert system.process_exists(10**30) is False


def test_peak_memory_is_in_bytes_on_linux_and_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage([0.0, 0.0, 3000, *[0] * 13]))
    assert system.peak_memory() == 3000 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.peak_memory() == 3000


NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
OURS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000"}
# Prints what the variables are when torch is about to be imported, and ends there.
WATCHED = f"""
import importlib.abc, json, os, sys
class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(json.dumps({{name: os.environ.get(name) for name in {NAMES}}}), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
"""


def at_import_of_torch(code: str) -> dict[str, str | None]:
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    command = [sys.executable, "-c", WATCHED + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[0])
    return found


@pytest.mark.e2e
@pytest.mark.parametrize(
    "code",
    [
        "import runpy; runpy.run_module('embodichain.agents.rl.train', None, '__main__')",
        "from embodichain.cli import main; main(['train', '--help'])",
        "import embodichain; import torch",
    ],
    ids=["module", "command", "package"],
)
def test_entry_points_set_the_variables_before_torch_is_imported(code: str) -> None:
    assert at_import_of_torch(code) == OURS


@pytest.mark.e2e
def test_package_sets_nothing_once_torch_is_imported() -> None:
    code = "import sys; sys.modules['torch'] = None; import embodichain; del sys.modules['torch']; import torch"
    assert at_import_of_torch(code) == dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OURS),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "7"}),
    ],
)
def test_what_the_user_has_set_stays(given: dict[str, str], expected: dict[str, str]) -> None:
    environment = dict(given)
    limit_openmp_spinning(environment)
    assert environment == expected


ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import time
from embodichain.utils import system
system._PERIOD = 0.01
system.end_with_parent()
open("begun", "w")
time.sleep(60)
"""
# Tells whether its child is there, and is killed when that watches.
PARENT = f"""
import os, subprocess, sys, time
from embodichain.utils.system import child_variables
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=os.environ | child_variables(), start_new_session=True)
print(child.pid, flush=True)
while child.poll() is None and not os.path.exists("begun"):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_process_ends_with_its_killed_parent(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # The output's other end is closed by the last process that has it: the child.
    call = [sys.executable, "-c", PARENT]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert (tmp_path / "begun").exists()
    command = Path(f"/proc/{done.stdout.strip()}/cmdline")
    assert not (command.exists() and command.read_bytes())  # nothing is left, or what nobody has asked the code of


def test_only_our_children_and_torchruns_watch_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread.name))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    system.end_with_parent()
    assert started == []
    monkeypatch.setenv("EMBODICHAIN_PARENT", "12")
    system.end_with_parent()
    assert "EMBODICHAIN_PARENT" not in os.environ  # a process started from here has another parent
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    system.end_with_parent()
    assert started == ["parent", "parent"]


WORKER = """
import multiprocessing
from embodichain.utils.system import starting_workers
from embodichain.utils.system import worker_start_method
if __name__ == "__main__":
    with starting_workers():
        process = multiprocessing.get_context(worker_start_method([])).Process(target=print)
        process.start()
    process.join()
"""
COMMAND = """
import os, subprocess, sys
from embodichain.utils.system import child_variables
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
