"""From the environments' tensors to the NumPy arrays of other libraries, and back. Shapes: N environments, A action."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorCollection
from torch import Tensor

from embodichain.lab.gym.envs.base_env import BaseEnv
from embodichain.utils.choices import sizes_of


def to_array(value: Tensor) -> np.ndarray:
    """Return a copy of a tensor, so that the receiver may write into it."""
    return np.array(value.cpu().numpy())


def to_arrays(obs: TensorCollection) -> dict[str, Any]:
    """Return an observation as nested dictionaries of arrays [N, ...]."""
    return {
        str(name): to_array(value) if isinstance(value, Tensor) else to_arrays(value) for name, value in obs.items()
    }


def outside_space(space: spaces.Box) -> spaces.Space[Any]:
    """Return an action space as other libraries know it: ``Choices`` are ``Discrete`` or ``MultiDiscrete``."""
    sizes = sizes_of(space)
    return (spaces.Discrete(sizes[0]) if len(sizes) == 1 else spaces.MultiDiscrete(list(sizes))) if sizes else space


def to_action(action: Any, env: BaseEnv) -> Tensor:
    """Return actions [N, A] of any kind of array, of one choice also [N], as the environment takes them."""
    tensor = torch.as_tensor(action, dtype=torch.float32, device=env.device)
    if tensor.ndim == 1 and sizes_of(env.single_action_space):
        tensor = tensor[:, None]
    if tensor.shape != env.action_space.shape:
        raise ValueError(f"actions must have the shape {env.action_space.shape}, got {tuple(tensor.shape)}")
    return tensor
