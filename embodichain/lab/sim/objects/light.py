"""A light. Shapes: N environments, n in ``env_ids`` (None: all)."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.cfg import LightCfg
from embodichain.lab.sim.model.surroundings import FULL_INTENSITY
from embodichain.lab.sim.rendering.appearance import Appearance


class Light:
    """One light of every environment."""

    state_names = ("_color", "_intensity")

    def __init__(self, cfg: LightCfg, model: mujoco.MjModel, appearance: Appearance) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._appearance = appearance
        self._row = int(model.light(cfg.uid).id)
        self._color = torch.tensor(cfg.color).repeat(len(appearance.version), 1)
        self._intensity = torch.full((len(appearance.version), 1), cfg.intensity)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return its pose, without a rotation: [N, 7] (x, y, z, 1, 0, 0, 0), or [N, 4, 4]."""
        pos = torch.from_numpy(self._appearance.read("light_pos")[:, self._row].copy()).float()
        if not to_matrix:
            return torch.cat((pos, torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(len(pos), 4)), dim=1)
        pose = torch.eye(4).repeat(len(pos), 1, 1)
        pose[:, :3, 3] = pos
        return pose

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move it to the position of [n, 3], [n, 7] or [n, 4, 4], m, in environments [n] (None: all)."""
        pos = pose[:, :3, 3] if pose.dim() == 3 else pose[:, :3]
        self._appearance.write("light_pos", self._row, pos, env_ids)

    def set_direction(self, direction: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the direction, [n, 3], of any length but zero."""
        self._appearance.write("light_dir", self._row, torch.nn.functional.normalize(direction, dim=-1), env_ids)

    def set_color(self, color: Tensor, env_ids: Tensor | None = None) -> None:
        """Set red, green and blue, [n, 3], 0 to 1."""
        self._set(self._color, color, env_ids)

    def set_intensity(self, intensity: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the intensity, [n]; 100 is full brightness."""
        self._set(self._intensity, intensity[:, None], env_ids)

    def _set(self, where: Tensor, values: Tensor, env_ids: Tensor | None) -> None:
        which: slice | Tensor = slice(None) if env_ids is None else env_ids.cpu()
        where[which] = values.cpu()
        diffuse = self._color[which] * self._intensity[which] / FULL_INTENSITY
        self._appearance.write("light_diffuse", self._row, diffuse, env_ids)
