"""The configs of ``originals`` in the layouts that EmbodiChain has had since: the same tasks and trainings."""

import copy
from typing import Any

from tests.lab.originals import CART_POLE, PUSH_CUBE

Json = dict[str, Any]

GROUPS = {
    "mass_props": ["mass"],
    "rigid_props": [
        *("linear_damping", "angular_damping"),
        *("max_depenetration_velocity", "max_linear_velocity", "max_angular_velocity"),
    ],
    "collision_props": ["contact_offset", "rest_offset"],
    "material_props": ["static_friction", "dynamic_friction", "restitution"],
}
"""Attributes of a rigid body since 0.3.0."""
ENVS = {"PushCubeRL": PUSH_CUBE, "CartPoleRL": CART_POLE}


def train_0_2_0(config: Json) -> Json:
    """A renderer in place of ``enable_rt``."""
    config = copy.deepcopy(config)
    config["trainer"].pop("enable_rt", None)
    config["trainer"]["renderer"] = "fast-rt"
    return config


def train_0_2_4(config: Json) -> Json:
    """An optimizer's block, and what an evaluation is about."""
    config = train_0_2_0(config)
    cfg = config["algorithm"]["cfg"]
    cfg["optimizer"] = {"name": "adam", "learning_rate": cfg.pop("learning_rate")}
    config["trainer"] |= {"eval_seed": 1042, "best_eval_metric": "eval/success_rate", "best_eval_mode": "max"}
    config["policy"]["initial_log_std"] = 0.0
    return config


def train_0_3(config: Json) -> Json:
    """Minibatches by number, and normalisation by network."""
    config = train_0_2_4(config)
    trainer, policy, cfg = config["trainer"], config["policy"], config["algorithm"]["cfg"]
    del policy["initial_log_std"]
    policy |= {"initial_action_std": 1.0, "actor_obs_normalization": True}
    if "critic" in policy:
        policy["critic_obs_normalization"] = True
        cfg |= {"schedule": "fixed", "desired_kl": None, "use_clipped_value_loss": False}
        cfg["num_mini_batches"] = trainer["num_envs"] * trainer["buffer_size"] // cfg["batch_size"]
    return config


def env_0_3_0(config: Json) -> Json:
    """A physics engine by name, and physical properties in groups."""
    config = copy.deepcopy(config) | {"physics": "default", "physics_config": {"physics_dt": 0.01}}
    config["robot"]["joint_drive_props"] = config["robot"].pop("drive_pros")
    config["robot"]["root_props"] = {"fixed_base": True, "self_collision_enabled": False}
    for body in config["rigid_object"]:
        attrs = body["attrs"]
        body["attrs"] = {group: {key: attrs[key] for key in keys} for group, keys in GROUPS.items()}
    return config


def env_0_3_1(config: Json) -> Json:
    """Action terms under new names, which name their joints."""
    config = env_0_3_0(config)
    (term,) = config["env"]["actions"].values()
    term["func"] = "RelativeJointPositionAction"
    term["params"]["part_name"] = "arm"
    return config
