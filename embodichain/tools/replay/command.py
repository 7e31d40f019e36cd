"""``embodichain replay``: what a bundle shows, on the command line."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.agents.rl.nan_guard.bundle import load_bundle
from embodichain.agents.rl.nan_guard.nonfinite import FieldStats
from embodichain.tools.replay.report import format_fields, format_report
from embodichain.tools.replay.run import replay_update
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import add_allow_import, allowed_imports, import_allowed_modules

__all__ = ["add_arguments", "run"]

_SHOWN_ENVS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a file of a run's folder 'bundles'")
    parser.add_argument("--device", default="cpu", help="where to repeat the update (default: %(default)s)")
    add_allow_import(parser, "the run's config")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Repeat the bundle's update and print what was found; return 0 if it failed as in the run, else 1.

    Of a divergence there is nothing to repeat: what is known of it is printed, and 0 returned.

    Raises:
        ConfigError: the bundle cannot be read, or its policy or algorithm cannot be built here.
    """
    device = resolve_device(args.device, "--device")
    bundle = load_bundle(args.bundle, device)
    if not args.json:
        print(_headline(bundle))
    if bundle["kind"] == "divergence":
        record = _divergence(bundle)
        print(_to_json(record) if args.json else _format_divergence(record))
        return 0
    modules = bundle["config"]["trainer"].get("import_modules", [])
    allowed = allowed_imports(args)
    import_allowed_modules(modules, allowed, "the run's trainer.import_modules")
    parse_policy_block(bundle["config"]["policy"], allowed)
    report = replay_update(bundle, device)
    if args.json:
        facts = {"cause": report.cause, "skipped": report.skipped, "is_reproduced": report.is_reproduced}
        print(_to_json({**facts, **asdict(report)}))
    else:
        print(format_report(report))
        if not report.is_reproduced:
            print("         not reproduced: another device, or other versions than those above, may be why")
    return int(not report.is_reproduced)


def _headline(bundle: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in bundle["versions"].items())
    lines = [f"{bundle['kind']} at step {bundle['global_step']} of '{bundle['config']['trainer']['exp_name']}'"]
    lines += [f"made with {versions}; {bundle['num_threads']} threads, on {bundle.get('device', 'cpu')}"]
    return "\n".join([*lines, ""])


def _to_json(value: Any) -> str:
    """Return plain data as JSON, which has no number for what is not finite: that is a text."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: plain(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return list(map(plain, part))
        return str(part) if isinstance(part, float) and not math.isfinite(part) else part

    return json.dumps(plain(value), indent=2)


def _divergence(bundle: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is known of each environment, in its last steps before it diverged last."""
    names = [name for name, value in bundle.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]

    def since(name: str, i: int) -> slice:
        return slice(-int(bundle["window"][i]), None) if name in ("obs", "action") else slice(None)

    return [
        {
            "environment": int(env),
            "count": int(bundle["count"][i]),
            "step": int(bundle["slot"][i]),
            "fields": [asdict(FieldStats.of(name, bundle[name][i][since(name, i)])) for name in names],
        }
        for i, env in enumerate(bundle["env_ids"])
    ]


def _format_divergence(record: list[dict[str, Any]]) -> str:
    lines = []
    for row in record[:_SHOWN_ENVS]:
        times = "once" if row["count"] == 1 else f"{row['count']} times"
        lines.append(f"environment {row['environment']}: {times}, last in step {row['step']} of the rollout")
        lines += format_fields([FieldStats(**fields) for fields in row["fields"]])
    if len(record) > _SHOWN_ENVS:
        lines.append(f"... {len(record) - _SHOWN_ENVS} more")
    return "\n".join(lines)
