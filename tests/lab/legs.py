"""A quadruped for the tests of legs. Shapes: N environments, n in ``env_ids``, F feet."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim.math import quat_from_euler
from embodichain.lab.sim.sensors import ContactSensor
from embodichain.utils import replace

FEET = ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
GO2: dict[str, Any] = {
    "uid": "go2",
    "fpath": "go2",
    "fix_base": False,
    "drive_pros": {"stiffness": 35.0, "damping": 0.6},
}
ENV: dict[str, Any] = {
    "sim_cfg": {"physics_dt": 0.005, "num_threads": 1},
    "actions": {"joint_position": {"func": "JointPositionTerm", "params": {"scale": 0.25}}},
    "commands": {"base_velocity": {"func": "UniformVelocityCommand", "resampling_time": [0.06, 0.2]}},
    "observations": {"command": {"func": "generated_command"}, "velocity": {"func": "base_lin_vel"}},
}
SENSORS: list[dict[str, Any]] = [{"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]}]


def modify(name: str, func: str, **params: Any) -> dict[str, Any]:
    return {"func": func, "mode": "modify", "name": name, "params": params}


_OBSERVATIONS = {
    "lin_vel": {"func": "base_lin_vel", "name": "base/lin_vel"},
    "ang_vel": {"func": "base_ang_vel", "name": "base/ang_vel"},
    "gravity": {"func": "projected_gravity", "name": "base/gravity"},
    "pos": {"func": "joint_pos_rel", "name": "joints/pos"},
    "vel": {"func": "joint_vel", "name": "joints/vel"},
    "last_action": {"func": "last_action"},
    "command": {"func": "generated_command", "name": "command"},
    "phase": {"func": "gait_phase", "name": "phase", "params": {"frequency": 1.5}},
    "noise": modify("base/ang_vel", "observation_noise", bound=0.2),
    "late": modify("joints/pos", "observation_delay", delay=[0, 2]),
    "past": modify("joints/pos", "observation_history", length=3),
    "past_actions": modify("last_action", "observation_history", length=2),
}
GO2_OBSERVED: dict[str, Any] = {
    "id": "Go2FlatRL",
    "max_episode_steps": 10_000,
    "env": {
        "sim_cfg": {"physics_dt": 0.005},
        "sim_steps_per_control": 4,
        "actions": {"joints": {"func": "JointPositionTerm", "params": {"scale": 0.25, "delay": [1, 2]}}},
        "commands": {"base_velocity": {"func": "UniformVelocityCommand", "resampling_time": [1.0, 2.0]}},
        "observations": _OBSERVATIONS,
        "rewards": {"track": {"func": "track_lin_vel_xy_exp", "weight": 1.0, "params": {"std": 0.5}}},
    },
    "robot": GO2,
}
"""A quadruped of which all that is observed can be measured, with noise, delays and histories."""


def legs_data(env: Mapping[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """Return a config in the file's format; a control step is 0.02 s."""
    own = ENV | dict(env or {})
    return {"id": "Go2FlatRL", "robot": GO2, "sensor": SENSORS, "max_episode_steps": 50, "env": own} | top


def legs_env(num_envs: int = 2, env: Mapping[str, Any] | None = None, seed: int = 1, **top: Any) -> LocomotionEnv:
    """Build a quadruped's environment."""
    cfg = replace(config_to_cfg(legs_data(env, **top)), num_envs=num_envs, seed=seed)
    built = build_env("Go2FlatRL", base_env_cfg=cfg)
    assert isinstance(built, LocomotionEnv)
    return built


def place_base(env: LocomotionEnv, positions: Sequence[Sequence[float]], angles: Sequence[Sequence[float]]) -> None:
    """Put the bases at positions (m), turned by roll, pitch, yaw (rad); one row for each environment."""
    row = torch.cat((torch.tensor(positions), quat_from_euler(torch.tensor(angles))), dim=1)
    env.robot.base.set(row, env.all_env_ids)


def set_command(env: LocomotionEnv, rows: Sequence[Sequence[float]]) -> None:
    """Set the present command, which the last action followed too, [N, 3]."""
    term = env.command_manager.get_term("base_velocity")
    term.command = term.tracked = torch.tensor(rows)


def set_feet(sensor: ContactSensor, **values: Any) -> None:
    """Set what a sensor has measured, by attribute: nested lists, of which one row counts for all environments."""
    for name, value in values.items():
        now: Tensor = getattr(sensor, name)
        setattr(sensor, name, torch.tensor(value).to(now.dtype).expand_as(now).clone())
