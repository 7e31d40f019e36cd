"""Events that draw at random: ``func(env, env_ids, **params)``."""

from embodichain.lab.gym.envs.managers.randomization.spatial import (
    randomize_rigid_object_pose,
    randomize_robot_qpos,
    randomize_target_pose,
)

__all__ = ["randomize_rigid_object_pose", "randomize_robot_qpos", "randomize_target_pose"]
