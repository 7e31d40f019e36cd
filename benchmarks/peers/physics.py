"""Control steps per second of one MJCF under a batch engine: ``mujoco.batch``, or mjbatch where that is installed.

    python -m benchmarks.peers.physics SCENE THREADS

Prints a line of JSON. It is for the Python of each engine's environment, and needs nothing but the engine. 1024 copies
start at the file's first keyframe; each control step draws targets about the keyframe's, then makes 4 substeps of 5 ms.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import metadata

import mujoco
import numpy as np

try:
    from mjbatch import Batch
except ImportError:
    from mujoco.batch import Batch

NUM_ENVS, SUBSTEPS, TIMESTEP = 1024, 4, 0.005
NOISE = 0.2  # rad, std of the targets
WARM_UP, STEPS = 25, 50


def measure(scene: str, threads: int) -> float:
    """Return the control steps per second, of all environments together."""
    model = mujoco.MjModel.from_xml_path(scene)
    model.opt.timestep = TIMESTEP
    batch = Batch(model, NUM_ENVS, threads)
    batch.reset(keyframe=0)
    targets = batch.bind("ctrl")
    rng = np.random.default_rng(0)
    start = 0.0
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            start = time.perf_counter()
        targets[:] = model.key_ctrl[0] + NOISE * rng.standard_normal(targets.shape)
        batch.step(nstep=SUBSTEPS)
    return NUM_ENVS * STEPS / (time.perf_counter() - start)


if __name__ == "__main__":
    package = Batch.__module__.split(".")[0]
    # UniLab's fork is the distribution mjbatch-uni, with the same package.
    engine = "mujoco.batch" if package == "mujoco" else metadata.packages_distributions()[package][0]
    rate = measure(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"engine": engine, "mujoco": mujoco.__version__, "rate": rate}))
