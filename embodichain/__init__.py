"""EmbodiChain RL on MuJoCo: train robots by reinforcement learning from one JSON file."""

__version__ = "0.1.0"
