"""Holds the import directions of the design: who may import whom, read from the source without running it."""

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------------------------------------------------------------
# The rules. A layer is a name and the modules in it; a module belongs to the first layer, from the top, that holds it.
# "a.b" holds a.b and all below it; "=a.b" holds the package's own file alone. Names are relative to `embodichain`.
# A layer may import from itself and from the layers named beside it, and from nothing else of the package; "sim*" names
# all layers that begin so.

LAYERS: list[tuple[str, list[str], list[str]]] = [
    # layer            modules                                            may import
    ("root", ["=", "conflict"], ["utils"]),
    ("utils", ["utils"], ["root"]),
    # The simulator: configs and maths, the model made of them, engines, rendering, what is in the scene, its manager.
    (
        "sim base",
        [
            "lab.sim.cfg",
            *("lab.sim.random", "lab.sim.rows", "lab.sim.servos", "lab.sim.shapes", "lab.sim.types"),
            *("lab.sim.math", "lab.sim.kinematics"),
        ],
        ["utils"],
    ),
    ("sim assets", ["lab.sim.assets"], ["utils"]),
    ("sim model", ["lab.sim.model"], ["utils", "sim base", "sim assets"]),
    ("sim backend", ["lab.sim.backend"], ["utils", "sim base"]),
    ("sim rendering", ["lab.sim.rendering"], ["utils", "sim base", "sim model", "sim backend"]),
    ("sim sensors", ["lab.sim.sensors"], ["utils", "sim base", "sim assets", "sim backend", "sim rendering"]),
    (
        "sim objects",
        ["lab.sim.objects"],
        ["utils", "sim base", "sim assets", "sim model", "sim backend", "sim rendering"],
    ),
    ("sim", ["lab.sim"], ["root", "lab", "utils", "sim *"]),
    ("lab", ["=lab", "=lab.gym"], []),
    ("registry", ["lab.gym.registry"], ["root", "lab", "utils"]),
    ("gym sources", ["lab.gym.env_sources"], ["utils", "managers"]),
    # The environments: terms and managers, then the environment that runs them, then its config file, then the tasks.
    ("managers", ["lab.gym.envs.managers"], ["root", "lab", "utils", "sim*"]),
    (
        "tasks",
        ["lab.gym.envs.tasks"],
        ["root", "lab", "utils", "registry", "sim*", "managers", "envs", "gym config", "gym utils"],
    ),
    ("envs", ["lab.gym.envs"], ["root", "lab", "utils", "registry", "sim*", "managers"]),
    (
        "gym config",
        ["lab.gym.config"],
        ["root", "lab", "utils", "registry", "sim*", "managers", "envs", "gym sources", "gym utils"],
    ),
    ("gym utils", ["lab.gym.utils"], ["root", "lab", "utils", "registry", "sim*", "managers", "envs", "gym config"]),
    # The learner, which knows the environments by the VecEnv protocol alone.
    ("rl", ["=agents", "=agents.rl", "agents.rl.vec_env"], ["root", "utils"]),
    ("rl distributed", ["agents.rl.distributed"], ["root", "utils", "rl"]),
    ("rl config", ["agents.rl.config"], ["root", "utils", "rl"]),
    ("rl buffer", ["agents.rl.buffer"], ["root", "utils", "rl", "rl distributed"]),
    ("rl models", ["agents.rl.models"], ["root", "utils", "rl", "rl distributed", "rl buffer"]),
    ("rl collector", ["agents.rl.collector"], ["root", "utils", "rl", "rl buffer", "rl models"]),
    ("rl algo", ["agents.rl.algo"], ["root", "utils", "rl", "rl distributed", "rl buffer", "rl models"]),
    ("rl checkpoint", ["agents.rl.checkpoint"], ["root", "utils", "rl", "rl distributed", "rl config", "rl buffer"]),
    ("rl metrics", ["agents.rl.metrics"], ["root", "utils", "rl", "rl distributed", "rl config", "rl checkpoint"]),
    (
        "rl NaN guard",
        ["agents.rl.nan_guard"],
        ["root", "utils", "rl", "rl distributed", "rl buffer", "rl models", "rl collector", "rl algo", "rl checkpoint"],
    ),
    (
        "rl trainer",
        ["agents.rl.trainer"],
        [
            *("root", "utils", "rl", "rl distributed", "rl config", "rl buffer", "rl models", "rl collector"),
            *("rl algo", "rl checkpoint", "rl metrics", "rl NaN guard"),
        ],
    ),
    # Faces that the documented imports find.
    ("rl utils", ["agents.rl.utils"], ["root", "utils", "rl", "rl algo", "rl trainer"]),
    # What knows both worlds: the files of the learner that are in none of its rooms.
    (
        "build",
        ["agents.rl"],
        [*("root", "utils", "lab", "registry", "sim*", "managers", "envs", "tasks", "gym *"), *("rl", "rl *")],
    ),
    # The learner under its newer name.
    ("newer paths", ["learning"], []),
    ("tools", ["tools", "schema"], ["*"]),
    ("commands", ["commands", "cli", "__main__"], ["*"]),
    # Below the rules: nothing of the core imports an extension (see below).
    ("ext", ["ext"], ["*"]),
]

# Third-party packages, and the layers that may import them.
ONLY_IN = {"mujoco": "sim*", "mujoco_warp": "sim*", "warp": "sim*"}

# Scripts that are copied next to an exported policy, and imported by nothing.
STANDALONE = {"embodichain.ext.export.mujoco_robot"}

# What may be imported inside a function: the optional extras, which need not be installed, and nothing else.
OPTIONAL_EXTRAS = {
    "huggingface_hub",
    "lerobot",
    "mujoco_menagerie",
    "mujoco_warp",
    "onnx",
    "onnxruntime",
    "optuna",
    "peft",
    "pyarrow",
    "shtab",
    "transformers",
    "viser",
    "websockets",
    "wandb",
    "warp",
}
# ---------------------------------------------------------------------------------------------------------------------

MAY_IMPORT = {
    layer: {layer, *(other for other, _, _ in LAYERS if any(fnmatch.fnmatchcase(other, name) for name in others))}
    for layer, _, others in LAYERS
}


@dataclass(frozen=True)
class Import:
    """One imported name: `line` of `importer` imports `target` (a full dotted name)."""

    importer: str
    target: str
    line: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


class _ImportVisitor(ast.NodeVisitor):
    """Collects the imports of one module, with where they stand."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.module = module
        self.package = module if is_package else module.rpartition(".")[0]
        self.found: list[Import] = []
        self._in_function = False

    def visit_If(self, node: ast.If) -> None:
        # A package's names that are imported when they are first asked for.
        is_face = self.package == self.module and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not is_face:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outer, self._in_function = self._in_function, True
        self.generic_visit(node)
        self._in_function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
        # `from a import b` may name the module a.b or something in a: `resolve` tells which.
        for alias in node.names:
            self._add(f"{base}.{alias.name}", node.lineno)

    def _add(self, target: str, line: int) -> None:
        self.found.append(Import(self.module, target, line, self._in_function))


def read_modules(root: Path, package: str = "embodichain") -> dict[str, list[Import]]:
    """Module name -> its imports, for every file of `package` under `root`."""
    modules = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        if name in STANDALONE:
            continue
        visitor = _ImportVisitor(name, is_package)
        visitor.visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
        modules[name] = visitor.found
    return modules


def resolve(target: str, modules: dict[str, list[Import]], package: str = "embodichain") -> str | None:
    """The module of the package that `target` names or lies in; None for other people's packages."""
    if target.partition(".")[0] != package:
        return None
    while target not in modules and "." in target:
        target = target.rpartition(".")[0]
    return target


def layer_of(module: str) -> str | None:
    """The first layer of the table that holds `module`, which is given with the package's name in front."""
    relative = module.partition(".")[2]
    for layer, patterns, _ in LAYERS:
        for pattern in patterns:
            if relative == pattern.removeprefix("="):
                return layer
            if not pattern.startswith("=") and fnmatch.fnmatchcase(relative, f"{pattern}.*"):
                return layer
    return None


def direction_violations(modules: dict[str, list[Import]]) -> Iterator[str]:
    """One line for each import against the table, and for each module that the table does not place."""
    for module, imports in modules.items():
        layer = layer_of(module)
        if layer is None:
            yield f"{module} is in no layer of the table"
            continue
        allowed = MAY_IMPORT[layer]
        for imported in imports:
            owner = ONLY_IN.get(imported.target.partition(".")[0])
            if owner is not None and not fnmatch.fnmatchcase(layer, owner):
                yield f"{imported}, which only layers '{owner}' may"
            target = resolve(imported.target, modules)
            if target is None:
                continue
            target_layer = layer_of(target)
            if target_layer not in allowed:
                yield f"{imported}: layer '{layer}' may not import layer '{target_layer}'"


def function_imports(modules: dict[str, list[Import]]) -> Iterator[str]:
    """One line for each import inside a function that is not of an optional extra."""
    for imported in (i for imports in modules.values() for i in imports if i.in_function):
        if imported.target.partition(".")[0] not in OPTIONAL_EXTRAS:
            yield f"{imported} inside a function; it belongs at the top of the file"


def import_graph(modules: dict[str, list[Import]]) -> dict[str, list[str]]:
    """Module -> the modules that it needs, for types only or to run.

    Importing a.b.c runs the packages a and a.b too, except those that the importer lies in and is thus run by.
    """
    graph = {}
    for module, imports in modules.items():
        targets = {resolve(i.target, modules) for i in imports if not i.in_function}
        runs = set()
        for parts in (target.split(".") for target in targets if target):
            names = {".".join(parts[:n]) for n in range(1, len(parts))}
            runs |= {name for name in names if not f"{module}.".startswith(f"{name}.")} | {".".join(parts)}
        graph[module] = sorted(run for run in runs if run in modules and run != module)
    return graph


def import_cycle(modules: dict[str, list[Import]]) -> list[str]:
    """A cycle of imports, each module importing the next, or nothing."""
    try:
        TopologicalSorter(import_graph(modules)).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]
    return []


@pytest.fixture(scope="module")
def package() -> dict[str, list[Import]]:
    return read_modules(REPOSITORY)


def test_imports_follow_the_directions_of_the_design(package: dict[str, list[Import]]) -> None:
    violations = list(direction_violations(package))
    assert not violations, "\n".join(violations)


def test_no_import_inside_a_function_except_of_optional_extras(package: dict[str, list[Import]]) -> None:
    violations = list(function_imports(package))
    assert not violations, "\n".join(violations)


def test_no_core_module_imports_an_extension(package: dict[str, list[Import]]) -> None:
    found = [
        str(each)
        for module, imports in package.items()
        if not module.startswith(("embodichain.ext", "embodichain.ext.export"))
        for each in imports
        if each.target.startswith("embodichain.ext")
    ]
    assert found == []


def test_extensions_do_not_import_each_other(package: dict[str, list[Import]]) -> None:
    allowed = {("vla", "lerobot")}
    pairs = {
        (module.split(".")[2], each.target.split(".")[2])
        for module, imports in package.items()
        if module.startswith("embodichain.ext.")
        for each in imports
        if each.target.startswith("embodichain.ext.")
    }
    assert {pair for pair in pairs if pair[0] != pair[1]} <= allowed


def test_modules_do_not_import_each_other_in_a_circle(package: dict[str, list[Import]]) -> None:
    assert import_cycle(package) == []


# --- The walk itself, on a tree of a few lines ---


def plant(root: Path, files: dict[str, str]) -> dict[str, list[Import]]:
    """Writes `files` (path within the package -> source) and reads them back as `read_modules` does."""
    for name, source in files.items():
        path = root / "embodichain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return read_modules(root)


def test_planted_imports_against_the_rules_are_found(tmp_path: Path) -> None:
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x\n"
    modules = plant(
        tmp_path,
        {
            "lab/sim/scene.py": "import mujoco",
            "lab/gym/envs/a.py": "import mujoco.batch",
            "utils/up.py": "from ..lab.sim.scene import x",
            "utils/late.py": "def f():\n    import json\n    import wandb\n    return json, wandb\n",
            "utils/a.py": "from . import b",
            "utils/b.py": for_types,
            "elsewhere/a.py": "",
        },
    )
    assert [line.split("imports")[-1].strip() for line in direction_violations(modules)] == [
        "embodichain.elsewhere.a is in no layer of the table",
        "mujoco.batch, which only layers 'sim*' may",
        "embodichain.lab.sim.scene.x: layer 'utils' may not import layer 'sim'",
    ]
    (late,) = function_imports(modules)
    assert late.startswith("embodichain.utils.late:2 imports json")
    assert {*import_cycle(modules)} == {"embodichain.utils.a", "embodichain.utils.b"}
