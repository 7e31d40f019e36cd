"""A visible body without physics. Shapes: N environments, n in ``env_ids`` (None: all)."""

from __future__ import annotations

from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.cfg import MarkerCfg


class Marker:
    """Marks a place in every environment, for example a goal."""

    def __init__(self, cfg: MarkerCfg, backend: Backend) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._backend = backend
        row = int(backend.model.body(cfg.uid).mocapid[0])
        self._row = slice(row, row + 1)

    def set_pos(self, pos: Tensor, env_ids: Tensor | None = None) -> None:
        """Move the marker to world positions [n, 3] in environments [n] (None: all)."""
        self._backend.write("mocap_pos", self._row, pos[:, None], env_ids)

    def set_quat(self, quat: Tensor, env_ids: Tensor | None = None) -> None:
        """Turn the marker to world orientations [n, 4] (w, x, y, z) in environments [n] (None: all)."""
        self._backend.write("mocap_quat", self._row, quat[:, None], env_ids)
