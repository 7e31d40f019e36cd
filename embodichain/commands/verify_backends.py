"""``embodichain verify-backends``."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from embodichain.commands.arguments import CONFIG_HELP, add_json, number_of_episodes, whole_number
from embodichain.lab.sim.backend import WARP_ON_CPU
from embodichain.tools.verify import format_verdict, verify_backends
from embodichain.utils.files import json_text
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = (
    "configs/agents/rl/push_cube/train_config.json",
    "configs/agents/rl/push_cube/train_config.json --checkpoint RUN/checkpoints/LAST.pt --device cuda:0",
)
EXIT_CODES = "exit codes: 0 they agree, 1 they do not, 2 wrong usage or config"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help=f"{CONFIG_HELP}; its environment is compared")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="a policy to act and to evaluate")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help=f"of MuJoCo Warp: 'cuda:<number>', or '{WARP_ON_CPU}' (default: the first GPU, else that)",
    )
    parser.add_argument(
        "--envs", type=whole_number(), default=8, metavar="N", help="environments (default: %(default)s)"
    )
    parser.add_argument("--steps", type=whole_number(), default=50, metavar="T", help="steps (default: %(default)s)")
    parser.add_argument(
        "--episodes",
        type=number_of_episodes(),
        default=50,
        metavar="E",
        help="of the policy on each backend (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of states and actions (default: %(default)s)")
    add_allow_import(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, and print what was found; return 0 if the backends agree, else 1."""
    verdict = verify_backends(
        args.config,
        args.checkpoint,
        args.device,
        args.envs,
        args.steps,
        args.episodes,
        args.seed,
        allowed_imports(args),
    )
    data = asdict(verdict) | {"success": [each.as_data() for each in verdict.success]}
    print(json_text(data, indent=2) if args.json else format_verdict(verdict))
    return int(not verdict.agree)
