"""Importing tensordict without torch's compiler, which takes half of a command's start and is hardly ever needed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_USER, _COMPILER = "tensordict", "torch._dynamo"
_MARKS = ("allow_in_graph", "assume_constant_result")  # of torch.compiler: each call imports the compiler


def defer_compiler() -> None:
    """Let tensordict, when it is imported, mark its functions for the compiler only once that is imported.

    A program that compiles finds the same marks. The command calls this; ``import embodichain`` changes nothing.
    """
    if _USER not in sys.modules and not any(isinstance(finder, _Deferral) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Deferral())


class _Deferral(MetaPathFinder):
    """Collects the marks while tensordict is imported, and sets them after the compiler was."""

    def __init__(self) -> None:
        self._marked: list[tuple[Callable[[Any], Any], Any]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the two modules, for others None; the compiler's is asked for once."""
        if fullname not in (_USER, _COMPILER):
            return None
        sys.meta_path.remove(self)  # while the other finders are asked
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module
        if fullname == _USER:
            sys.meta_path.insert(0, self)

            def execute_here(module: ModuleType) -> None:
                with self._collecting():
                    execute(module)
        else:

            def execute_here(module: ModuleType) -> None:
                execute(module)
                for mark, function in self._marked:
                    mark(function)

        spec.loader.exec_module = execute_here  # type: ignore[method-assign]
        return spec

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        compiler = importlib.import_module("torch.compiler")  # torch is not imported before tensordict is
        originals = {name: getattr(compiler, name) for name in _MARKS}
        is_collecting = _COMPILER not in sys.modules

        def later(mark: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def marked(function: Any) -> Any:
                if not is_collecting:  # tensordict keeps these functions
                    return mark(function)
                self._marked.append((mark, function))
                return function

            return marked

        vars(compiler).update({name: later(mark) for name, mark in originals.items()})
        try:
            yield
        finally:
            is_collecting = False
            vars(compiler).update(originals)
