"""Physics engines behind one protocol."""

from embodichain.lab.sim.backend.base import Backend, named_geoms
from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend

__all__ = ["Backend", "MujocoBatchBackend", "named_geoms"]
