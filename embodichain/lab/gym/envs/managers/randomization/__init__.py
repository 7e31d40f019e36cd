"""Events that draw at random: ``func(env, env_ids, **params)``."""

from embodichain.lab.gym.envs.managers.randomization.articulation import (
    push_robot,
    randomize_base_pose,
    randomize_base_velocity,
    randomize_joint_velocity,
    randomize_link_center_of_mass,
    randomize_link_friction,
    randomize_link_mass,
    randomize_motor_strength,
)
from embodichain.lab.gym.envs.managers.randomization.physics import (
    randomize_joint_drive,
    randomize_rigid_object_center_of_mass,
    randomize_rigid_object_friction,
    randomize_rigid_object_mass,
    randomize_rigid_object_scale,
    randomize_rigid_objects_scale,
)
from embodichain.lab.gym.envs.managers.randomization.spatial import (
    planner_grid_cell_sampler,
    randomize_articulation_root_pose,
    randomize_rigid_object_pose,
    randomize_robot_eef_pose,
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
    "planner_grid_cell_sampler",
    "push_robot",
    "randomize_articulation_root_pose",
    "randomize_base_pose",
    "randomize_base_velocity",
    "randomize_camera_extrinsics",
    "randomize_camera_intrinsics",
    "randomize_emission_light",
    "randomize_joint_drive",
    "randomize_joint_velocity",
    "randomize_light",
    "randomize_link_center_of_mass",
    "randomize_link_friction",
    "randomize_link_mass",
    "randomize_motor_strength",
    "randomize_rigid_object_center_of_mass",
    "randomize_rigid_object_friction",
    "randomize_rigid_object_mass",
    "randomize_rigid_object_pose",
    "randomize_rigid_object_scale",
    "randomize_rigid_objects_scale",
    "randomize_robot_eef_pose",
    "randomize_robot_qpos",
    "randomize_target_pose",
    "randomize_visual_material",
    "set_rigid_object_group_visual_material",
    "set_rigid_object_visual_material",
]
