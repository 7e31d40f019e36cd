"""The modules in which functors named in configs are looked up."""

from __future__ import annotations

_MANAGERS = "embodichain.lab.gym.envs.managers"
BLOCK_MODULES = {
    "actions": [f"{_MANAGERS}.actions", f"{_MANAGERS}.locomotion_actions", f"{_MANAGERS}.actuator_actions"],
    "commands": [f"{_MANAGERS}.commands"],
    "observations": [
        f"{_MANAGERS}.observations",
        f"{_MANAGERS}.locomotion_observations",
        f"{_MANAGERS}.sensor_models",
        f"{_MANAGERS}.terrain_observations",
    ],
    "rewards": [f"{_MANAGERS}.rewards", f"{_MANAGERS}.locomotion_rewards"],
    "terminations": [f"{_MANAGERS}.terminations"],
    "curriculum": [f"{_MANAGERS}.curriculum"],
    "events": [f"{_MANAGERS}.randomization", f"{_MANAGERS}.events", f"{_MANAGERS}.record"],
    "dataset": [f"{_MANAGERS}.datasets"],
}
"""The shipped functors of each block."""
DEFAULT_MANAGER_MODULES = [module for modules in BLOCK_MODULES.values() for module in modules]
"""All of them, in the order of the look-up."""
