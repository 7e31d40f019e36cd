"""``embodichain bc``."""

from embodichain.agents.rl.bc.command import add_arguments, run

__all__ = ["EXAMPLES", "EXIT_CODES", "add_arguments", "run"]

EXAMPLES = (
    "configs/agents/rl/push_colored_cube/bc_config.json steps=500",
    "--resume outputs/push_colored_cube_bc",
)
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted (--resume goes on)"
