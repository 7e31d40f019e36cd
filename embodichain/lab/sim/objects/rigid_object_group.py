"""Rigid bodies handled as one. Shapes: N environments, n in ``env_ids`` (None: all), M members."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from embodichain.lab.sim.cfg import RigidObjectCfg, RigidObjectGroupCfg
from embodichain.lab.sim.objects.rigid_object import RigidObject
from embodichain.lab.sim.shapes import MeshCfg
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace


def member_cfgs(cfg: RigidObjectGroupCfg) -> list[RigidObjectCfg]:
    """Return the configs of a group's members, named ``<uid>_<member>``.

    Raises:
        ConfigError: the folder has no mesh files.
    """
    place = f"rigid object group '{cfg.uid}'"
    members = cfg.rigid_objects
    if cfg.folder_path is not None:
        folder = Path(cfg.folder_path).expanduser()
        files = sorted(folder.glob(f"*{cfg.ext}"))[: cfg.max_num]
        if not files:
            raise ConfigError(f"{place}: folder_path: no files '*{cfg.ext}' in {folder.resolve()}")
        template = next(iter(members.values()))
        members = {file.stem: replace(template, shape=MeshCfg(fpath=str(file))) for file in files}
    return [
        replace(member, uid=f"{cfg.uid}_{name}", body_type=cfg.body_type)  # names with '/' are refused by the scene
        for name, member in members.items()
    ]


class RigidObjectGroup:
    """The members of a group, of every environment.

    Attributes:
        members: objects in the order of the config.
    """

    def __init__(self, cfg: RigidObjectGroupCfg, members: Sequence[RigidObject]) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self.members = list(members)

    @property
    def num_objects(self) -> int:
        """M."""
        return len(self.members)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the members' poses in the environment's frame.

        Returns:
            [N, M, 7] (x, y, z, qw, qx, qy, qz), or [N, M, 4, 4].
        """
        return torch.stack([member.get_local_pose(to_matrix) for member in self.members], dim=1)

    def get_velocity(self) -> Tensor:
        """Return [N, M, 6]: linear (m/s) and angular (rad/s) velocity in the world frame."""
        return torch.stack([member.get_velocity() for member in self.members], dim=1)

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None, obj_ids: Sequence[int] | None = None) -> None:
        """Move members; their velocities stay.

        Args:
            pose: [n, m, 7] or [n, m, 4, 4], as in :meth:`get_local_pose`.
            obj_ids: indices of m members, or None for all.
        """
        chosen = range(len(self.members)) if obj_ids is None else obj_ids
        for i, member in enumerate(chosen):
            self.members[member].set_local_pose(pose[:, i], env_ids)

    def clear_dynamics(self, env_ids: Tensor | None = None) -> None:
        """Bring all members to rest in environments [n] (None: all)."""
        for member in self.members:
            member.clear_dynamics(env_ids)
