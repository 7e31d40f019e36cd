"""EmbodiChain RL on MuJoCo: train robots by reinforcement learning from one JSON file."""

import embodichain.conflict  # noqa: F401 (ends here if the next import would find another project's file)

__version__ = "0.2.0"
