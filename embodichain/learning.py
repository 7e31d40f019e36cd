"""EmbodiChain's import paths since 0.2: ``embodichain.learning.rl`` is ``embodichain.agents.rl`` with its modules."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

__path__: list[str] = []  # a package without files

_THEIRS, _OURS = f"{__name__}.rl", "embodichain.agents.rl"


class _Face(Loader, MetaPathFinder):
    """Finds modules by EmbodiChain's names, and loads the modules themselves: a copy would have its own registries."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = find_spec(_our_name(fullname)) if f"{fullname}.".startswith(f"{_THEIRS}.") else None
        if ours is None:
            return None
        return ModuleSpec(fullname, self, origin=ours.origin, is_package=ours.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_our_name(module.__name__))

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that ``python -m`` runs."""
        name = _our_name(fullname)
        code: CodeType | None = find_spec(name).loader.get_code(name)  # type: ignore[union-attr]
        return code


def _our_name(name: str) -> str:
    since_0_3 = name.replace(f"{_THEIRS}.policies", f"{_OURS}.models", 1)
    return since_0_3.replace(_THEIRS, _OURS, 1)


sys.meta_path.insert(0, _Face())
