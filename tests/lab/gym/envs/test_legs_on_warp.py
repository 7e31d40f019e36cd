"""A quadruped on both physics engines. Shapes: N environments, F feet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim.sensors import ContactSensor
from embodichain.utils.observations import flatten_dict_observation
from tests.lab.gym.envs.managers.randomization.test_articulation import ALL
from tests.lab.legs import legs_env
from tests.lab.scenes import actions_for
from tests.lab.warp_scenes import ENGINES, needs_warp
from tests.no_sync import no_host_sync, work_as_on_a_device

pytestmark = [needs_warp, pytest.mark.e2e]

N = 3
FEET = {"sensor": "feet"}
OBSERVATIONS = "base_lin_vel base_ang_vel projected_gravity joint_pos_rel joint_vel last_action generated_command"
REWARDS: dict[str, dict[str, Any]] = {
    "track_lin_vel_xy_exp": {}, "track_ang_vel_z_exp": {}, "lin_vel_z_l2": {}, "ang_vel_xy_l2": {},
    "flat_orientation_l2": {}, "base_height_l2": {"target_height": 0.3}, "action_rate_l2": {}, "joint_torques_l2": {},
    "joint_vel_l2": {}, "joint_acc_l2": {}, "joint_pos_limits": {}, "posture": {"std": {".*_hip_joint": 0.2}},
    "feet_air_time": FEET, "feet_slide": FEET, "feet_clearance": FEET, "feet_impact": FEET | {"max_force": 50.0},
    "feet_gait": FEET | {"offsets": [0.5, 0.0, 0.0, 0.5]}, "undesired_contacts": FEET, "is_alive": {},
    "is_terminated": {}, "joint_torque_limits": {},
}  # fmt: skip
COMMAND = {"func": "UniformVelocityCommand", "resampling_time": [0.04, 0.1], "params": {"heading": [-3.0, 3.0]}}
WHOLE: dict[str, Any] = {
    "commands": {"base_velocity": COMMAND},
    "observations": {
        **{name: {"func": name} for name in (*OBSERVATIONS.split(), "gait_phase", "base_height")},
        "feet_contact": {"func": "feet_contact", "params": FEET},
    },
    "rewards": {name: {"func": name, "params": params} for name, params in REWARDS.items()},
    "terminations": {
        "lean": {"func": "bad_orientation"},
        "low": {"func": "base_height_below", "params": {"minimum": 0.05}},
        "kick": {"func": "illegal_contact", "params": {"sensor": "trunk"}},
    },
    "curriculum": {"range": {"func": "command_range"}},
    "events": ALL,
}
SENSORS = [
    {"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]},
    {"sensor_type": "Contact", "uid": "trunk", "link_names": ["base"]},
]
STATE = ContactSensor.state_names


def whole(engine: str, **top: Any) -> LocomotionEnv:
    """Build an environment with every term of legs."""
    sim_cfg = {"physics_dt": 0.005, "num_threads": 1, "sim_device": ENGINES[engine]}
    return legs_env(N, WHOLE | {"sim_cfg": sim_cfg}, sensor=SENSORS, **top)


@pytest.fixture(scope="module")
def on_warp() -> Iterator[LocomotionEnv]:
    env = whole("warp", max_episode_steps=6)
    yield env
    env.close()


@pytest.mark.e2e
def test_both_engines_agree_over_some_steps(on_warp: LocomotionEnv) -> None:
    envs = whole("batch", max_episode_steps=6), on_warp
    for env in envs:
        env.reset(seed=2)
        env.elapsed_steps += torch.tensor([0, 1, 3])  # so that episodes end at different times
    for step, action in enumerate(actions_for(envs[0], 8)):
        (obs, _, *ends, info), (other, _, *others, noted) = (env.step(0.3 * action) for env in envs)
        assert all(torch.equal(a, b) for a, b in zip(ends, others, strict=True)), step
        ours, theirs = (flatten_dict_observation(o) for o in (obs, other))
        torch.testing.assert_close(theirs, ours, atol=2e-2, rtol=1e-2)
        feet, same = (env.sim.get_contact_sensor("feet") for env in envs)
        for name in ("in_contact", "first_contact"):
            assert torch.equal(getattr(feet, name), getattr(same, name)), (step, name)
        for name in ("air_time", "contact_time", "last_air_time", "last_contact_time", "pos", "vel"):
            torch.testing.assert_close(getattr(same, name), getattr(feet, name), atol=2e-2, rtol=0)
        torch.testing.assert_close(same.force, feet.force, atol=2.0, rtol=0.05)
        for kind in ("rewards", "metrics"):
            assert info[kind].keys() == noted[kind].keys()
            for name, value in info[kind].items():
                torch.testing.assert_close(noted[kind][name].float(), value.float(), atol=2e-2, rtol=0.05, msg=name)


def test_step_never_waits_for_the_device(on_warp: LocomotionEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env = on_warp
    work_as_on_a_device(monkeypatch)
    env.reset(seed=1)
    actions = actions_for(env, 7)
    for action in actions:  # what is sent to the device once, is there then
        env.step(action)
    with no_host_sync(monkeypatch):
        for action in actions:  # episodes of 6 steps: some end, and commands are drawn anew
            env.step(action)
