"""Physics engines behind one protocol."""

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend

__all__ = ["Backend", "MujocoBatchBackend"]
