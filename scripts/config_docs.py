"""Writes the lists of keys in docs/configuration.md from the config classes: python scripts/config_docs.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from embodichain.schema import SCHEMAS

__all__ = ["DOCUMENT", "render"]

Json = dict[str, Any]

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/configuration.md"
_KEYS = re.compile(r"(<!-- keys: (\w+) (\w+) ?(\w*) -->\n).*?(<!-- end -->)", re.DOTALL)
_LIMITS = {
    "minimum": "≥ ",
    "exclusiveMinimum": "> ",
    "maximum": "≤ ",
    "exclusiveMaximum": "< ",
    "multipleOf": "multiple of ",
}


def render(text: str) -> str:
    """Return the document with its lists of keys written again.

    A list stands between ``<!-- keys: KIND WHAT NAME -->`` and ``<!-- end -->``. KIND is the kind of the config file.
    WHAT is ``class`` and NAME a definition of its schema, or ``policy`` or ``algorithm`` and NAME a registered one, or
    one of ``file`` and ``env``.
    """
    schemas = {kind: make() for kind, make in SCHEMAS.items()}

    def keys(match: re.Match[str]) -> str:
        return match[1] + "\n" + "\n".join(_keys(_object(schemas[match[2]], match[3], match[4]))) + "\n\n" + match[5]

    return _KEYS.sub(keys, text)


def _object(schema: Json, what: str, name: str) -> Json:
    """Return the schema of an object, for its keys."""
    if what == "class":
        return cast(Json, schema["$defs"][name])
    if what in ("policy", "algorithm"):
        cases = {
            case["if"]["properties"]["name"]["const"]: case["then"] for case in schema["properties"][what]["allOf"]
        }
        return cast(Json, cases[name] if what == "policy" else cases[name]["properties"]["cfg"])
    return schema if what == "file" else cast(Json, schema["properties"][what])


def _keys(node: Json) -> list[str]:
    rows = []
    others = node.get("else", {}).get("properties", {})
    for key, value in node["properties"].items():
        if others.get(key) is False:  # of environments of another kind, which have a list of their own
            continue
        default = "required" if key in node.get("required", []) else _default(value)
        of_key = ", ".join(part for part in (_type(value), default) if part)
        rows.append(f"- `{key}` ({of_key}): {value.get('description', '')}".removesuffix(": "))
    return rows


def _default(value: Json) -> str:
    if "default" not in value:
        return ""
    text = json.dumps(value["default"], ensure_ascii=False)
    return f"default `{text}`" if len(text) <= 30 and not text.startswith('{"') else ""


def _type(value: Json) -> str:
    if "enum" in value or "const" in value:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in value.get("enum", [value.get("const")]))
    if "oneOf" in value or "anyOf" in value:
        choices = dict.fromkeys(_type(choice) for choice in value.get("oneOf") or value["anyOf"])
        return " or ".join(choice for choice in choices if choice != "null")
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2].removesuffix("Cfg")
    kind = str(value.get("type", "any"))
    if kind == "array" and "prefixItems" in value:
        return f"{len(value['prefixItems'])} × {_type(value['prefixItems'][0])}"
    if kind == "array" and "items" in value:
        return f"list of {_type(value['items'])}"
    limits = [f"{sign}{value[name]}" for name, sign in _LIMITS.items() if name in value]
    return " ".join([kind, *limits])


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
