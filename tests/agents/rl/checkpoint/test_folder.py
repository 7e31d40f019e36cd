from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import LOCK, RunLock, check_links
from embodichain.utils import ConfigError


def pointer(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_pointers_name_the_latest_and_the_best(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    folder.save({"x": 1}, 8)
    folder.save({"x": 2, "best_checkpoint": "run_step_16.pt", "best_success": 0.5}, 16)
    path = folder.save({"x": 3}, 24)
    assert path == tmp_path / "run_step_24.pt"
    assert pointer(tmp_path, "latest") == {"file": "run_step_24.pt", "step": 24}
    assert pointer(tmp_path, "best") == {"file": "run_step_16.pt", "step": 16, "success_rate": 0.5}
    found, content = folder.load_latest()
    assert (found, content["x"]) == (path, 3)


def test_only_the_last_ones_are_kept_and_the_best(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=2)
    for step in (8, 16, 24, 100):
        folder.save({"best_checkpoint": "run_step_8.pt", "best_success": 0.5}, step)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["run_step_100.pt", "run_step_24.pt", "run_step_8.pt"]


def test_latest_after_going_back_is_not_that_with_most_steps(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    for step in (8, 16, 24):
        folder.save({"step": step}, step)
    folder.take_up(tmp_path / "run_step_16.pt", {})
    assert folder.load_latest()[1]["step"] == 16
    (tmp_path / "run_step_16.pt").write_bytes(b"")
    assert folder.load_latest()[1]["step"] == 8


@pytest.mark.parametrize("text", [None, "", "[]", '{"file": "../elsewhere_step_1.pt"}', '{"file": 1}'])
def test_without_a_pointer_that_helps_the_most_steps_count(tmp_path: Path, text: str | None) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    folder.save({}, 8)
    folder.save({}, 100)
    (tmp_path / "latest.json").unlink() if text is None else (tmp_path / "latest.json").write_text(text)
    assert folder.load_latest()[0].name == "run_step_100.pt"


def test_folder_without_a_readable_checkpoint_says_so(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    with pytest.raises(ConfigError, match=r"there is no checkpoint$"):
        folder.load_latest()
    (tmp_path / "run_step_8.pt").write_bytes(b"?")
    with pytest.raises(ConfigError, match=r"there is no checkpoint that can be read$"):
        folder.load_latest()


def test_every_single_flipped_bit_is_noticed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    folder.save({"weight": torch.arange(8.0)}, 8)
    data = folder.save({"weight": torch.arange(8.0)}, 16).read_bytes()
    for position in range(0, len(data), 37):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        (tmp_path / "run_step_16.pt").write_bytes(flipped)
        assert folder.load_latest()[0].name == "run_step_8.pt", position


def test_resume_repairs_the_pointers_after_a_kill(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=1)
    folder.save({"best_checkpoint": "run_step_8.pt", "best_success": 0.5}, 8)
    before = (tmp_path / "best.json").read_bytes()
    best = {"best_checkpoint": "run_step_16.pt", "best_success": 0.75}
    folder.save(best, 16)
    (tmp_path / "best.json").write_bytes(before)  # as the kill leaves it
    folder.take_up(*folder.load_latest())
    assert pointer(tmp_path, "best") == {"file": "run_step_16.pt", "step": 16, "success_rate": 0.75}
    (tmp_path / "run_step_8.pt").write_bytes(b"what the kill came before, too")
    folder.take_up(*folder.load_latest())
    assert not (tmp_path / "run_step_8.pt").exists()
    folder.save(best, 24)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["run_step_16.pt", "run_step_24.pt"]


@pytest.mark.parametrize("text", [None, "", '{"file": "run_step_24.pt", "step": 24}'])
def test_best_one_is_kept_though_its_pointer_is_damaged(tmp_path: Path, text: str | None) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=1)
    best = {"best_checkpoint": "run_step_8.pt", "best_success": 0.5}
    for step in (8, 16, 24, 32):
        (tmp_path / "best.json").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "best.json").write_text(text)
        folder.save(best, step)
        assert pointer(tmp_path, "best")["file"] == "run_step_8.pt"
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["run_step_32.pt", "run_step_8.pt"]


def test_unwritten_best_one_leaves_the_one_before_it(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=1)
    folder.save({"best_checkpoint": "run_step_8.pt", "best_success": 0.5}, 8)
    for step in (24, 32):
        folder.save({"best_checkpoint": "run_step_16.pt", "best_success": 0.75}, step)
    assert pointer(tmp_path, "best")["file"] == "run_step_8.pt"
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["run_step_32.pt", "run_step_8.pt"]


def test_later_checkpoints_before_a_resume_do_not_displace_it(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=1)
    for step in (8, 16, 24):
        CheckpointFolder(tmp_path, "run").save({"step": step}, step)
    folder.take_up(tmp_path / "run_step_8.pt", {})  # as a resume from it does
    folder.save({"step": 16, "again": True}, 16)
    assert folder.load_latest()[1]["again"]
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["run_step_16.pt", "run_step_24.pt"]


def test_checkpoint_on_a_full_disk_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(tmp_path, "run", keep_last=1)
    folder.save({"step": 8}, 8)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.save({"step": 16}, 16)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


HOLDER = """
import sys, time
from pathlib import Path
from embodichain.agents.rl.checkpoint.run_access import RunLock
with RunLock() as lock:
    lock.take(Path(sys.argv[1]))
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_second_one_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        with pytest.raises(ConfigError) as caught:
            second.take(tmp_path)
        who = f"process {os.getpid()} on {socket.gethostname()}"
        assert str(caught.value) == f"{tmp_path}: {who} trains in this folder; wait for its end, or stop it"
        first.release()
        second.take(tmp_path)


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        RunLock() as lock,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        with pytest.raises(ConfigError, match=f"process {process.pid} on"):
            lock.take(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert f"process {process.pid} on" in (tmp_path / LOCK).read_text()
        lock.take(tmp_path)
        assert f"process {os.getpid()} on" in (tmp_path / LOCK).read_text()


def test_process_that_is_about_to_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        monkeypatch.setattr("time.sleep", lambda seconds: first.release())
        second.take(tmp_path, patience=60.0)


def test_file_system_without_locks_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with RunLock() as lock:
        lock.take(tmp_path)
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"[WARNING] {tmp_path}/run.lock: this file system has no locks (No locks available): ")


def test_lock_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "elsewhere")
    with RunLock() as lock, pytest.raises(OSError, match="symbolic links"):
        lock.take(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("videos", ".."),
        ("report.html", "/etc/hostname"),
        ("checkpoints/x.pt", "../../secret"),
        ("deep/er/file", "../../../absent"),
        ("wandb", ".."),
    ],
)
def test_link_that_leads_out_of_a_run_is_refused(tmp_path: Path, link: str, target: str) -> None:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "run" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(ConfigError) as caught:
        check_links(tmp_path / "run")
    assert str(caught.value).startswith(f"{path}: a link that leads out of the run's folder")


def test_links_within_a_run_and_those_of_wandb_are_allowed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "wandb/files").mkdir(parents=True)
    (run / "latest").symlink_to("wandb/files")
    (run / "round").symlink_to("round")
    (run / "wandb/files/debug.log").symlink_to("/tmp/wandb/debug.log")
    check_links(run)
    (tmp_path / "run_by_another_name").symlink_to(run)
    check_links(tmp_path / "run_by_another_name")


def test_beside_a_lone_checkpoint_only_named_entries_count(tmp_path: Path) -> None:
    (tmp_path / "anything").symlink_to("/etc")
    check_links(tmp_path, ("export", "videos"))
    (tmp_path / "videos").symlink_to("/etc")
    with pytest.raises(ConfigError, match="videos: a link that leads out"):
        check_links(tmp_path, ("export", "videos"))
