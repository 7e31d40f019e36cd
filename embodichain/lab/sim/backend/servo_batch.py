"""Physics on CPU threads with servos: between two substeps their friction and their targets are written."""

from typing import Any

import mujoco
import numpy as np
from torch import Tensor
from typing_extensions import override

from embodichain.lab.sim.backend.mujoco_batch import MujocoBatchBackend
from embodichain.lab.sim.servos import Servos
from embodichain.utils.state import declared_state, load_attributes


class ServoBatchBackend(MujocoBatchBackend):
    """N simulations of a model with servos, or with joints that have play.

    Attributes:
        servos: the servos of all environments.
    """

    def __init__(
        self, model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, num_threads: int = 0
    ) -> None:
        """Start with every environment in the model's initial state; arguments as of the base class."""
        super().__init__(model, visual_model, num_envs, num_threads)
        self.servos = Servos(model, num_envs, self._batch.bind, self._batch.expand)

    @override
    def _advance(self, ids: np.ndarray | None, substeps: int) -> None:
        self.servos.step(slice(None) if ids is None else ids, substeps, lambda: self._batch.step(ids))

    @override
    def reset(self, env_ids: Tensor) -> None:
        super().reset(env_ids)
        self.servos.reset(env_ids.numpy())

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"servos": declared_state(self.servos)}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        load_attributes(self.servos, state["servos"])
