from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.run_access import LOCK, RunLock
from embodichain.utils import ConfigError, system
from embodichain.utils.files import read_bytes, remove_unfinished, write_atomically
from embodichain.utils.machine import describe_machine, format_megabytes

Take = Callable[..., None]
# What Python lacks on Windows, of all that the module calls.
ABSENT = {
    os: [
        *("sched_getaffinity", "sched_yield", "getloadavg", "sysconf", "getpgid", "killpg", "setsid"),
        *("O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY"),
    ],
    signal: ["SIGHUP"],
}


class FakeMsvcrt:
    """Locks of single bytes, by file, as ``msvcrt.locking`` has them."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.locked: dict[tuple[int, int], int] = {}

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if self.locked.setdefault(place, descriptor) != descriptor:
            raise PermissionError(13, "Permission denied")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> FakeMsvcrt:
    """Python without the calls that it lacks on Windows."""
    for module, names in ABSENT.items():
        for name in names:
            monkeypatch.delattr(module, name)
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "ethernet_0"), (2, "loopback_0")])
    fake = FakeMsvcrt()
    for name in ("_fcntl", "_resource"):
        monkeypatch.setattr(system, name, None)
    monkeypatch.setattr(system, "_msvcrt", fake)
    return fake


def test_modules_that_a_system_lacks_are_none() -> None:
    assert system._optional("winreg" if os.name == "posix" else "fcntl") is None
    assert system._optional("signal") is signal


def test_this_system_says_what_its_own_calls_say() -> None:
    assert system.count_processors() == len(os.sched_getaffinity(0))
    assert system.total_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert system.process_start(os.getpid()).isdecimal()  # in the kernel's ticks
    assert system.loopback_interface() == "lo"
    assert system.stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_process_exists_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        assert system.process_exists(process.pid)
    assert system.process_exists(process.pid) is False
    assert system.process_exists(10**30) is False


def test_peak_memory_counts_kilobytes_on_linux_and_bytes_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage([0.0, 0.0, 3000, *[0] * 13]))
    assert system.peak_memory() == 3000 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.peak_memory() == 3000


def test_start_of_a_process_is_asked_of_ps_where_there_is_no_proc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "_PROC", tmp_path / "none")
    asked: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "Mon Nov 23 08:00:00 2026\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert system.process_start(42) == "Mon Nov 23 08:00:00 2026"
    assert asked == [["ps", "-o", "lstart=", "-p", "42"]]


def test_start_of_a_process_is_unknown_without_proc_and_ps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "_PROC", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system.process_start(os.getpid()) == ""


def test_loopback_of_macos_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "en0"), (2, "lo0")])
    assert system.loopback_interface() == "lo0"


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "/home/ada/.config"),
        ("linux", {"XDG_CONFIG_HOME": "/settings"}, "/settings"),
        ("linux", {"XDG_CONFIG_HOME": "not/absolute"}, "/home/ada/.config"),
        ("darwin", {}, "/home/ada/Library/Application Support"),
        ("win32", {}, "/home/ada/AppData/Roaming"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming"),
    ],
)
def test_folder_for_settings_is_where_each_system_has_it(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ada", **variables}.items():
        monkeypatch.setenv(name, value)
    assert system.config_folder() == Path(expected) / "embodichain"


def test_user_without_a_home_has_no_folder_for_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # of no account, as in some containers
    assert system.config_folder() is None
    monkeypatch.setenv("HOME", "/home/ada")
    assert system.config_folder() is not None


def test_windows_knows_its_processors_and_says_that_the_rest_is_unknown(windows: FakeMsvcrt) -> None:
    assert system.count_processors() == os.cpu_count()
    assert system.load_average() is system.peak_memory() is system.total_memory() is None
    assert system.process_exists(os.getpid()) is None
    assert system.loopback_interface() is None
    assert not system.sees_parent_end()
    system.let_others_run()
    assert describe_machine()["load_average"] is None
    assert format_megabytes(None) == "unknown"


def test_windows_has_signals_and_processes_of_its_own(windows: FakeMsvcrt) -> None:
    assert system.stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)  # type: ignore[attr-defined]
    assert system.without_ctrl_c() == {"creationflags": 0x200}
    assert system.worker_start_method(["json"]) == "spawn"


def test_lock_of_windows_keeps_a_second_training_out_and_its_holder_can_be_read(
    windows: FakeMsvcrt, tmp_path: Path
) -> None:
    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        with pytest.raises(ConfigError, match=f"process {os.getpid()} on {socket.gethostname()} trains in this"):
            second.take(tmp_path)
        windows.locked.clear()  # as the system does when the first one closes its file
        second.take(tmp_path)
    # Windows lets nobody read a locked byte.
    assert {place for _, place in windows.locked} == {2**30}
    assert (tmp_path / LOCK).stat().st_size < 2**30


def test_files_are_read_and_written_without_flags_that_windows_lacks(windows: FakeMsvcrt, tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", lambda file: file.write(b"text"))
    assert read_bytes(tmp_path / "file") == b"text"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is a link"), open(tmp_path / "link", "w", opener=system.open_without_links):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_temporary_file_that_windows_keeps_open_is_left(
    windows: FakeMsvcrt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open.pt.1-1.tmp", "killed.pt.1-2.tmp"):
        (tmp_path / name).touch()
    unlink = Path.unlink

    def refuse_open_ones(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("open"):
            raise PermissionError(13, "used by another process")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_open_ones)
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["open.pt.1-1.tmp"]
