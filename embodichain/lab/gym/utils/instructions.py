"""Instructions as text and tokens, by a small fixed vocabulary of environments and policies.

A token is the index of a word in ``VOCABULARY``; 0 is padding. Text is lower-cased and split at spaces. Append new
words at the end, because trained policies know the indices.

Shapes: N environments, L tokens of an instruction.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from embodichain.utils import ConfigError, unknown_name

INSTRUCTION_LENGTH = 8
"""L."""

VOCABULARY = (
    "<pad>",
    *("push", "pick", "place", "lift", "open", "close", "move", "reach", "grasp", "stack", "put", "turn"),
    *("the", "a", "to", "on", "in", "of", "and", "from", "into", "up", "down", "left", "right", "front", "back"),
    *("red", "green", "blue", "yellow", "orange", "purple", "white", "black", "small", "large", "top", "bottom"),
    *("cube", "ball", "box", "drawer", "door", "handle", "goal", "bowl", "plate", "cup", "table", "robot", "gripper"),
)
"""The word of each token."""

_NUMBERS = {word: number for number, word in enumerate(VOCABULARY)}


def encode_instructions(texts: Iterable[str], length: int = INSTRUCTION_LENGTH) -> Tensor:
    """Return instructions as tokens, [N, L] int64; a ConfigError for an unknown word, or more than L words."""
    rows = []
    for text in texts:
        words = text.lower().split()
        for word in words:
            if _NUMBERS.get(word, 0) == 0:
                raise ConfigError(f"instruction '{text}': {unknown_name('word', word, VOCABULARY[1:])}")
        if len(words) > length:
            raise ConfigError(f"instruction '{text}': has {len(words)} words, {length} is the most")
        rows.append([_NUMBERS[word] for word in words] + [0] * (length - len(words)))
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), length)


def decode_instruction(tokens: Tensor | Sequence[int]) -> str:
    """Return the words of an instruction's tokens [L]."""
    return " ".join(VOCABULARY[int(token)] for token in tokens if int(token) != 0)
