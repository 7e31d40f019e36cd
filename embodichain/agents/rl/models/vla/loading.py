"""Vision-language-action models by name, and their weights from folders, files and the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import pickle
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import unknown_name
from embodichain.utils.extras import install_extra
from embodichain.utils.files import read_bytes, read_text
from embodichain.utils.safetensors_file import read_safetensors, write_safetensors

OUR_MODELS = "embodichain.agents.rl.models"
"""Models in this package need no entry in the allow-list."""

_CONFIG, _WEIGHTS, _TORCH_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.pt"
_METHODS = ("forward", "get_value", "evaluate_actions")
_HUB = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?$")
_PLACE = "policy.vla_config.model_path"


@dataclass(frozen=True)
class StoredModel:
    """A saved model: its path (for messages), its config (empty if it was not saved) and its state dict."""

    source: str
    config: dict[str, Any]
    weights: dict[str, torch.Tensor]


def load_vla_model(
    model_path: str | Path | None,
    model_class: str,
    model_config: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """Build a model and load its weights.

    Args:
        model_path: a folder that ``save_vla_model`` has written (config and safetensors), a ``.pt`` file (a state dict,
            or a checkpoint of a training), or a repository of the Hugging Face hub as ``owner/name@revision``. None:
            the class's initial weights.
        model_class: dotted path of the class, in this package or in an imported module; names from config files are
            checked against the allow-list first (``parse_policy_block``).
        model_config: keyword arguments of the class, over the folder's.

    Returns:
        A module with ``chunk_length``, ``observation_keys``, ``forward(obs)``, ``get_value(obs)`` and
        ``evaluate_actions(obs, actions)``.

    Raises:
        ConfigError: the class or the weights are missing, cannot be read, or do not fit.
    """
    cls = find_vla_class(model_class)
    stored = None if model_path is None else read_stored_model(model_path)
    return build_vla_model(cls, stored, dict(model_config or {}), device)


def build_vla_model(
    cls: type[nn.Module], stored: StoredModel | None, model_config: Mapping[str, Any], device: torch.device | str
) -> nn.Module:
    """Build a class with a config over the saved one, and load the saved weights; see ``load_vla_model``."""
    config = {**(stored.config if stored else {}), **model_config}
    _check_arguments(cls, config)
    model = cls(**config)
    if stored is not None:
        _load_weights(model, stored)
    return model.to(device)


def find_vla_class(name: str) -> type[nn.Module]:
    """Return the class that a dotted path names.

    Raises:
        ConfigError: the module is not imported, or has no such class with the needed methods.
    """
    place = "policy.vla_config.model_class"
    module, _, attribute = current_path(name).rpartition(".")
    if module not in sys.modules:
        raise ConfigError(
            f"{place}: module '{module}' of '{name}' is not imported: list it in trainer.import_modules, pass "
            f"--import, or import it in Python. Ours: {OUR_MODELS}.TinyVLA"
        )
    found = getattr(sys.modules[module], attribute, None)
    if not (inspect.isclass(found) and issubclass(found, nn.Module)):
        known = [
            n
            for n, value in vars(sys.modules[module]).items()
            if inspect.isclass(value) and hasattr(value, _METHODS[2])
        ]
        raise ConfigError(f"{place}: {unknown_name(f'model in {module}', attribute, known)}")
    lacking = [method for method in _METHODS if not callable(getattr(found, method, None))]
    if lacking:
        raise ConfigError(f"{place}: {name} has no {', '.join(lacking)}")
    return found


def current_path(name: str) -> str:
    """Return the current path of a class that 0.1 had in another module, with a warning; else ``name``.

    Raises:
        ConfigError: the class was removed.
    """
    place = "policy.vla_config.model_class"
    module, _, attribute = name.rpartition(".")
    if name.startswith(f"{OUR_MODELS}.") and attribute == "OpenVLAOFT":
        raise ConfigError(
            f"{place}: OpenVLAOFT is not part of embodichain any more: it could load no published weights. "
            f"Ours: {OUR_MODELS}.TinyVLA, {OUR_MODELS}.SmolVLA"
        )
    if module not in (f"{OUR_MODELS}.tiny_vla", f"{OUR_MODELS}.smolvla"):
        return name
    current = f"{OUR_MODELS}.{attribute}"
    logger.log_warning(f"{place}: '{name}' is an older path, read as '{current}'")
    return current


def save_vla_model(model: nn.Module, config: Mapping[str, Any], folder: Path) -> None:
    """Write a model into a folder for ``load_vla_model``; the folder is created if missing.

    Args:
        config: keyword arguments of the model's class, plain data.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / _WEIGHTS, model.state_dict())
        (folder / _CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error


def read_stored_model(model_path: str | Path) -> StoredModel:
    """Read the config and weights of a ``model_path`` of ``load_vla_model``.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    path = Path(model_path)
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return StoredModel(str(path), {}, _read_torch(path))
    hub = _HUB.match(str(model_path))
    if hub is None or path.suffix in (".pt", ".safetensors"):
        raise ConfigError(
            f"{_PLACE}: no such folder or file: {path.absolute()}. A model is a folder with {_CONFIG} and {_WEIGHTS} "
            "(as `embodichain bc` writes), a .pt file, or a hub repository as owner/name@revision"
        )
    if hub["revision"] is None:
        raise ConfigError(
            f"{_PLACE}: no such folder: {path.absolute()}. `embodichain bc` writes one; if '{model_path}' is "
            f"meant as a hub repository, name its revision, so that it stays the same: {model_path}@<commit or tag>"
        )
    return _read_folder(_download(hub["repo"], hub["revision"]))


def _read_folder(folder: Path) -> StoredModel:
    config_path = folder / _CONFIG
    try:
        config = json.loads(read_text(config_path))
    except OSError as error:
        raise ConfigError(f"{_PLACE}: {config_path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{_PLACE}: {config_path}: is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{_PLACE}: {config_path}: must be an object, got {type(config).__name__}")
    if (folder / _WEIGHTS).exists():
        return StoredModel(str(folder), config, read_safetensors(folder / _WEIGHTS))
    if (folder / _TORCH_WEIGHTS).exists():
        return StoredModel(str(folder), config, _read_torch(folder / _TORCH_WEIGHTS))
    raise ConfigError(f"{_PLACE}: {folder}: has neither {_WEIGHTS} nor {_TORCH_WEIGHTS}")


def _read_torch(path: Path) -> dict[str, torch.Tensor]:
    """Return the state dict of a file, or of the policy's model in a training's checkpoint."""
    try:
        content = torch.load(io.BytesIO(read_bytes(path)), map_location="cpu", weights_only=True)
    except (OSError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ConfigError(f"{_PLACE}: {path}: cannot be read as weights: {str(error).splitlines()[0]}") from error
    if isinstance(content, dict) and isinstance(content.get("policy"), dict):
        content = {k.removeprefix("model."): v for k, v in content["policy"].items() if k.startswith("model.")}
    if not (isinstance(content, dict) and content and all(isinstance(v, torch.Tensor) for v in content.values())):
        raise ConfigError(f"{_PLACE}: {path}: has neither a state dict nor the checkpoint of a policy named 'vla'")
    return content


def _download(repo: str, revision: str) -> Path:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"{_PLACE}: '{repo}@{revision}' is no folder here, and to download it needs huggingface_hub: "
            f"{install_extra('vla')}"
        )
    import huggingface_hub  # noqa: PLC0415 (optional extra)

    try:
        return Path(
            huggingface_hub.snapshot_download(
                repo, revision=revision, allow_patterns=[_CONFIG, _WEIGHTS, _TORCH_WEIGHTS]
            )
        )
    # Its errors are OSErrors (no connection, offline mode, HTTP) and ValueErrors (no such name).
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{_PLACE}: '{repo}@{revision}' cannot be downloaded and is not in the hub's cache here: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _check_arguments(cls: type[nn.Module], config: Mapping[str, Any]) -> None:
    parameters = inspect.signature(cls).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return  # the class checks them
    known = [p.name for p in parameters]
    for key in config:
        if key not in known:
            raise ConfigError(f"policy.vla_config.model_config.{key}: {unknown_name('argument', key, known)}")
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in config]
    if missing:
        raise ConfigError(f"policy.vla_config.model_config: {cls.__name__} needs {', '.join(missing)}")


def _load_weights(model: nn.Module, stored: StoredModel) -> None:
    own = model.state_dict()
    missing = [name for name in own if name not in stored.weights]
    unknown = [name for name in stored.weights if name not in own]
    shapes = [
        f"'{name}' is {list(stored.weights[name].shape)} there and {list(value.shape)} here"
        for name, value in own.items()
        if name in stored.weights and stored.weights[name].shape != value.shape
    ]
    problems = [*(f"no '{name}'" for name in missing), *(f"'{name}' is not the model's" for name in unknown), *shapes]
    if problems:
        more = f", and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise ConfigError(f"{_PLACE}: {stored.source}: weights do not fit the model: {'; '.join(problems[:4])}{more}")
    model.load_state_dict(stored.weights)
