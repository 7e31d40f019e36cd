"""``embodichain bc``."""

from __future__ import annotations

import argparse

from embodichain.agents.rl.bc import command
from embodichain.agents.rl.bc.command import add_arguments
from embodichain.utils.printing import discard_unwritten_output, printing_may_fail

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("configs/agents/rl/push_colored_cube/bc_config.json steps=500",)


def run(args: argparse.Namespace) -> int:
    """Clone, whatever becomes of what is printed; return the exit code."""
    with printing_may_fail():
        code = command.run(args)
    discard_unwritten_output()
    return code
