"""Names for the annotations of tasks and terms."""

from __future__ import annotations

from tensordict import TensorDict
from torch import Tensor

__all__ = ["EnvAction", "EnvObs"]

EnvObs = TensorDict
"""An observation, batch [N], nested."""
EnvAction = Tensor | TensorDict
"""An action: a tensor [N, A], or by name."""
