"""A LeRobot SmolVLA on the disk, and the model that is built from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from embodichain.ext.vla import gaussian_vla, smolvla
from embodichain.ext.vla.lerobot import files
from embodichain.lab.gym.utils.instructions import decode_instruction
from embodichain.utils import ConfigError, logger, unknown_name
from embodichain.utils.state import read_safetensors

WEIGHTS = "model.safetensors"
_INITIAL = ("critic.", "log_std", "state_", "action_mean", "action_std")  # which LeRobot's weights have not


@dataclass(frozen=True)
class LeRobotFolder:
    """A SmolVLA in LeRobot's format.

    Attributes:
        config: the ``config.json``, whole.
        cfg: the fields read from it.
        vlm: transformers' config of its vision-language model.
        tokenizer: transformers' tokenizer.
    """

    path: Path
    config: Mapping[str, Any]
    cfg: files.LeRobotCfg
    processors: files.Processors
    vlm: Any
    tokenizer: Any

    def weights(self) -> dict[str, torch.Tensor]:
        """Read the weights, by LeRobot's names."""
        return read_safetensors(files.find_file(self.path, WEIGHTS))


def is_lerobot(config: Mapping[str, Any]) -> bool:
    """Return whether a ``config.json`` is in LeRobot's format."""
    return "type" in config and "input_features" in config


def read_lerobot_folder(path: Path, config: Mapping[str, Any]) -> LeRobotFolder:
    """Read all but the weights of a folder, whose ``config.json`` is given."""
    cfg = files.read_config(config, str(path / "config.json"))
    files.find_file(path, WEIGHTS)
    processors = files.read_processors(path, cfg)
    vlm = files.read_vlm_config(path, cfg.vlm_model_name)
    tokenizer = files.read_tokenizer(path, processors, vlm.text_config.vocab_size)
    return LeRobotFolder(path, config, cfg, processors, vlm, tokenizer)


def for_robot(folder: LeRobotFolder, state_dim: int, action_dim: int) -> LeRobotFolder:
    """Return the policy of a folder for a robot's states and actions, possibly of other sizes or statistics.

    Its weights do not depend on either: states and actions are filled up to a fixed size. The statistics are then
    identities, of the kinds that its processors ask for, until demonstrations are imitated.
    """
    cfg, processors = folder.cfg, folder.processors
    sizes = cfg.input_features[files.STATE].shape, cfg.output_features[files.ACTION].shape
    kinds = processors.state.kind, processors.action.kind
    if (sizes, kinds) == (([state_dim], [action_dim]), (processors.state_kind, processors.action_kind)):
        return folder
    place = f"{files.MODEL_PATH}: {folder.path}"
    logger.log_warning(
        f"{place}: has no statistics of this robot's states and actions: nothing is normalised until a behaviour "
        "cloning fits them"
    )
    for name, size, most, key in (
        (files.STATE, state_dim, cfg.max_state_dim, "max_state_dim"),
        (files.ACTION, action_dim, cfg.max_action_dim, "max_action_dim"),
    ):
        if size > most:
            raise ConfigError(f"{place}: {name} has up to {most} numbers ({key}), the environment's has {size}")
    config = {
        **folder.config,
        "input_features": _resized(folder.config["input_features"], files.STATE, state_dim),
        "output_features": _resized(folder.config["output_features"], files.ACTION, action_dim),
    }
    processors = replace(
        processors,
        state=_initial(processors.state_kind, state_dim),
        action=_initial(processors.action_kind, action_dim),
    )
    cfg = files.read_config(config, f"{place}/config.json")
    return replace(folder, config=config, cfg=cfg, processors=processors)


def _resized(features: Mapping[str, Any], name: str, size: int) -> dict[str, Any]:
    return {**features, name: {**features[name], "shape": [size]}}


def _initial(kind: smolvla.Normalization, size: int) -> files.Statistics:
    return files.Statistics(kind, torch.full((size,), smolvla.shift_of(kind)), torch.ones(size))


def build_lerobot_model(
    folder: LeRobotFolder, entries: Mapping[str, str], changes: Mapping[str, Any], device: torch.device | str
) -> tuple[smolvla.SmolVLA, dict[str, Any]]:
    """Build the model with the folder's weights; critic and stds, which LeRobot has not, are initial ones.

    Args:
        entries: our image for each of the policy's that is used (``find_entries``).
        changes: the user's ``model_config``.

    Returns:
        The model, and the arguments that it was built with.
    """
    for key in changes:
        if key not in files.OVERRIDES:
            raise ConfigError(f"{smolvla.PLACE}.{key}: {unknown_name('override of a folder', key, files.OVERRIDES)}")
    processors = folder.processors
    state, action = processors.state, processors.action
    cameras = [entry.removeprefix(gaussian_vla.IMAGE) for entry in entries.values()]
    config = files.model_config(folder.cfg, folder.vlm, cameras, state.kind, action.kind) | dict(changes)
    model = smolvla.SmolVLA(**config)
    files.load_weights(model, our_weights(folder.weights()), f"{files.MODEL_PATH}: {folder.path}", _INITIAL)
    model.state_mean.copy_(state.mean)
    model.state_std.copy_(smolvla.divisor(state.std, state.kind))
    if action.kind != "IDENTITY":
        model.action_mean.copy_(action.mean)
        model.action_std.copy_(action.std)
    length = processors.tokenizer.max_length if processors.tokenizer.truncation else None
    model.read_words = InstructionTokenizer(folder.tokenizer, length, processors.ends_in_new_line)
    return model.to(device), config


_VLM = "model.vlm_with_expert."
_THEIRS = {
    "vlm.": f"{_VLM}vlm.model.",
    "expert.": f"{_VLM}lm_expert.layers.",
    "expert_norm.": f"{_VLM}lm_expert.norm.",
    "state.": "model.state_proj.",
    "action_in.": "model.action_in_proj.",
    "action_out.": "model.action_out_proj.",
    "time_in.": "model.action_time_mlp_in.",
    "time_out.": "model.action_time_mlp_out.",
}
_UNUSED = f"{_VLM}vlm.lm_head."  # of the language model, which writes no text here


def our_weights(theirs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return LeRobot's weights by our names; a name that is not among its SmolVLA's stays as it is."""
    found = {}
    for name, value in theirs.items():
        ours = (own + name.removeprefix(their) for own, their in _THEIRS.items() if name.startswith(their))
        if not name.startswith(_UNUSED):
            found[next(ours, name)] = value
    return found


def their_weights(ours: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return our weights by LeRobot's names, without LeRobot's missing parts: critic, stds and statistics."""
    found = {}
    for name, value in ours.items():
        for own, their in _THEIRS.items():
            if name.startswith(own):
                found[their + name.removeprefix(own)] = value
    return found


class InstructionTokenizer:
    """Turns instructions in tokens of our vocabulary into text, and that into tokens of a model.

    Args:
        tokenizer: transformers' tokenizer.
        max_length: tokens of an instruction, the rest is cut off; None: all.
        ends_in_new_line: whether the text gets a new line, as in the model's training.
    """

    def __init__(self, tokenizer: Any, max_length: int | None, ends_in_new_line: bool) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._end = "\n" if ends_in_new_line else ""
        self._known: dict[tuple[int, ...], list[int]] = {}  # few: a task has few instructions

    def __call__(self, instruction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens of instructions [B, L], [B, K], and a mask that is False at padding."""
        if torch._C._is_tracing() or torch.compiler.is_exporting():
            raise RuntimeError("its tokenizer is no part of the network; --format lerobot exports it")
        distinct, rows = instruction.unique(dim=0, return_inverse=True)
        found = [self._tokens(tuple(tokens)) for tokens in distinct.tolist()]
        longest = max(map(len, found))
        padded = [tokens + [-1] * (longest - len(tokens)) for tokens in found]
        table = torch.tensor(padded, dtype=torch.int64, device=instruction.device)[rows]
        return table.clamp(min=0), table >= 0

    def _tokens(self, instruction: tuple[int, ...]) -> list[int]:
        if instruction not in self._known:
            text = decode_instruction(instruction) + self._end
            given = self._tokenizer(text, truncation=self._max_length is not None, max_length=self._max_length)
            self._known[instruction] = list(given["input_ids"])
        return self._known[instruction]
