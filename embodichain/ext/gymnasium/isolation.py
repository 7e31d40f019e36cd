"""The process's global random generators, apart for foreign code and for the learner."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class ForeignGenerators:
    """Python's, NumPy's and torch's global generators of foreign code, which are in place inside the ``with`` block.

    A foreign ``reset`` or ``step`` that draws from them, or seeds them, neither repeats nor shifts the learner's draws.
    Not for blocks during which another thread draws.
    """

    def __init__(self) -> None:
        self._python, self._learners_python = _PythonUser(), _PythonUser()
        self._numpy: np.random.BitGenerator = np.random.MT19937(0)
        self._learners_numpy: np.random.BitGenerator = self._numpy
        self._torch: list[torch.Tensor] = []
        self._learners_torch: list[torch.Tensor] = []
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed the foreign code's generators."""
        self._torch = [torch.Generator(g.device).manual_seed(seed).get_state() for g in _torch_generators()]
        self._numpy = np.random.MT19937(seed)
        self._python.take(random.Random(seed).getstate())

    def __enter__(self) -> None:
        generators = _torch_generators()
        self._learners_torch = [generator.get_state() for generator in generators]
        for generator, state in zip(generators, self._torch, strict=False):  # CUDA may have started since
            generator.set_state(state)
        self._learners_numpy = np.random.get_bit_generator()  # type: ignore[attr-defined]
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        self._learners_python.leave()
        self._python.enter()

    def __exit__(self, *error: object) -> None:
        generators = _torch_generators()
        self._torch = [generator.get_state() for generator in generators]
        for generator, state in zip(generators, self._learners_torch, strict=False):
            generator.set_state(state)
        np.random.set_bit_generator(self._learners_numpy)  # type: ignore[attr-defined]
        self._python.leave()
        self._learners_python.enter()


class _PythonUser:
    """One of two users of Python's global generator, whose state takes long to read.

    A draw after the user's turn tells whether the state is still the known one; only if it is not, it is read again.
    """

    def __init__(self) -> None:
        self._state: Any = None
        self._next: object = None

    def take(self, state: Any) -> None:
        """Make a state of the generator the user's."""
        self._state = state
        self._next = _peek(state)

    def enter(self) -> None:
        """Put the user's state in place."""
        random.setstate(self._state)

    def leave(self) -> None:
        """Keep what the generator has become; its state is then another."""
        if self._state is None or (random.getrandbits(64), _gauss_next()) != self._next:
            self.take(random.getstate())


def _peek(state: Any) -> tuple[int, object]:
    generator = random.Random()
    generator.setstate(state)
    return generator.getrandbits(64), generator.gauss_next  # type: ignore[attr-defined]


def _gauss_next() -> object:
    """Return the second number of a pair that ``random.gauss`` has drawn."""
    return random.gauss.__self__.gauss_next  # type: ignore[attr-defined]


def _torch_generators() -> tuple[torch.Generator, ...]:
    return (torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ()))
