"""The event that draws the servos' supply, friction and latency."""

from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from tests.lab.gym.envs.managers.randomization.test_spatial import assert_fills
from tests.lab.legs import GO2, legs_env
from tests.lab.scenes import actions_for

N = 64
ROBOT = {**GO2, "fpath": "microduck", "drive_pros": {"servo": "xl330", "servo_gain": 200.0}}
RANGES: dict[str, Any] = {
    "voltage_range": [6.5, 8.2],
    "sag_range": [0.1, 0.2],
    "lowest_voltage": 6.0,
    "friction_range": [0.9, 1.1],
    "delay": [3, 6],
}


def duck(more: dict[str, Any] | None = None, **params: Any) -> tuple[LocomotionEnv, Any]:
    events = {"servos": {"func": "randomize_servos", "mode": "reset", "params": params}}
    sensors = [{"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]}]
    env = legs_env(N, {"events": {**(more or {}), **events}}, robot=ROBOT, sensor=sensors)
    env.reset(seed=1)
    return env, env.sim.backend


def efforts(env: LocomotionEnv, backend: Any) -> torch.Tensor:
    """Torques far from the targets, without latency and sag, [N, 14]."""
    backend.servos.delay[:] = 0
    env.robot.set_qpos(env.robot.get_qpos() + 9.0)
    env.sim.update(1)
    found: torch.Tensor = backend.read_last("qfrc_actuator")
    return found[:, 6:]


def test_servos_are_drawn_from_their_ranges() -> None:
    env, backend = duck(**RANGES)
    servos = backend.servos
    for name, low, high in (("voltage", 6.5, 8.2), ("sag", 0.1, 0.2), ("friction", 0.9, 1.1)):
        assert_fills(torch.as_tensor(getattr(servos, name))[:, None], [low], [high])
    assert set(servos.delay.tolist()) == {3, 4, 5, 6}
    assert servos.lowest_voltage == 6.0
    # One draw for all servos of a robot: 0.366013 / 2.811392 Nm/V.
    expected = torch.as_tensor(servos.voltage)[:, None].float().expand(-1, 14) * 0.366013 / 2.811392
    torch.testing.assert_close(efforts(env, backend), expected, rtol=1e-5, atol=0.0)


def test_strength_of_motors_and_supply_are_both_factors() -> None:
    params = {"entity_cfg": {"uid": "go2"}, "strength_range": [0.5, 0.5]}
    strength = {"strength": {"func": "randomize_motor_strength", "mode": "reset", "params": params}}
    # 0.5 of 8.25 V, times 0.366013 / 2.811392 Nm/V
    expected = torch.full((N, 14), 0.5 * 8.25 * 0.366013 / 2.811392)
    torch.testing.assert_close(efforts(*duck(strength, voltage_range=[8.25, 8.25])), expected, rtol=1e-5, atol=0.0)


def test_servos_have_their_nominal_numbers_by_default() -> None:
    servos = duck()[1].servos
    assert set(servos.voltage.tolist()) == {7.5}
    assert not servos.sag.any()
    assert not servos.delay.any()


def test_event_within_an_episode_leaves_commands_in_flight() -> None:
    same: dict[str, Any] = {"voltage_range": [7.5, 7.5], "delay": [4, 4], "friction_range": [2.0, 2.0]}
    again = {"again": {"func": "randomize_servos", "mode": "interval", "interval_step": 3, "params": same}}
    plain, drawn = duck(**same)[0], duck(again, **same)[0]
    for action in actions_for(plain, 6):
        plain.step(action)
        drawn.step(action)
    assert torch.equal(drawn.robot.get_qpos(), plain.robot.get_qpos())


def test_event_refuses_robots_without_servos_and_long_delays() -> None:
    events = {"servos": {"func": "randomize_servos", "mode": "reset"}}
    for robot in (GO2, {**GO2, "drive_pros": {**GO2["drive_pros"], "backlash": 0.01}}):
        with pytest.raises(ConfigError, match=r"the robot has none; needed is robot\.drive_pros\.servo"):
            legs_env(2, {"events": events}, robot=robot)
    with pytest.raises(ConfigError, match=r"at most 16 substeps, got \[0, 17\]"):
        duck(delay=[0, 17])
