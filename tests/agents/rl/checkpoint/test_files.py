"""Shapes: N = 2 environments, T = 4 steps."""

import errno
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint import files
from embodichain.agents.rl.checkpoint.files import FORMAT_VERSION, CheckpointFolder, load_checkpoint, save_checkpoint
from embodichain.utils import ConfigError, write_json
from embodichain.utils.files import remove_unfinished
from embodichain.utils.system import open_without_links


class NotData:
    """Raises where it would be written."""

    def __reduce__(self) -> Any:
        raise RuntimeError("the disk is full")


def test_loaded_content_is_what_was_saved(tmp_path: Path) -> None:
    content = {"policy": {"weight": torch.arange(3.0)}, "global_step": 7, "config": {"names": ["a", None], "on": True}}
    save_checkpoint(tmp_path / "a_step_7.pt", content)
    loaded = load_checkpoint(tmp_path / "a_step_7.pt")
    assert torch.equal(loaded["policy"]["weight"], torch.arange(3.0))
    assert (loaded["global_step"], loaded["config"]) == (7, content["config"])
    assert loaded["format_version"] == FORMAT_VERSION
    assert os.listdir(tmp_path) == ["a_step_7.pt"]  # and no temporary file


@pytest.mark.parametrize("is_there_already", [False, True])
def test_failure_while_writing_leaves_things_as_they_were(tmp_path: Path, is_there_already: bool) -> None:
    path = tmp_path / "a_step_7.pt"
    if is_there_already:
        save_checkpoint(path, {"global_step": 7})
    with pytest.raises(RuntimeError, match="the disk is full"):
        save_checkpoint(path, {"global_step": 8, "weight": torch.zeros(10_000), "bad": NotData()})
    assert os.listdir(tmp_path) == ([path.name] if is_there_already else [])
    if is_there_already:
        assert load_checkpoint(path)["global_step"] == 7


@pytest.mark.parametrize("room", [0, 1, 64, 100, 1_000, 10_000, 39_000, 40_000, 41_000])
def test_disk_that_fills_within_a_file_is_an_oserror(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch's archive writer replaces the error of a write by a RuntimeError as it closes.
    class SmallDisk(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    monkeypatch.setattr(files, "write_atomically", lambda path, write: write(SmallDisk()))
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint(Path("a.pt"), {"weights": [torch.zeros(5_000), torch.zeros(5_000)]})  # 41,800 bytes


def test_link_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    (tmp_path / "a.json").symlink_to("other")
    write_json(tmp_path / "a.json", 1)
    assert (tmp_path / "other").read_text() == "theirs"
    assert (tmp_path / "a.json").read_text() == "1\n"
    (tmp_path / "b.jsonl").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        open(tmp_path / "b.jsonl", "a", opener=open_without_links)  # noqa: SIM115 (it is not opened)


def test_temporary_files_of_dead_processes_alone_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        names = [f"a.pt.{pid}-{pid}.tmp" for pid in (dead.pid, os.getpid(), living.pid)]
        for name in [*names, "a_step_8.tmp", "a.pt"]:  # the last but one as older versions named theirs
            (tmp_path / name).write_bytes(b"half")
        remove_unfinished(tmp_path)
        assert living.stdin is not None
        living.stdin.write(b"\n")
    assert sorted(os.listdir(tmp_path)) == ["a.pt", names[2]]


def test_name_appears_only_when_the_file_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(os.listdir(tmp_path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    save_checkpoint(tmp_path / "a.b_step_7.pt", {})
    # All is on the disk before the file has its name; then the folder is, with the name.
    assert seen == [
        [f"a.b_step_7.pt.{os.getpid()}-{threading.get_native_id()}.tmp"],
        ["a.b_step_7.pt"],
    ]
    assert os.listdir(tmp_path) == ["a.b_step_7.pt"]


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "ran"),))

    save_checkpoint(tmp_path / "evil.pt", {"policy": Evil()})
    with pytest.raises(ConfigError, match=r"evil\.pt: damaged, or holds more than tensors and plain data"):
        load_checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_truncated_checkpoint_is_one_clear_line(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"weight": torch.zeros(1000)})
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ConfigError) as caught:
        load_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"not a checkpoint at all", None])
def test_file_that_is_no_checkpoint_is_refused(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(ConfigError, match=r"a\.pt: (damaged|cannot be read)"):
        load_checkpoint(tmp_path / "a.pt")


def test_other_format_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT_VERSION", FORMAT_VERSION + 1)
    save_checkpoint(tmp_path / "a.pt", {})
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=f"format version {FORMAT_VERSION + 1}; this version of the program reads"):
        load_checkpoint(tmp_path / "a.pt")


def test_other_archive_than_the_named_one_is_refused(tmp_path: Path) -> None:
    digest = save_checkpoint(tmp_path / "a.pt", {"a": 1})
    assert save_checkpoint(tmp_path / "b.pt", {"a": 2}) != digest
    assert load_checkpoint(tmp_path / "a.pt", sha256=digest)["a"] == 1
    with pytest.raises(ConfigError, match="not the expected checkpoint"):
        load_checkpoint(tmp_path / "b.pt", sha256=digest)


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


def test_best_one_after_going_back_is_none_of_a_later_step(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "run")
    best = {"best_checkpoint": "run_step_16.pt", "best_success": 0.5}
    for step, content in ((8, {}), (16, best), (24, best)):
        folder.save(content, step)
    folder.take_up(tmp_path / "run_step_24.pt", best)
    assert folder.load_best()[0] == tmp_path / "run_step_16.pt"
    folder.take_up(tmp_path / "run_step_8.pt", {})
    folder.save({}, 16)  # not evaluated
    folder.take_up((tmp_path / "run_step_8.pt").rename(tmp_path / "mine_8.pt"), {})
    with pytest.raises(ConfigError, match="there is no best checkpoint"):
        folder.load_best()


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
