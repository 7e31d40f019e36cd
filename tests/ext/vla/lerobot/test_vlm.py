"""The vision-language model's config and tokenizer: in the folder, elsewhere, in the hub's cache, nowhere."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from embodichain.ext.vla.loading import read_model_path
from embodichain.utils import ConfigError
from tests.ext.vla.lerobot.conftest import change_json

NAME = "owner/SmolVLM"


def name_vlm(folder: Path, name: str) -> None:
    """Give the folder's vision-language model, and its tokenizer, another name."""
    change_json(folder / "config.json", lambda c: c.update(vlm_model_name=name))
    change_json(folder / "policy_preprocessor.json", lambda c: c["steps"][3]["config"].update(tokenizer_name=name))


def read(folder: Path) -> Any:
    return read_model_path(folder)


def test_folder_elsewhere_and_below_the_hub_name_are_found(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "vlm", tmp_path / "elsewhere")
    name_vlm(folder, str(tmp_path / "elsewhere"))
    assert read(folder).vlm.text_config.num_hidden_layers == 3
    name_vlm(folder, NAME)
    shutil.copytree(tmp_path / "elsewhere", folder / NAME)
    assert len(read(folder).tokenizer) == read(folder).vlm.text_config.vocab_size


def test_hubs_cache_is_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move(folder / "vlm", tmp_path / "cache")
    name_vlm(folder, NAME)
    asked: list[tuple[str, str | None]] = []

    def snapshot_download(repo: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision))
        assert not any(pattern.endswith((".py", ".safetensors", ".bin")) for pattern in allow_patterns)
        return str(tmp_path / "cache")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    read(folder)
    assert asked == [(NAME, None), (NAME, None)]


def test_tokenizer_beside_the_processors_is_taken_first(folder: Path) -> None:
    """As newer versions of LeRobot write it."""
    shutil.move(folder / "vlm/tokenizer.json", folder / "tokenizer.json")
    shutil.copy(folder / "vlm/tokenizer_config.json", folder / "tokenizer_config.json")
    (folder / "tokenizer").mkdir()
    change_json(
        folder / "policy_preprocessor.json", lambda c: c["steps"][3].update(artifacts={"tokenizer_name": "tokenizer"})
    )
    with pytest.raises(ConfigError, match=r"tokenizer/tokenizer\.json: is missing"):
        read(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.move(folder / name, folder / "tokenizer" / name)
    assert read(folder).tokenizer("push\n")["input_ids"]


def test_tokenizer_and_config_of_other_models_are_refused(folder: Path) -> None:
    change_json(folder / "vlm/config.json", lambda c: c["text_config"].update(vocab_size=20))
    with pytest.raises(ConfigError, match="has 74 tokens, the model knows 20"):
        read(folder)
    change_json(folder / "vlm/config.json", lambda c: c["text_config"].update(model_type="qwen2"))
    with pytest.raises(ConfigError, match=r"text_config\.model_type must be 'llama', got 'qwen2'"):
        read(folder)
    change_json(folder / "vlm/config.json", lambda c: c.update(model_type="llava"))
    with pytest.raises(ConfigError, match=r"vlm/config\.json: model_type must be 'smolvlm', got 'llava'"):
        read(folder)


def test_code_beside_the_tokenizer_is_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / "vlm/evil.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')\nclass Tokenizer: pass\n")
    change_json(
        folder / "vlm/tokenizer_config.json",
        lambda c: c.update(tokenizer_class="Tokenizer", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]}),
    )
    with suppress(ConfigError):  # transformers may refuse it, or take a tokenizer of its own
        read(folder)
    assert not (tmp_path / "was_run").exists()
