"""Physics engines behind one protocol."""

from embodichain.lab.sim.backend.base import Backend, ModelPart, named_geoms
from embodichain.lab.sim.backend.choice import WARP_ON_CPU, has_warp, make_backend, parse_sim_device
from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend

__all__ = [
    "WARP_ON_CPU",
    "Backend",
    "ModelPart",
    "MujocoBatchBackend",
    "has_warp",
    "make_backend",
    "named_geoms",
    "parse_sim_device",
]
