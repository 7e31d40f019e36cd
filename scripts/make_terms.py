"""Write docs/terms.md, the catalogue of terms, from their signatures and docstrings.

    python scripts/make_terms.py

A test compares the committed page with the output of this script.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from embodichain.lab.gym.envs.managers import types
from embodichain.utils.module_utils import public_names

PAGE = Path(__file__).parents[1] / "docs" / "terms.md"
MANAGERS = "embodichain.lab.gym.envs.managers"
# Heading of the section, modules, and what a term of it is in a config.
SECTIONS = [
    (
        "Actions",
        "actions motion.actions",
        "`env.actions`: what the policy's numbers mean. Sizes below: N environments, J joints.",
    ),
    (
        "Commands",
        "commands motion.commands",
        "`env.commands`: commands that the policy follows, drawn again after each `resampling_time`.",
    ),
    (
        "Observations",
        "observations locomotion_observations motion.observations",
        "`env.observations`: entries of the observation, [N, ...] each. F is the number of a sensor's links.",
    ),
    (
        "Sensor models",
        "sensor_models",
        "`env.observations`, mode `modify`, in the order of the config: an entry as a real sensor would report it.",
    ),
    (
        "Rewards",
        "rewards locomotion_rewards motion.rewards",
        "`env.rewards`: summands of the reward, [N] each, times their `weight`. F as above.",
    ),
    (
        "Terminations",
        "terminations motion.terminations",
        "`env.terminations`: ends of episodes: failures, or with `time_out` truncations.",
    ),
    (
        "Curriculum",
        "curriculum motion.curriculum",
        "`env.curriculum`: changes with the policy's progress, in training alone.",
    ),
    ("Domain randomization", "randomization", "`env.events`: draws for the n environments concerned."),
    ("Other events", "events", "`env.events`: other changes of the n environments concerned."),
    ("Recording", "record", "`env.events`, or `trainer.events` of the train config."),
    ("Datasets", "datasets", "`env.dataset`: what becomes of finished episodes."),
]
INTRO = """\
# Terms

<!-- Written by scripts/make_terms.py from the docstrings: change them there. -->

The functions and classes that an environment config can name by `func`, with their `params` (type, default). An entity
of the scene is named by `{"uid": "cube"}`. Lengths are in m, masses in kg, times in s, angles in rad; quaternions are
(w, x, y, z). Random values are drawn by environment and episode, so they do not depend on the number of environments.
For a term of your own see [Add a term](extending.md#add-a-term).
"""
# Parameters that the managers pass.
LEADING = {"self", "env", "env_ids", "obs", "action", "reward", "done", "info", "data"}
_KINDS = ("", "Articulation", "Camera", "Group", "Jointed", "Light", "Rigid", "Robot")
# Annotations in the words of JSON.
TYPES = {
    "SceneEntityCfg": '`{"uid": str}`',
    **{f"{kind}Entity": '`{"uid": str}`' for kind in _KINDS},
    "CameraName": "str",
    "tuple[PositiveFloat, PositiveFloat]": "[float > 0, float > 0]",
    "Floats": "list[float]",
    "SensorName": "str",
    "FeetSensor": "str",
    "Part": "str",
    "PartName": "str",
    "PoseKey": "str",
    "JointName": "str",
    "JointIds": "list[int]",
    "JointRange": "[[...], [...]]",
    "PerLink": "list[float]",
    "CommandName": "str",
    "PositiveRange": "[low, high] > 0",
    "PositiveShare": "0 < float <= 1",
    "Share": "0 <= float <= 1",
    "Lean": "0 < float < pi",
    "NonNegativeFloat": "float >= 0",
    "PositiveFloat": "float > 0",
    "PositiveInt": "int > 0",
    "NonNegativeInt": "int >= 0",
    "Interval": "[low, high]",
    "FactorRange": "[low, high] >= 0",
    "Range1": "[low, high]",
    "Range2": "[[x, y], [x, y]]",
    "Range3": "[[x, y, z], [x, y, z]]",
    "Range": "[[...], [...]]",
    "ScaleRange": "[[...], [...]] > 0",
    "Vec3": "[x, y, z]",
    "tuple[float, float, float]": "[x, y, z]",
    "tuple[float, float]": "[low, high]",
    "tuple[PositiveInt, PositiveInt]": "[int, int]",
    "Delay": "[int >= 0, int >= 0]",
    "None": "null",
}


def page() -> str:
    """Return the whole page."""
    parts = [INTRO]
    for heading, modules, about in SECTIONS:
        parts.append(f"## {heading}\n\n{about}\n")
        for module in modules.split():
            found = importlib.import_module(path := f"{MANAGERS}.{module}")
            names = sorted(public_names([path]))
            parts += [term_text(name, getattr(found, name)) for name in names if is_term(found, name)]
    return "\n".join(parts)


def is_term(module: Any, name: str) -> bool:
    """Return whether a public name of a module is a term."""
    return callable(getattr(module, name)) and getattr(module, name).__module__.startswith(
        (MANAGERS, "embodichain.ext.")
    )


def term_text(name: str, term: Any) -> str:
    """Return the part of the page about a term."""
    about, meanings, returns = split_docstring(inspect.getdoc(term) or "")
    for parent in inspect.getmro(term)[1:] if isinstance(term, type) else ():
        meanings = split_docstring(inspect.getdoc(parent) or "")[1] | meanings
    rows = []
    for parameter in parameters(term):
        default = "required" if parameter.default is parameter.empty else f"`{plain(parameter.default)}`"
        meaning = meanings.get(parameter.name) or type_meaning(parameter.annotation)
        rows.append(f"- `{parameter.name}` ({type_text(parameter.annotation)}, {default}): {meaning}")
    listed = "\n".join(rows) + "\n" if rows else ""
    return "\n".join(part for part in (f"### `{name}`\n", f"{about}\n", returns and f"{returns}\n", listed) if part)


def parameters(term: Any) -> list[inspect.Parameter]:
    """Return what the config's ``params`` may have, with the annotations as the source has them."""
    call = term
    if isinstance(term, type):
        call = getattr(term, "configure", None) or term.__call__
    definition = ast.parse(textwrap.dedent(inspect.getsource(call))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = [*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs]
    written = {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation is not None}
    own = [p for p in inspect.signature(call).parameters.values() if p.name not in LEADING]
    return [p.replace(annotation=written[p.name]) for p in own]


def split_docstring(text: str) -> tuple[str, dict[str, str], str]:
    """Return the text of a docstring before its sections, its ``Args`` by name, and its ``Returns``."""
    about, *sections = re.split(r"\n\n(?=(?:Args|Returns|Raises):\n)", text)
    meanings: dict[str, str] = {}
    returns = ""
    for section in sections:
        heading, _, body = section.partition("\n")
        body = textwrap.dedent(body)
        if heading == "Args:":
            meanings = dict(arguments(body))
        elif heading == "Returns:":
            returns = "Returns " + " ".join(body.split())
    return (
        markdown(about),
        {name: markdown(" ".join(text.split())) for name, text in meanings.items()},
        markdown(returns),
    )


def arguments(body: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each entry of an ``Args`` section."""
    for entry in re.split(r"\n(?=\w)", body.strip()):
        name, _, text = entry.partition(":")
        yield name, text


def markdown(text: str) -> str:
    """Return reStructuredText's inline marks as Markdown's."""
    text = re.sub(r":\w+:`~?([\w.]+)`", lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def type_text(annotation: str) -> str:
    """Return an annotation in the words of JSON."""
    annotation = annotation.replace("types.", "")  # the module of the parameters' types
    for name, text in TYPES.items():
        annotation = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", text, annotation)
    annotation = annotation.replace("Sequence[", "list[")
    annotation = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " | "), annotation)
    return annotation


def type_meaning(annotation: str) -> str:
    """Return the description of a parameter's type, of the module of such types; empty: it has none."""
    metadata = get_args(getattr(types, annotation.removeprefix("types.").removesuffix(" | None"), None))[1:]
    return next((item.description or "" for item in metadata if isinstance(item, FieldInfo)), "")


def plain(value: Any) -> str:
    """Return a default as JSON would have it, on one line."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
