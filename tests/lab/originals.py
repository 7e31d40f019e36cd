"""Configs in the original system's format, as users have them."""

from __future__ import annotations

from typing import Any

PUSH_CUBE: dict[str, Any] = {
    "id": "PushCubeRL",
    "max_episodes": 5,
    "max_episode_steps": 80,
    "env": {
        "events": {
            "place_cube": {
                "func": "randomize_rigid_object_pose",
                "mode": "reset",
                "params": {
                    "entity_cfg": {"uid": "cube"},
                    "position_range": [[-0.1, -0.1, 0.0], [0.1, 0.1, 0.0]],
                    "relative_position": True,
                },
            },
            "place_goal": {
                "func": "randomize_target_pose",
                "mode": "reset",
                "params": {
                    "position_range": [[-0.75, -0.25, 0.05], [-0.55, 0.25, 0.05]],
                    "relative_position": False,
                    "store_key": "goal_pose",
                },
            },
        },
        "observations": {
            "joints": {
                "func": "normalize_robot_joint_data",
                "mode": "modify",
                "name": "robot/qpos",
                "params": {"joint_ids": [0, 1, 2, 3, 4, 5]},
            },
            "ee": {"func": "get_robot_eef_pose", "mode": "add", "name": "robot/ee_pos", "params": {"part_name": "arm"}},
            "cube": {
                "func": "get_rigid_object_pose",
                "mode": "add",
                "name": "object/cube_pos",
                "params": {"entity_cfg": {"uid": "cube"}},
            },
            "goal": {
                "func": "target_position",
                "mode": "add",
                "name": "object/goal_pos",
                "params": {"target_pose_key": "goal_pose"},
            },
        },
        "rewards": {
            "reach": {
                "func": "reaching_behind_object",
                "mode": "add",
                "weight": 0.05,
                "params": {
                    "object_cfg": {"uid": "cube"},
                    "target_pose_key": "goal_pose",
                    "behind_offset": 0.03,
                    "height_offset": 0.015,
                    "distance_scale": 8.0,
                    "part_name": "arm",
                },
            },
            "progress": {
                "func": "distance_to_target",
                "mode": "add",
                "weight": 1.0,
                "params": {
                    "source_entity_cfg": {"uid": "cube"},
                    "target_pose_key": "goal_pose",
                    "exponential": True,
                    "sigma": 0.1,
                    "use_xy_only": True,
                },
            },
            "smooth": {"func": "action_smoothness_penalty", "mode": "add", "weight": 0.01, "params": {}},
            "success": {"func": "success_reward", "mode": "add", "weight": 10.0, "params": {}},
        },
        "actions": {"delta_qpos": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}},
        "extensions": {"success_threshold": 0.05},
    },
    "robot": {
        "robot_type": "URRobot",
        "uid": "Manipulator",
        "urdf_cfg": {"components": [{"component_type": "hand", "urdf_path": "DH_PGI_140_80/DH_PGI_140_80.urdf"}]},
        "init_pos": [0.0, 0.0, 0.0],
        "init_rot": [0.0, 0.0, 0.0],
        "init_qpos": [0.0, -1.57, 1.57, -1.57, -1.57, 0.0, 0.04, 0.04],
        "drive_pros": {
            "drive_type": "force",
            "stiffness": 100000.0,
            "damping": 1000.0,
            "max_velocity": 2.0,
            "max_effort": 500.0,
        },
        "solver_cfg": {"arm": {"tcp": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.16], [0, 0, 0, 1]]}},
    },
    "sensor": [],
    "light": {},
    "background": [],
    "rigid_object": [
        {
            "uid": "cube",
            "shape": {"shape_type": "Cube", "size": [0.08, 0.08, 0.08]},
            "body_type": "dynamic",
            "init_pos": [-0.6, 0.0, 0.04],
            "attrs": {
                "mass": 1.0,
                "static_friction": 1.0,
                "dynamic_friction": 0.8,
                "linear_damping": 2.0,
                "angular_damping": 2.0,
                "contact_offset": 0.003,
                "rest_offset": 0.001,
                "restitution": 0.1,
                "max_depenetration_velocity": 10.0,
                "max_linear_velocity": 1.0,
                "max_angular_velocity": 1.0,
            },
        }
    ],
    "rigid_object_group": [],
    "articulation": [],
}

CART_POLE: dict[str, Any] = {
    "id": "CartPoleRL",
    "max_episodes": 5,
    "max_episode_steps": 500,
    "env": {
        "events": {},
        "observations": {
            "qpos": {
                "func": "normalize_robot_joint_data",
                "mode": "modify",
                "name": "robot/qpos",
                "params": {"joint_ids": [0, 1]},
            }
        },
        "rewards": {
            "calm": {
                "func": "joint_velocity_penalty",
                "mode": "add",
                "weight": 0.005,
                "params": {"robot_uid": "Cart", "part_name": "hand"},
            }
        },
        "actions": {"delta_qpos": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}},
        "extensions": {},
    },
    "robot": {
        "uid": "Cart",
        "urdf_cfg": {"components": [{"component_type": "arm", "urdf_path": "CartPole/cart_pole.urdf"}]},
        "init_pos": [0.0, 0.0, 0.5],
        "init_rot": [0.0, 0.0, 0.0],
        "init_qpos": [-0.2, 0.07],
        "drive_pros": {
            "stiffness": {"slider_to_cart": 10.0, "cart_to_pole": 0.01},
            "damping": {"slider_to_cart": 1.0, "cart_to_pole": 0.001},
            "max_effort": {"slider_to_cart": 100.0, "cart_to_pole": 0.1},
        },
        "control_parts": {"arm": ["slider_to_cart"], "hand": ["cart_to_pole"]},
    },
    "sensor": [],
    "light": {},
    "background": [],
    "rigid_object": [],
    "rigid_object_group": [],
    "articulation": [],
}

PUSH_CUBE_TRAIN: dict[str, Any] = {
    "trainer": {
        "exp_name": "push_cube_ppo",
        "gym_config": "configs/agents/rl/push_cube/gym_config.json",
        "seed": 42,
        "device": "auto",
        "headless": True,
        "enable_rt": False,
        "gpu_id": 0,
        "num_envs": 64,
        "iterations": 1000,
        "buffer_size": 1024,
        "enable_eval": True,
        "num_eval_envs": 16,
        "num_eval_episodes": 3,
        "eval_freq": 100,
        "save_freq": 100,
        "use_wandb": False,
        "wandb_project_name": "embodichain-push_cube",
        "events": {
            "eval": {
                "record_camera": {
                    "func": "record_camera_data_async",
                    "mode": "interval",
                    "interval_step": 1,
                    "params": {
                        "name": "main_cam",
                        "resolution": [640, 480],
                        "eye": [-1.4, 1.4, 2.0],
                        "target": [0, 0, 0],
                        "up": [0, 0, 1],
                        "intrinsics": [600, 600, 320, 240],
                        "save_path": "./outputs/videos_ppo1/eval",
                    },
                }
            }
        },
    },
    "policy": {
        "name": "actor_critic",
        "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [256, 256], "activation": "relu"}},
        "critic": {"type": "mlp", "network_cfg": {"hidden_sizes": [256, 256], "activation": "relu"}},
    },
    "algorithm": {
        "name": "ppo",
        "cfg": {
            "learning_rate": 0.0001,
            "n_epochs": 10,
            "batch_size": 8192,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "clip_coef": 0.2,
            "ent_coef": 0.01,
            "vf_coef": 0.5,
            "max_grad_norm": 0.5,
        },
    },
}

CART_POLE_TRAIN_GRPO: dict[str, Any] = {
    "trainer": {
        "exp_name": "cart_pole_grpo",
        "gym_config": "configs/agents/rl/basic/cart_pole/gym_config.json",
        "seed": 42,
        "device": "auto",
        "headless": True,
        "num_envs": 64,
        "iterations": 1000,
        "buffer_size": 1024,
        "enable_eval": True,
        "eval_freq": 200,
        "save_freq": 200,
        "use_wandb": False,
    },
    "policy": {
        "name": "actor_only",
        "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [256, 256], "activation": "relu"}},
    },
    "algorithm": {
        "name": "grpo",
        "cfg": {
            "learning_rate": 0.0001,
            "n_epochs": 10,
            "batch_size": 8192,
            "gamma": 0.99,
            "clip_coef": 0.2,
            "ent_coef": 0.001,
            "kl_coef": 0,
            "group_size": 4,
            "eps": 1e-08,
            "reset_every_rollout": True,
            "max_grad_norm": 0.5,
            "truncate_at_first_done": True,
        },
    },
}
