"""Names of a SmolVLA's weights, ours and LeRobot's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

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
    return {_renamed(name): value for name, value in theirs.items() if not name.startswith(_UNUSED)}


def their_weights(ours: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return our weights by LeRobot's names, without LeRobot's missing parts: critic, stds and statistics."""
    found = {}
    for name, value in ours.items():
        for own, their in _THEIRS.items():
            if name.startswith(own):
                found[their + name.removeprefix(own)] = value
    return found


def _renamed(name: str) -> str:
    for own, their in _THEIRS.items():
        if name.startswith(their):
            return own + name.removeprefix(their)
    return name
