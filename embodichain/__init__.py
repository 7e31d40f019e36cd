"""EmbodiChain RL on MuJoCo: train robots by reinforcement learning from one JSON file."""

import os

__version__ = "0.1.0"

# Before torch loads OpenMP: for how long its idle workers look for work before they sleep. To wake them takes longer
# than many an operation; but where they look for milliseconds, as they do by default, an update is several times slower
# as soon as another process wants a core. 2000 looks, some 0.1 ms, bridge the gap to the next operation and cost little
# else (benchmarks/threads.py). The first variable is for OpenMPs other than GNU's, which torch's wheels have.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
