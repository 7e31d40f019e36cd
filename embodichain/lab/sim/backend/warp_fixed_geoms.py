"""Geoms of bodies that are fixed to the world, where these bodies differ between environments.

Shapes: N environments, F such geoms.
"""

from __future__ import annotations

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp

__all__ = ["FixedGeoms"]


class FixedGeoms:
    """Places the geoms of bodies that are fixed to the world, which MuJoCo Warp does only once."""

    def __init__(self, model: mujoco.MjModel, device: torch.device) -> None:
        body = model.geom_bodyid
        fixed = (body > 0) & (model.body_weldid[body] == 0) & (model.body_mocapid[model.body_rootid[body]] < 0)
        geoms = np.flatnonzero(fixed)
        matrix = np.zeros((len(geoms), 9))
        for row, geom in zip(matrix, geoms, strict=True):
            mujoco.mju_quat2Mat(row, model.geom_quat[geom])
        self._geoms, self._bodies = (torch.from_numpy(ids).long().to(device) for ids in (geoms, body[geoms]))
        # [F, 3] and [F, 3, 3] in the bodies' frames
        self._pos, mat = (torch.from_numpy(part).float().to(device) for part in (model.geom_pos[geoms], matrix))
        self._mat = mat.view(-1, 3, 3)

    def place(self, data: mujoco_warp.Data) -> None:
        """Write the geoms' world poses, which follow from the bodies'."""
        if not len(self._geoms):
            return
        xpos, xmat, geom_xpos, geom_xmat = (
            warp.to_torch(getattr(data, name)) for name in ("xpos", "xmat", "geom_xpos", "geom_xmat")
        )
        turn = xmat[:, self._bodies]
        geom_xpos[:, self._geoms] = xpos[:, self._bodies] + (turn @ self._pos[:, :, None]).squeeze(-1)
        geom_xmat[:, self._geoms] = turn @ self._mat
