"""``embodichain replay``."""

from embodichain.tools.replay.command import add_arguments, run

__all__ = ["EXAMPLES", "EXIT_CODES", "add_arguments", "run"]

EXAMPLES = ("outputs/cart_pole_ppo_20260101_120000/bundles/update_step_131072.pt",)
EXIT_CODES = "exit codes: 0 it failed as in the run, 1 it did not, 2 the bundle cannot be used here"
