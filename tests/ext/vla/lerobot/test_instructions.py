from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.ext.vla.lerobot.folder import InstructionTokenizer
from embodichain.lab.gym.utils.instructions import encode_instructions


class Letters:
    """A tokenizer whose tokens are the letters' codes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str, truncation: bool, max_length: int | None) -> dict[str, Any]:
        self.texts.append(text)
        tokens = [ord(letter) for letter in text]
        return {"input_ids": tokens[:max_length] if truncation else tokens}


def test_text_becomes_tokens_once_for_each_instruction() -> None:
    letters = Letters()
    read = InstructionTokenizer(letters, 48, ends_in_new_line=True)
    given = encode_instructions(["push the red cube", "open", "push the red cube"])
    for _ in range(2):
        tokens, there = read(given)
    assert letters.texts == ["open\n", "push the red cube\n"] or letters.texts == ["push the red cube\n", "open\n"]
    assert "".join(map(chr, tokens[0])) == "push the red cube\n"
    assert torch.equal(tokens[0], tokens[2])
    assert "".join(map(chr, tokens[1][there[1]])) == "open\n"
    assert there.sum(1).tolist() == [18, 5, 18]


@pytest.mark.parametrize(("length", "end", "expected"), [(3, True, "ope"), (None, True, "open\n"), (48, False, "open")])
def test_text_is_cut_off_and_ended_as_the_processor_says(length: int | None, end: bool, expected: str) -> None:
    tokens, there = InstructionTokenizer(Letters(), length, end)(encode_instructions(["open"]))
    assert "".join(map(chr, tokens[0])) == expected
    assert there.all()


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_tracing_is_refused() -> None:
    """A traced policy would read the traced instruction for ever."""
    read = InstructionTokenizer(Letters(), 48, ends_in_new_line=True)
    with pytest.raises(RuntimeError, match="--format lerobot exports it"):
        torch.jit.trace(lambda x: read(x)[0], (encode_instructions(["open"]),))
