"""``embodichain export``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.commands.arguments import add_run, output_file, whole_number
from embodichain.tools.export import FORMATS, DeployedPolicy, ParityError, check_parity, record_steps
from embodichain.tools.export.formats import RUNNER
from embodichain.tools.export.module import actor_entries
from embodichain.tools.export.spec import describe_policy
from embodichain.tools.open_run import open_run
from embodichain.utils import ConfigError
from embodichain.utils.files import write_atomically, write_json
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = ("latest --format onnx", "outputs/push_cube_ppo_20260101_120000/best --format pt2 --out policy.pt2")

_SEED_OFFSET = 4_000_003


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument("--format", choices=list(FORMATS), default="onnx", help="default: %(default)s")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="default: export/policy.* in the run's folder")
    parser.add_argument(
        "--observations",
        type=whole_number(),
        default=1000,
        metavar="K",
        help="by which it is compared with the policy (default: %(default)s)",
    )
    parser.add_argument("--envs", type=whole_number(), default=8, metavar="N", help="that they are recorded in")
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Export; return 0, or 1 where the file does not do what the policy does: then it is not left behind.

    Raises:
        ConfigError: there is no such run, it cannot be built here, or the file cannot be written.
    """
    saved = find_run(args.target)
    chosen = FORMATS[args.format]
    path = args.out or saved.folder / "export" / f"policy{chosen.suffix}"
    with open_run(saved, args.envs, "cpu", allowed_imports(args)) as opened:
        space = opened.env.single_observation_space
        entries = actor_entries(opened.config.policy, space, opened.policy)
        terms = list(opened.env.action_manager.terms.values())
        module = DeployedPolicy(opened.policy, space, entries, opened.env.single_action_space, terms).eval()
        spec = describe_policy(saved, opened, module)
        steps = record_steps(opened.env, opened.policy, opened.device, entries, args.observations, _SEED_OFFSET)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen.write(module, spec, path)
            largest = check_parity(chosen.load(path), module, steps)
            written = [path, *_companions(path, spec, args.format)]
        except ParityError as error:
            path.unlink(missing_ok=True)
            print(f"error: {error}", file=sys.stderr)
            return 1
        except OSError as error:
            raise ConfigError(f"--out {path}: cannot be written: {error}") from error
    print(f"parity     {len(steps) * args.envs} observations, actions differ by {largest:.2g} at most")
    print(f"inputs     {', '.join(module.inputs)}")
    print(f"outputs    {', '.join(module.outputs)}")
    for file in written:
        print(f"written    {file}")
    return 0


def _companions(path: Path, spec: dict[str, object], file_format: str) -> list[Path]:
    """Write the specification beside the policy, and the runner of ONNX files."""
    readable = path.with_suffix(".json")
    write_json(readable, spec, indent=2)
    if file_format != "onnx":
        return [readable]
    runner = path.parent / "policy_runner.py"
    write_atomically(runner, lambda file: file.write(RUNNER.read_bytes()))
    return [readable, runner]
