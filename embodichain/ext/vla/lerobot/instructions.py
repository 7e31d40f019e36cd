"""Instructions as the tokens of a vision-language model.

Legend: B batch, L tokens of our vocabulary, K tokens of its vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from embodichain.utils.instructions import decode_instruction


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
        """Return the tokens of instructions [B, L], [B, K], and a mask that is False at padding.

        Raises:
            RuntimeError: torch traces the policy; its file would always read the traced instructions.
        """
        if torch._C._is_tracing() or torch.compiler.is_exporting():
            raise RuntimeError("its tokenizer is no part of the network; --format lerobot exports it")
        distinct, rows = instruction.unique(dim=0, return_inverse=True)
        found = [self._tokens(tuple(tokens)) for tokens in distinct.tolist()]
        longest = max(map(len, found))
        padded = [tokens + [-1] * (longest - len(tokens)) for tokens in found]
        table = torch.tensor(padded, device=instruction.device)[rows]
        return table.clamp(min=0), table >= 0

    def _tokens(self, instruction: tuple[int, ...]) -> list[int]:
        if instruction not in self._known:
            text = decode_instruction(instruction) + self._end
            given = self._tokenizer(text, truncation=self._max_length is not None, max_length=self._max_length)
            self._known[instruction] = list(given["input_ids"])
        return self._known[instruction]
