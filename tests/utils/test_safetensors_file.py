import json
import os
from pathlib import Path

import pytest
import torch

from embodichain.utils import ConfigError
from embodichain.utils.safetensors_file import read_safetensors, write_safetensors


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "weight": torch.randn(3, 2),
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "turned": torch.arange(6).view(2, 3).t(),
    }
    write_safetensors(tmp_path / "x.safetensors", tensors)
    back = read_safetensors(tmp_path / "x.safetensors")
    assert back.keys() == tensors.keys()
    for name, value in tensors.items():
        assert back[name].dtype == value.dtype
        assert torch.equal(back[name], value)


def test_tensors_that_share_memory_are_written_each(tmp_path: Path) -> None:
    shared = torch.arange(3.0)
    write_safetensors(tmp_path / "x.safetensors", {"a": shared, "b": shared})
    assert read_safetensors(tmp_path / "x.safetensors")["b"].tolist() == [0, 1, 2]


def test_writing_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": torch.ones(1)})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_safetensors(path, {"a": torch.zeros(1)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def test_metadata_of_other_writers_is_passed_over(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\x05")
    assert read_safetensors(path)["a"].tolist() == [5]


def wrong_files() -> dict[str, bytes]:
    def file(header: object, data: bytes = b"") -> bytes:
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {
        "empty": b"",
        "short": b"\x10\x00\x00\x00\x00\x00\x00\x00{}",
        "no JSON": (2).to_bytes(8, "little") + b"[{",
        "a list": file([]),
        "cut off": file({"a": entry}, b"1234"),
        "wrong size": file({"a": entry | {"shape": [3]}}, b"12345678"),
        "negative": file({"a": entry | {"data_offsets": [-8, 0]}}, b"12345678"),
        "unknown dtype": file({"a": entry | {"dtype": "F3"}}, b"12345678"),
        "overlap": file({"a": entry, "b": entry | {"data_offsets": [4, 12]}}, b"123456781234"),
        "hole": file({"a": entry | {"data_offsets": [4, 12]}}, b"123456781234"),
        "negative shape": file({"a": entry | {"shape": [-1, -2]}}, b"12345678"),
        "no offsets": file({"a": {"dtype": "F32", "shape": [2]}}, b"12345678"),
    }


@pytest.mark.parametrize("kind", list(wrong_files()))
def test_what_is_no_such_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(wrong_files()[kind])
    with pytest.raises(ConfigError, match=r"x\.safetensors: is no safetensors file"):
        read_safetensors(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.safetensors: cannot be read: No such file"):
        read_safetensors(tmp_path / "none.safetensors")
