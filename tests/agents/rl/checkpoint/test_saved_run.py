import errno
import fcntl
import multiprocessing
import os
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from embodichain.agents.rl.checkpoint.saved_run import LOCK, RunLock, check_links, last_run
from embodichain.utils import ConfigError


def test_second_one_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        with pytest.raises(ConfigError) as caught:
            second.take(tmp_path)
        who = f"process {os.getpid()} on {socket.gethostname()}"
        assert str(caught.value) == f"{tmp_path}: {who} trains in this folder; wait for its end, or stop it"
        first.release()
        second.take(tmp_path)


def hold(folder: Path, told: Connection) -> None:
    with RunLock() as lock:
        lock.take(folder)
        told.send("holds")
        time.sleep(60)


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    heard, told = fork.Pipe(duplex=False)
    process = fork.Process(target=hold, args=(tmp_path, told))
    process.start()
    assert heard.recv() == "holds"
    with RunLock() as lock:
        with pytest.raises(ConfigError, match=f"process {process.pid} on"):
            lock.take(tmp_path)
        process.kill()
        process.join()
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


def test_trial_of_a_sweep_is_not_the_last_run(own_folder: Path) -> None:
    for age, name in enumerate(("mine_20260101_120000", "mine_trial0_a1b2c3_20260101_120500")):
        checkpoint = own_folder / "outputs" / name / "checkpoints/mine_step_8.pt"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.touch()
        os.utime(checkpoint, (age, age))
    assert last_run().name == "mine_20260101_120000"


def test_last_run_has_the_newest_checkpoint_of_all(own_folder: Path) -> None:
    for name, ages in (("a_20260101_100000", range(1000, 1900, 20)), ("b_20260101_110000", range(1200, 1300, 10))):
        folder = own_folder / "outputs" / name / "checkpoints"
        folder.mkdir(parents=True)
        for step, age in enumerate(ages):
            (folder / f"x_step_{step}.pt").touch()
            os.utime(folder / f"x_step_{step}.pt", (age, age))
    assert last_run().name == "a_20260101_100000"
