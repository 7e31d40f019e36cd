"""Configs of legged robots for the tests."""

from __future__ import annotations

from typing import Any

from tests.lab import legs


def modify(name: str, func: str, **params: Any) -> dict[str, Any]:
    return {"func": func, "mode": "modify", "name": name, "params": params}


OBSERVATIONS = {
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
GO2: dict[str, Any] = {
    "id": "Go2FlatRL",
    "max_episode_steps": 10_000,
    "env": {
        "sim_cfg": {"physics_dt": 0.005},
        "sim_steps_per_control": 4,
        "actions": {"joints": {"func": "JointPositionTerm", "params": {"scale": 0.25, "delay": [1, 2]}}},
        "commands": {"base_velocity": {"func": "UniformVelocityCommand", "resampling_time": [1.0, 2.0]}},
        "observations": OBSERVATIONS,
        "rewards": {"track": {"func": "track_lin_vel_xy_exp", "weight": 1.0, "params": {"std": 0.5}}},
    },
    "robot": legs.GO2,
}
"""A quadruped of which all that is observed can be measured, with noise, delays and histories."""
