"""Events about the scene as a whole: ``func(env, env_ids, **params)``. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.affordances import (
    prepare_extra_attr,
    register_entity_attrs,
    register_entity_pose,
    register_info_to_env,
)
from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import GroupEntity, Range3, RigidEntity, Vec3
from embodichain.lab.gym.envs.managers.randomization.draws import draw
from embodichain.lab.gym.envs.managers.randomization.physics import entity_uid
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.lab.sim import SimulationManager
from embodichain.utils import ConfigError
from embodichain.utils.constants import constant

__all__ = [
    "drop_rigid_object_group_sequentially",
    "prepare_extra_attr",
    "register_entity_attrs",
    "register_entity_pose",
    "register_info_to_env",
    "replace_assets_from_group",
    "set_detached_uids_for_env_reset",
]

_MESHES = (".obj", ".stl")


class replace_assets_from_group(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Give a rigid body with a mesh one of a folder's meshes, drawn for each environment.

    The mass properties are the mesh's; the mass is the configured one (from the volume where that is 0).

    Args:
        entity_cfg: the body.
        folder_path: folder of .obj and .stl files, relative to the working directory or absolute; or a pattern of files
            such as ``"assets/cups/cup_*.obj"``.
    """

    @classmethod
    @override
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        sim.add_mesh_variants(entity_uid(params["entity_cfg"]), _meshes(params["folder_path"]))

    @override
    def __call__(self, env: TermEnv, env_ids: Tensor, entity_cfg: RigidEntity, folder_path: str) -> None:
        physics = env.sim.get_rigid_object(entity_cfg.uid).physics
        # The configured mesh, number 0, is not of the folder.
        count = physics.num_variants - 1
        number = env.random.uniform(env_ids, 0.0, float(count), 1).squeeze(1).long().clamp(max=count - 1)
        physics.choose_variant(1 + number, env_ids)


def drop_rigid_object_group_sequentially(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: GroupEntity,
    drop_position: Vec3 = (0.0, 0.0, 1.0),
    position_range: Range3 = ((-0.1, -0.1, 0.0), (0.1, 0.1, 0.0)),
    physics_step: NonNegativeInt = 2,
) -> None:
    """Drop the objects of a group one after the other, unturned and from rest.

    Args:
        entity_cfg: the group.
        drop_position: x, y, z from where they fall, m.
        position_range: ``[lowest, highest]`` offset from there along x, y, z, m, drawn for each object.
        physics_step: physics substeps that these environments make after each object.
    """
    group = env.sim.get_rigid_object_group(entity_cfg.uid)
    start = constant(tuple(drop_position), env.device, torch.float32)
    upright = constant((1.0, 0.0, 0.0, 0.0), env.device, torch.float32).expand(len(env_ids), 4)
    for i in range(group.num_objects):
        pos = start + draw(env, env_ids, position_range, 3)
        group.set_local_pose(torch.cat((pos, upright), dim=1)[:, None], env_ids, obj_ids=[i])
        group.members[i].clear_dynamics(env_ids)
        if physics_step:
            env.sim.update(physics_step, env_ids)


def set_detached_uids_for_env_reset(env: TermEnv, env_ids: Tensor, uids: list[str]) -> None:
    """Let entities keep their state at every reset from now on, in all environments.

    Args:
        uids: names of rigid bodies, articulations or robots.
    """
    env.sim.detach_from_reset(uids)


def _meshes(folder_path: str) -> list[Path]:
    """Return the mesh files of a folder or of a pattern, sorted; ConfigError where there is none."""
    path = Path(folder_path).expanduser()
    folder, pattern = (path, "*") if folder_path.endswith("/") or path.is_dir() else (path.parent, path.name)
    found = sorted(file for file in folder.glob(pattern) if file.suffix.lower() in _MESHES)
    if not found:
        kinds = " or ".join(_MESHES)
        raise ConfigError(f"replace_assets_from_group: folder_path: no {kinds} file '{pattern}' in {folder.resolve()}")
    return found
