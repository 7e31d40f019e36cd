import os
from pathlib import Path

import pytest

from embodichain.utils import read_bytes, read_text
from embodichain.utils.files import OutputFolder, json_text


def test_regular_files_are_read_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ä", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "ä"
    assert read_bytes(str(tmp_path / "file")) == b"\xc3\xa4"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="is no regular file"):
            read_bytes(path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    data = {"a": [float("nan"), 1.5], "b": {"c": (float("inf"), -float("inf"), True, None, "NaN")}}
    assert json_text(data) == '{"a": [null, 1.5], "b": {"c": [null, null, true, null, "NaN"]}}'


LEADS_OUT = "leads out of the run's folder"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("videos", "videos"),
        ("a/b", "a/b"),
        ("./a", "a"),
        ("./outputs/videos/eval", "videos/eval"),  # as older configs name a place in the working directory
        ("outputs", "."),
        ("a/outputs", "a/outputs"),
        ("..hidden", "..hidden"),
    ],
)
def test_relative_place_is_below_the_root(name: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert OutputFolder(Path("run")).place(name) == Path("run") / place
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("/etc/cron.d", "cron.d"),
        ("/", "."),
        ("../x", "x"),
        ("outputs/../../x", "x"),
        ("a/..", "."),
        ("..", "."),
        ("//x", "x"),
    ],
)
def test_place_outside_moves_below_the_root_with_a_warning(
    name: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = OutputFolder(Path("run"))
    assert [folder.place(name) for _ in range(2)] == [Path("run") / place] * 2
    err = capsys.readouterr().err
    assert err.count(LEADS_OUT) == 1
    assert f"--allow-write {Path(name).resolve()}" in err


def test_place_inside_an_allowed_folder_is_honoured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = OutputFolder(Path("run"), [tmp_path / "data"])
    assert folder.place(f"{tmp_path}/data/set") == tmp_path / "data/set"
    assert folder.place(f"{tmp_path}/data/../data/set") == tmp_path / "data/set"
    assert capsys.readouterr().err == ""
    assert folder.place(f"{tmp_path}/data/../other") == Path("run/other")
    assert LEADS_OUT in capsys.readouterr().err


def test_link_out_of_an_allowed_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path / "other")
    assert OutputFolder(Path("run"), [tmp_path / "data"]).place(f"{tmp_path}/data/link") == Path("run/link")
