"""What terms name in a config of legs, checked when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.utils import ConfigError
from tests.lab.legs import legs_data

VELOCITY = {"func": "UniformVelocityCommand"}


def read(**env: Any) -> None:
    config_to_cfg(legs_data(env))


@pytest.mark.parametrize(
    ("block", "term", "message"),
    [
        (
            "rewards",
            {"func": "feet_slide", "params": {"sensor": "feets"}},
            "env.rewards.x.params.sensor: no contact sensor 'feets' in the scene. Did you mean 'feet'? There are: feet",
        ),
        (
            "terminations",
            {"func": "illegal_contact", "params": {"sensor": "trunk"}},
            "env.terminations.x.params.sensor: no contact sensor 'trunk' in the scene. There are: feet",
        ),
        (
            "rewards",
            {"func": "track_ang_vel_z_exp", "params": {"command": "velocity"}},
            "env.rewards.x.params.command: no command 'velocity' in the config's env.commands. Did you mean "
            "'base_velocity'? There are: base_velocity",
        ),
        (
            "curriculum",
            {"func": "command_range", "params": {"command": "pose"}},
            "env.curriculum.x.params.command: no command 'pose' in the config's env.commands. There are: base_velocity",
        ),
        (
            "rewards",
            VELOCITY,
            "env.rewards.x.func: must be a function or a Functor class, got the class 'UniformVelocityCommand'",
        ),
        ("commands", {"func": "is_alive"}, "env.commands.x.func: must be a CommandTerm class, got 'is_alive'"),
        (
            "terminations",
            {"func": "is_alive"},
            "env.terminations.x.func: 'is_alive' takes obs, action, info, but is only given env here",
        ),
        (
            "curriculum",
            {"func": "bad_orientation"},
            "env.curriculum.x.func: 'bad_orientation' does not take env, env_ids, which it is given here",
        ),
        (
            "commands",
            VELOCITY | {"resampling_time": [0.0, 1.0]},
            "env.commands.x.resampling_time[0]: Input should be greater than 0, got 0.0",
        ),
        (
            "commands",
            VELOCITY | {"params": {"standing_share": 1.5}},
            "env.commands.x.params.standing_share: Input should be less than or equal to 1, got 1.5",
        ),
    ],
)
def test_wrong_name_or_kind_is_one_line_with_its_place(block: str, term: dict[str, Any], message: str) -> None:
    others = {"commands": {"base_velocity": VELOCITY}}.get(block, {})
    with pytest.raises(ConfigError) as error:
        read(**{block: others | {"x": term}})
    assert str(error.value) == message


def test_default_command_that_is_not_there_is_found_too() -> None:
    terms = {"command": {"func": "generated_command"}}
    with pytest.raises(ConfigError) as error:
        read(commands={}, observations=terms)
    assert str(error.value) == (
        "env.observations.command.params.command: no command 'base_velocity' in the config's env.commands. "
        "There are: none"
    )


def test_wrong_command_hides_no_error_of_its_own() -> None:
    with pytest.raises(ConfigError) as error:
        read(commands={"base_velocity": {"func": "UniformVelocityCommand", "resampling_time": "long"}})
    assert str(error.value).startswith("env.commands.base_velocity.resampling_time: ")
    assert "\n" not in str(error.value)


def test_sensor_that_does_not_say_its_type_is_told_so() -> None:
    with pytest.raises(ConfigError) as error:
        config_to_cfg(legs_data(sensor=[{"uid": "feet", "link_names": [".*_foot"]}]))
    assert str(error.value) == "sensor[0].link_names: unknown key in an object that does not say of which type it is"
