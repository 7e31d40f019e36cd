"""Vision-language-action models by name, and their weights from folders, files and the Hugging Face hub."""

import inspect
import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embodichain.ext.vla.lerobot import files
from embodichain.ext.vla.lerobot.files import MODEL_PATH
from embodichain.ext.vla.lerobot.folder import LeRobotFolder, build_lerobot_model, is_lerobot, read_lerobot_folder
from embodichain.ext.vla.smolvla import SmolVLA
from embodichain.utils import ConfigError, placed, read_bytes, state
from embodichain.utils.utility import load_config_file

OUR_MODELS = "embodichain.agents.rl.models"
"""Models in this package need no entry in the allow-list."""

_CONFIG, _WEIGHTS, _TORCH_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.pt"
_METHODS = ("forward", "get_value", "evaluate_actions")
_FILES = (_CONFIG, _WEIGHTS, _TORCH_WEIGHTS, "policy_*.json", "policy_*.safetensors", "tokenizer/*")  # of the hub
_HUB = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?$")


@dataclass(frozen=True)
class StoredModel:
    """A saved model.

    Attributes:
        source: the user's key and the path, for messages.
        config: empty if it was not saved.
        weights: the state dict.
    """

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
        model_path: a folder that ``save_vla_model`` has written (config and safetensors), a ``.pt`` or ``.safetensors``
            file (a state dict, or a checkpoint of a training), a folder of LeRobot's SmolVLA, or a repository of the
            Hugging Face hub with one of these as ``owner/name@revision``. None: the class's initial weights.
        model_class: dotted path of a class with ``chunk_length``, ``observation_keys``, ``forward(obs)``,
            ``get_value(obs)`` and ``evaluate_actions(obs, actions)``, in this package or in an imported module; names
            from config files are checked against the allow-list first (``parse_policy_block``).
        model_config: keyword arguments of the class, over the folder's.
    """
    cls = find_vla_class(model_class)
    stored = None if model_path is None else read_model_path(model_path)
    if isinstance(stored, LeRobotFolder):
        check_lerobot_class(cls, stored)
        return build_lerobot_model(stored, files.find_entries(stored.cfg, {}), model_config or {}, device)[0]
    return build_vla_model(cls, stored, dict(model_config or {}), device)


def check_lerobot_class(cls: type[nn.Module], folder: LeRobotFolder) -> None:
    """Check that a class is the one of a LeRobot folder."""
    if cls is not SmolVLA:
        raise ConfigError(
            f"policy.vla_config.model_class: {folder.path} has LeRobot's SmolVLA: must be {OUR_MODELS}.SmolVLA, got "
            f"{cls.__name__}"
        )


def build_vla_model(
    cls: type[nn.Module], stored: StoredModel | None, model_config: Mapping[str, Any], device: torch.device | str
) -> nn.Module:
    """Build a class with a config over the saved one, and load the saved weights; see ``load_vla_model``."""
    config = {**(stored.config if stored else {}), **model_config}
    model = cls(**config)
    if stored is not None:
        files.load_weights(model, stored.weights, stored.source)
    return model.to(device)


def find_vla_class(name: str) -> type[nn.Module]:
    """Return the class that a dotted path names."""
    place = "policy.vla_config.model_class"
    module, _, attribute = name.rpartition(".")
    if module not in sys.modules:
        raise ConfigError(
            f"{place}: module '{module}' of '{name}' is not imported: list it in trainer.import_modules, pass "
            f"--import, or import it in Python. Ours: {OUR_MODELS}.TinyVLA"
        )
    found = getattr(sys.modules[module], attribute, None)
    if not (inspect.isclass(found) and issubclass(found, nn.Module)):
        raise ConfigError(f"{place}: there is no model '{attribute}' in {module}")
    lacking = [method for method in _METHODS if not callable(getattr(found, method, None))]
    if lacking:
        raise ConfigError(f"{place}: {name} has no {', '.join(lacking)}")
    return found


def save_vla_model(model: nn.Module, config: Mapping[str, Any], folder: Path) -> None:
    """Write a model into a folder for ``load_vla_model``; the folder is created if missing.

    Args:
        config: keyword arguments of the model's class, plain data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state.write_safetensors(folder / _WEIGHTS, model.state_dict())
    (folder / _CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")


def read_model_path(model_path: str | Path) -> StoredModel | LeRobotFolder:
    """Read the model at a ``model_path`` of ``load_vla_model``."""
    path = Path(model_path)
    with placed(f"{MODEL_PATH}: "):
        if path.is_dir():
            return _read_folder(path)
        if path.is_file():
            read = state.read_safetensors if path.suffix == ".safetensors" else _read_torch
            return StoredModel(f"{MODEL_PATH}: {path}", {}, read(path))
        hub = _HUB.match(str(model_path))
        if hub is None or hub["revision"] is None or path.suffix in (".pt", ".safetensors"):
            raise ConfigError(
                f"no such folder or file: {path.absolute()}. A model is a folder with {_CONFIG} and {_WEIGHTS} (as "
                "save_vla_model writes), a .pt or .safetensors file, or a hub repository with its revision: "
                "owner/name@revision"
            )
        return _read_folder(files.download(hub["repo"], hub["revision"], _FILES))


def _read_folder(folder: Path) -> StoredModel | LeRobotFolder:
    config = load_config_file(folder / _CONFIG)
    if is_lerobot(config):
        return read_lerobot_folder(folder, config)
    if (folder / _WEIGHTS).exists():
        return StoredModel(f"{MODEL_PATH}: {folder}", config, state.read_safetensors(folder / _WEIGHTS))
    if (folder / _TORCH_WEIGHTS).exists():
        return StoredModel(f"{MODEL_PATH}: {folder}", config, _read_torch(folder / _TORCH_WEIGHTS))
    raise ConfigError(f"{folder}: has neither {_WEIGHTS} nor {_TORCH_WEIGHTS}")


def _read_torch(path: Path) -> dict[str, torch.Tensor]:
    """Return the state dict of a file, or of the policy's model in a training's checkpoint."""
    content = torch.load(io.BytesIO(read_bytes(path)), map_location="cpu", weights_only=True)
    if isinstance(content, dict) and isinstance(content.get("policy"), dict):
        content = {k.removeprefix("model."): v for k, v in content["policy"].items() if k.startswith("model.")}
    if not (isinstance(content, dict) and content and all(isinstance(v, torch.Tensor) for v in content.values())):
        raise ConfigError(f"{path}: has neither a state dict nor the checkpoint of a policy named 'vla'")
    return content
