"""Helpers of the learner."""

from embodichain.agents.rl.algo import AlgorithmCfg
from embodichain.utils.observations import dict_to_tensordict, flatten_dict_observation

__all__ = ["AlgorithmCfg", "dict_to_tensordict", "flatten_dict_observation"]
