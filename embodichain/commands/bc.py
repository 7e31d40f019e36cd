"""``embodichain bc``."""

from embodichain.agents.rl.bc.command import add_arguments, run

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "Behaviour cloning: let a policy imitate demonstrations, of a dataset or a scripted expert."
EXAMPLES = ("configs/agents/rl/push_colored_cube/bc_config.json steps=500",)
