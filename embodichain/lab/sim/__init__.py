"""Simulation: scenes, physics, robots and objects. The only part that knows the physics engine."""

from embodichain.lab.sim.rendering import gl  # noqa: F401 (first: it chooses OpenGL before the engine is imported)

# isort: split
from embodichain.lab.sim.cfg import SimulationManagerCfg
from embodichain.lab.sim.sim_manager import SimulationManager

__all__ = ["SimulationManager", "SimulationManagerCfg"]
