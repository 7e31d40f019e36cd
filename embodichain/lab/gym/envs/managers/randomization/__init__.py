"""Events that draw at random: ``func(env, env_ids, **params)``."""

from embodichain.lab.gym.envs.managers.randomization.spatial import (
    randomize_rigid_object_pose,
    randomize_robot_qpos,
    randomize_target_pose,
)
from embodichain.lab.gym.envs.managers.randomization.visual import (
    randomize_camera_extrinsics,
    randomize_camera_intrinsics,
    randomize_emission_light,
    randomize_light,
    randomize_visual_material,
    set_rigid_object_group_visual_material,
    set_rigid_object_visual_material,
)

__all__ = [
    "randomize_camera_extrinsics",
    "randomize_camera_intrinsics",
    "randomize_emission_light",
    "randomize_light",
    "randomize_rigid_object_pose",
    "randomize_robot_qpos",
    "randomize_target_pose",
    "randomize_visual_material",
    "set_rigid_object_group_visual_material",
    "set_rigid_object_visual_material",
]
