"""``embodichain bc``."""

from embodichain.agents.rl.bc.command import add_arguments, run

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("configs/agents/rl/push_colored_cube/bc_config.json steps=500",)
