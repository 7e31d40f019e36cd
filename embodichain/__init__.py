"""EmbodiChain RL on MuJoCo: train robots by reinforcement learning from one JSON file."""

import os

__version__ = "0.1.0"

# Before torch loads OpenMP: let its idle workers sleep. Spinning, as they do by default, makes an update one sixth
# faster on idle cores, but several times slower as soon as another process wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
