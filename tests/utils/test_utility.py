from pathlib import Path
from typing import Any

import pytest

from embodichain.utils import ConfigError
from embodichain.utils.utility import check_plain, leaves_by_path, load_config_file, load_json


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


NO_CONFIGS = [
    # The second line lacks a value: the parser stops at the brace, column 1 of line 3.
    ("a.json", '{"a": 1,\n "b":\n}', "invalid JSON at line 3, column 1"),
    # The colon of line 2 stands where the value of line 1 would go on.
    ("a.yaml", "a: 1\n  b: 2\n", "invalid YAML at line 2, column 4: mapping values"),
    ("a.json", "[1]", "the top level must be an object, got list$"),
    ("a.json", "3", "the top level must be an object, got int$"),
    ("a.json", "null", "the top level must be an object, got nothing$"),
    ("a.yaml", " \n", "the file is empty$"),
    ("a.json", " \n", "the file is empty$"),
    *(
        ("a.yaml", text, "(invalid YAML|is not JSON's)")
        for text in ("a: !!python/object/apply:os.getcwd []", "a: !mine 1", "a: !!binary aGk=", "a: !!int x", "a: \x07")
    ),
    ("a.json", '{"a": 1,\n  "b": {"c": 1, "c": 2}}', "invalid JSON: key 'c' is given twice$"),
    ("a.yaml", "a: 1\nb: 2\na: 3\n", "invalid YAML at line 3, column 1: key 'a' is given twice$"),
    ("a.yaml", "a:\n  1: 2\n", "invalid YAML at line 2, column 3: a key must be text, in quotes if need be, got 1$"),
]


@pytest.mark.parametrize(("name", "text", "problem"), NO_CONFIGS)
def test_file_that_is_no_config_is_refused(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError, match=f"^{path}: {problem}"):
        load_config_file(path)


def test_missing_file_is_an_error_with_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"none\.json: no such file \(working directory {tmp_path}\)"):
        load_json("none.json")
    with pytest.raises(ConfigError, match=rf"^none\.yaml: no such file \(working directory {tmp_path}\)"):
        load_config_file("none.yaml")


def test_shipped_config_is_read_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("configs/agents/rl/reach/gym_config.json")
    assert load_json(path)["id"] == "ReachRL"
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "Own"}', encoding="utf-8")
    assert load_json(path)["id"] == "Own"


def test_what_cannot_be_read_as_text_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_json(tmp_path)
    path = tmp_path / "latin.json"
    path.write_bytes(b'"\xff"')
    with pytest.raises(ConfigError, match="cannot be read"):
        load_json(path)


def test_config_file_is_json_or_yaml_by_its_suffix(tmp_path: Path) -> None:
    assert load_config_file(write(tmp_path, "a.json", '{"a": {"b": 1}}')) == {"a": {"b": 1}}
    assert load_config_file(write(tmp_path, "a.yaml", "a:\n  b: 1\n")) == {"a": {"b": 1}}
    assert load_config_file(write(tmp_path, "a.yml", "a: [1, 2]\n")) == {"a": [1, 2]}


def test_yaml_says_what_json_would(tmp_path: Path) -> None:
    text = "a: 3e-4\nb: no\nc: 2026-01-02\nd: [1, -2.5, .5, 1e3, null, ~, true, 'true']\ne:\non: {f: 0x10, g: 1_000}\n"
    assert load_config_file(write(tmp_path, "a.yaml", text)) == {
        "a": 0.0003,
        "b": "no",
        "c": "2026-01-02",
        "d": [1, -2.5, 0.5, 1000.0, None, None, True, "true"],
        "e": None,
        "on": {"f": "0x10", "g": "1_000"},
    }


def test_yaml_blocks_may_be_merged(tmp_path: Path) -> None:
    text = "base: &base {p: 1, q: 2}\nother:\n  <<: *base\n  q: 3\n"
    assert load_config_file(write(tmp_path, "a.yaml", text))["other"] == {"p": 1, "q": 3}


@pytest.mark.parametrize("data", [{"a": [0, float("nan")]}, {"a": {"b": -float("inf")}}, {"a": object()}])
def test_data_that_json_lacks_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not JSON's"):
        check_plain(data)


def test_deep_and_circular_data_is_refused() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    endless: dict[str, Any] = {}
    endless["a"] = endless
    for data in (deep, endless):
        with pytest.raises(ConfigError, match="is not JSON's"):
            check_plain(data)


def test_leaves_have_the_paths_that_lead_to_them() -> None:
    assert leaves_by_path({"a": 1, "b": {"c": [2], "d": {"e": 3, "f": {}}}}) == {"a": 1, "b.c": [2], "b.d.e": 3}
