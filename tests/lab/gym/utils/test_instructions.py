"""Shapes: N instructions, L tokens."""

import pytest
import torch

from embodichain.lab.gym.utils.instructions import VOCABULARY, decode_instruction, encode_instructions
from embodichain.utils import ConfigError


def test_instruction_is_its_words_numbers_and_padding() -> None:
    tokens = encode_instructions(["push the red cube", "Open Drawer"], length=5)
    expected = [[VOCABULARY.index(w) for w in ("push", "the", "red", "cube")] + [0]]
    expected += [[VOCABULARY.index("open"), VOCABULARY.index("drawer"), 0, 0, 0]]
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == expected


def test_words_come_back_from_tokens() -> None:
    text = "push the green cube"
    assert decode_instruction(encode_instructions([text])[0]) == text


def test_numbers_of_words_that_trained_models_know_stay() -> None:
    known = {"<pad>": 0, "push": 1, "the": 13, "red": 28, "green": 29, "blue": 30, "cube": 40}
    assert {word: VOCABULARY.index(word) for word in known} == known


def test_unknown_word_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"instruction 'push the rde cube': unknown word 'rde'\. Did you mean 'red'"):
        encode_instructions(["push the rde cube"])


def test_too_long_instruction_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 4 words, 3 is the most"):
        encode_instructions(["push the red cube"], length=3)
