"""``embodichain verify-backends``."""

from embodichain.tools.verify.command import add_arguments, run

__all__ = ["EXAMPLES", "EXIT_CODES", "add_arguments", "run"]

EXAMPLES = (
    "configs/agents/rl/push_cube/train_config.json",
    "configs/agents/rl/push_cube/train_config.json --checkpoint RUN/checkpoints/LAST.pt --device cuda:0",
)
EXIT_CODES = "exit codes: 0 they agree, 1 they do not, 2 wrong usage or config"
