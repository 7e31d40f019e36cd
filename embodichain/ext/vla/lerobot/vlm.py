"""The vision-language model inside a SmolVLA: its config and tokenizer, outside the policy's folder.

Only files are read: no code of a repository is run.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from embodichain.ext.vla.hub import download
from embodichain.ext.vla.lerobot.files import find_file, read_object
from embodichain.ext.vla.lerobot.processors import Processors
from embodichain.utils import ConfigError
from embodichain.utils.doors import install_extra

_CONFIG = "config.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_VOCABULARY = ("vocab.json", "merges.txt")  # of tokenizers without tokenizer.json
_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")


def check_transformers(place: str) -> None:
    """Check that the extra ``vla`` is installed.

    Raises:
        ConfigError: the config is not supported.
    """
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(f"{place}: SmolVLA needs transformers: {install_extra('vla')}")


def read_vlm_config(folder: Path, name: str, place: str) -> Any:
    """Return transformers' ``SmolVLMConfig`` of the vision-language model that a policy's folder names.

    Raises:
        ConfigError: its ``config.json`` is not found, or is of another model.
    """
    check_transformers(place)
    path = _find(folder, name, (_CONFIG,), place) / _CONFIG
    content = read_object(path, place)
    if content.get("model_type") != "smolvlm":
        raise ConfigError(f"{place}: {path}: model_type must be 'smolvlm', got {content.get('model_type')!r}")
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415 (optional extra)
    from transformers import SmolVLMConfig  # noqa: PLC0415

    try:
        config: Any = SmolVLMConfig.from_dict(content)
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        raise ConfigError(f"{place}: {path}: {' '.join(str(error).split())}") from error
    kind = config.text_config.model_type
    if kind != "llama":
        raise ConfigError(f"{place}: {path}: text_config.model_type must be 'llama', got {kind!r}")
    return config


def read_tokenizer(folder: Path, processors: Processors, vocabulary: int, place: str) -> Any:
    """Return transformers' tokenizer of a policy: from its folder, or that of its vision-language model.

    Args:
        vocabulary: number of tokens that the language model knows.

    Raises:
        ConfigError: the tokenizer is not found, cannot be read, or has other tokens.
    """
    check_transformers(place)
    wanted = (_TOKENIZER[0], _VOCABULARY[0])
    if processors.tokenizer_folder is None:
        path = _find(folder, processors.tokenizer.tokenizer_name, wanted, place)
    else:
        path = find_file(folder, processors.tokenizer_folder, place)
        if not _has_one(path, wanted):
            find_file(path, wanted[0], place)
    from transformers import AutoTokenizer  # noqa: PLC0415 (optional extra)

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    # Its errors are of many kinds; the Rust library's are bare Exceptions, which no narrower clause catches.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{place}: {path}: cannot be read as a tokenizer: {reason}") from error
    if len(tokenizer) > vocabulary:
        raise ConfigError(f"{place}: {path}: has {len(tokenizer)} tokens, the model knows {vocabulary}")
    return tokenizer


def _find(folder: Path, name: str, wanted: tuple[str, ...], place: str) -> Path:
    """Return the folder of a model that has one of the wanted files.

    Raises:
        ConfigError: there is none.
    """
    places = [folder / name, Path(name).absolute()]
    for path in places:
        if _has_one(path, wanted):
            return path
    missing = f"{place}: {wanted[0]} of '{name}' is missing: looked in {places[0]}, {places[1]}"
    if not _REPOSITORY.match(name):
        raise ConfigError(missing)
    try:
        path = download(name, None, (_CONFIG, *_TOKENIZER, *_VOCABULARY), place)
    except ConfigError as error:
        raise ConfigError(f"{missing} and the hub: {str(error).removeprefix(f'{place}: ')}") from error
    if not _has_one(path, wanted):
        raise ConfigError(f"{missing} and {path}")
    return path


def _has_one(path: Path, files: tuple[str, ...]) -> bool:
    return any((path / file).is_file() for file in files)
