"""``embodichain bc``."""

from __future__ import annotations

import argparse

from embodichain.tools.cloning import command
from embodichain.tools.cloning.command import add_arguments
from embodichain.utils.printing import discard_unwritten_output, printing_may_fail

__all__ = ["EXAMPLES", "EXIT_CODES", "add_arguments", "run"]

EXAMPLES = (
    "configs/agents/rl/push_colored_cube/bc_config.json steps=500",
    "--resume outputs/push_colored_cube_bc",
)
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted (--resume goes on)"


def run(args: argparse.Namespace) -> int:
    """Clone, whatever becomes of what is printed; return the exit code."""
    with printing_may_fail():
        code = command.run(args)
    discard_unwritten_output()
    return code
