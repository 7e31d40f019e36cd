from __future__ import annotations

import os
from pathlib import Path

import pytest

from embodichain.utils.files import json_text, read_bytes, read_text


def test_regular_files_are_read_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ä", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "ä"
    assert read_bytes(str(tmp_path / "file")) == b"\xc3\xa4"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="is no regular file"):
            read_bytes(path)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    data = {"a": [float("nan"), 1.5], "b": {"c": (float("inf"), -float("inf"), True, None, "NaN")}}
    assert json_text(data) == '{"a": [null, 1.5], "b": {"c": [null, null, true, null, "NaN"]}}'
