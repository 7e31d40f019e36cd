"""``embodichain schema``: JSON Schemas of the config files, from the config classes and the registries.

Editors complete keys, values and each functor's ``params`` from them. Unregistered names are valid, because users
register their own; the loader reports unknown ones.
"""

import argparse
import ast
import dataclasses
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.agents.rl.algo.registry import get_algo_class, get_registered_algo_names
from embodichain.agents.rl.config.trainer_cfg import TrainCfg
from embodichain.agents.rl.models.registry import get_registered_policy_names, typed_policy
from embodichain.commands.arguments import output_file
from embodichain.lab.gym.config.env_config import ENV_KEYS, TOP_KEYS, EnvFileCfg
from embodichain.lab.gym.env_sources import EnvSource, env_sources
from embodichain.lab.gym.envs import EmbodiedEnvCfg, SceneEnv
from embodichain.lab.gym.envs.managers import ActionTerm, CommandTerm, Functor
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES, TERM_BLOCKS, FunctorCfg, ObservationCfg
from embodichain.lab.gym.envs.managers.checks import leading_arguments, read_signature
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.utils.configclass import is_required
from embodichain.utils.module_utils import find_function_from_modules, public_names

EXAMPLES = ("--kind train", "--kind env --out env.schema.json")

Json = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFS = "#/$defs/{model}"
_EDITOR_KEY: Json = {"type": "string", "description": "For editors: the schema of this file."}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--kind", choices=list(SCHEMAS), default="train", help="which file (default: %(default)s)")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="where to write it (default: the terminal)")


def run(args: argparse.Namespace) -> int:
    """Print or write the schema; return 0."""
    text = schema_text(args.kind)
    if args.out is None:
        print(text, end="")
        return 0
    args.out.write_text(text, encoding="utf-8")
    return 0


def train_schema() -> Json:
    """Return the schema of the training config."""
    defs: Json = {}
    root = _of(TrainCfg, defs)
    event = _block_schema("events", defs)
    for name in ("train", "eval"):
        defs["EventsCfg"]["properties"][name] |= event
    found = {name: typed_policy(name) for name in get_registered_policy_names()}
    blocks = {name: typed.cfg_class for name, typed in found.items() if typed and _is_shipped(typed.cfg_class)}
    policy = _named("A registered name, or the dotted path of a class.", list(blocks))
    policy["allOf"] = []
    for name, cfg_class in blocks.items():
        block = _of(cfg_class, defs)
        networks = [network for network in ("actor", "critic") if network in block["properties"]]
        policy["allOf"].append(_if("name", name, block | {"required": networks}))
    root["properties"]["policy"] = policy
    names = [name for name in get_registered_algo_names() if _is_shipped(get_algo_class(name))]
    algorithm = _named("A registered name.", names)
    algorithm["properties"]["cfg"] = {"type": "object", "description": "Its settings."}
    algorithm["additionalProperties"] = False
    algorithm["allOf"] = [
        _if("name", name, {"properties": {"cfg": _of(get_algo_class(name).cfg_class, defs)}}) for name in names
    ]
    root["properties"]["algorithm"] = algorithm
    return _file("Training config", root, defs)


def env_schema() -> Json:
    """Return the schema of the environment config."""
    defs: Json = {}
    cfg, file = _of(EmbodiedEnvCfg, defs), _of(EnvFileCfg, defs)
    known = cfg["properties"] | file["properties"]
    shipped = [e for e in get_registered_env_ids() if _is_shipped(get_env_spec(e).cls)]
    known["id"] = _name("Registered name of the task.", shipped)
    scenes = [e for e in shipped if issubclass(get_env_spec(e).cls, SceneEnv)]
    env = {name: known[name] for name in ENV_KEYS}
    for name in TERM_BLOCKS:
        env[name] |= _block_schema(name, defs)
    known["env"] = {
        "type": "object",
        "description": "The terms and the environment's settings.",
        "properties": env,
        "additionalProperties": False,
    }
    foreign = {source: _foreign(source, defs) for source in env_sources()}
    own = {name: schema["properties"][name] for source, schema in foreign.items() for name in source.keys}
    own = {name: value for name, value in own.items() if name not in TOP_KEYS}
    root = {
        "type": "object",
        "properties": {name: known[name] for name in TOP_KEYS} | own,
        "additionalProperties": False,
        "required": ["id"],
        "if": _id_begins_with("|".join(source.prefix for source in foreign)),
        "then": {
            "allOf": [
                {
                    "if": _id_begins_with(source.prefix),
                    "then": {"$ref": _REFS.format(model=source.cfg_class.__name__)},
                }
                for source in foreign
            ]
        },
        "else": {
            "properties": dict.fromkeys(own, False),
            # The scene of a file has its actuators, and no robot of a config.
            "if": {"anyOf": [{"properties": {"id": {"enum": scenes}}, "required": ["id"]}, {"required": ["scene"]}]},
            "else": {"required": ["env", "robot"], "properties": {"env": {"required": ["actions"]}}},
        },
    }
    return _file("Environment config", root, defs)


def _id_begins_with(prefix: str) -> Json:
    return {"properties": {"id": {"pattern": f"^({prefix})"}}, "required": ["id"]}


def _foreign(source: EnvSource, defs: Json) -> Json:
    """Return the schema of the config of another library's environments, which is added to ``defs``, too."""
    schema = _of(source.cfg_class, defs)
    schema["properties"] = {name: schema["properties"][name] for name in source.keys}
    schema["properties"]["$schema"] = _EDITOR_KEY
    schema["additionalProperties"] = False
    defs[source.cfg_class.__name__] = schema
    return schema


SCHEMAS: dict[str, Callable[[], Json]] = {"train": train_schema, "env": env_schema}
"""Schemas by kind of file."""


def schema_text(kind: str) -> str:
    """Return the schema of a kind of file as JSON text."""
    return json.dumps(SCHEMAS[kind](), ensure_ascii=False, indent=1) + "\n"


class _Generator(GenerateJsonSchema):
    """Adds required fields, docstrings and default factories, which pydantic does not know."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        found = super().dataclass_schema(schema)
        cls = schema["cls"]
        docs = field_docs(cast(Any, cls))
        required = []
        for field in dataclasses.fields(cls):
            value = found["properties"][field.name]
            if field.name in docs:
                value["description"] = docs[field.name]
            if is_required(field):
                required.append(field.name)
            elif field.default_factory is not dataclasses.MISSING:
                value["default"] = to_jsonable_python(field.default_factory(), fallback=str)
            if value.get("default", ...) is None:
                del value["default"]
        found.pop("required", None)
        return found | ({"required": required} if required else {})

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}  # a Python type without JSON counterpart: anything

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _of(cls: type, defs: Json) -> Json:
    """Return the schema of a config class; referenced ones are added to ``defs``."""
    found = TypeAdapter(cls).json_schema(schema_generator=_Generator, ref_template=_REFS)
    defs |= found.pop("$defs", {})
    for schema in [found, *defs.values()]:
        schema.pop("title", None)
    return found


def _file(title: str, root: Json, defs: Json) -> Json:
    root["properties"] = {"$schema": _EDITOR_KEY} | root["properties"]
    root.pop("description", None)
    return {"$schema": _DRAFT, "title": title, **root, "$defs": dict(sorted(defs.items()))}


def _name(description: str, names: list[str]) -> Json:
    """Return the schema of a name: one of ``names`` or any other."""
    return {"description": description, "anyOf": [{"enum": names}, {"type": "string"}]}


def _named(description: str, names: list[str]) -> Json:
    return {"type": "object", "required": ["name"], "properties": {"name": _name(description, names)}}


def _if(key: str, value: str, then: Json) -> Json:
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _block_schema(block: str, defs: Json) -> Json:
    """Return the schema of a block of terms by name; the terms' schemas are added to ``defs``."""
    defs[f"term of {block}"] = _term_schema(TERM_BLOCKS[block], BLOCK_MODULES[block], defs)
    return {"type": "object", "additionalProperties": {"$ref": _REFS.format(model=f"term of {block}")}}


def _term_schema(cls: type[FunctorCfg], modules: list[str], defs: Json) -> Json:
    term = _of(cls, defs)
    functors = {name: find_function_from_modules(name, modules) for name in sorted(public_names(modules))}
    shipped = [{"const": name, "description": first_line(functor)} for name, functor in functors.items()]
    own = {"type": "string", "pattern": r"\.", "description": "The dotted path of a functor of yours."}
    description = "The function or class, by its name or its dotted path."
    term["properties"]["func"] = {"description": description, "anyOf": [*shipped, own]}
    term["allOf"] = []
    for name, functor in functors.items():
        params = _params_schema(cls, functor, defs)
        required = {"required": ["params"]} if "required" in params else {}
        term["allOf"].append(_if("func", name, {"properties": {"params": params}} | required))
    return term


def _params_schema(cls: type[FunctorCfg], functor: Any, defs: Json) -> Json:
    """Return the schema of a functor's ``params``, from its signature and its docstring."""
    is_class = isinstance(functor, type)
    function: Any = functor
    skip = int(is_class)
    if is_class and issubclass(functor, (ActionTerm, CommandTerm)):
        function = functor.configure
    elif is_class and issubclass(functor, Functor):
        function = functor.__call__
    if cls is ObservationCfg:
        modifies = "data" in inspect.signature(function).parameters
        skip += len(leading_arguments(ObservationCfg(func=functor, mode="modify" if modifies else "add")))
    else:
        skip += len(leading_arguments(cls(func=functor)))
    signature = read_signature(function, skip)
    params = _of(signature.cls, defs)
    params.pop("description", None)
    said: dict[str, str] = {}
    for owner in reversed(functor.__mro__) if is_class else (functor,):
        said |= argument_docs(owner)
    for name, value in params["properties"].items():
        # Where null is allowed, the type's own description is in the first choice.
        of_type = value.get("anyOf", [{}])[0].pop("description", None)
        if meaning := said.get(name) or of_type:
            value["description"] = meaning
    return params | {"additionalProperties": signature.takes_more}


def _is_shipped(cls: type) -> bool:
    return cls.__module__.startswith("embodichain.")


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below a config class's fields, inherited ones included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        written = _classes_of(base.__module__).get(base.__name__) if dataclasses.is_dataclass(base) else None
        for entry, below in pairwise(written.body if written else []):
            match entry, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = _one_line(text)
    return docs


@functools.cache  # inspect.getsource would parse the whole file for each of its classes
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes in a module's source by name; none where it has no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def argument_docs(function: Any) -> dict[str, str]:
    """Return the description of each argument in a docstring's ``Args`` section."""
    text = inspect.cleandoc(function.__doc__ or "")
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.split(r"^(\w+): ", textwrap.dedent(section[1]), flags=re.MULTILINE)
    return {name: _one_line(said) for name, said in zip(entries[1::2], entries[2::2], strict=True)}


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return _one_line(inspect.cleandoc(thing.__doc__ or "").split("\n")[0])


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
