"""Type aliases for tasks and terms."""

from tensordict import TensorDict
from torch import Tensor

EnvObs = TensorDict
"""An observation, batch [N], nested."""
EnvAction = Tensor | TensorDict
"""An action: a tensor [N, A], or by name."""
