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
            "params.sensor: no contact sensor 'feets' in the scene. Did you mean 'feet'? There are: feet",
        ),
        (
            "curriculum",
            {"func": "command_range", "params": {"command": "pose"}},
            "params.command: no command 'pose' in the config's env.commands. There are: base_velocity",
        ),
        ("rewards", VELOCITY, "func: must be a function or a Functor class, got the class 'UniformVelocityCommand'"),
        ("commands", {"func": "is_alive"}, "func: must be a CommandTerm class, got 'is_alive'"),
        ("terminations", {"func": "is_alive"}, "func: 'is_alive' takes obs, action, info, but is only given env here"),
        (
            "curriculum",
            {"func": "bad_orientation"},
            "func: 'bad_orientation' does not take env, env_ids, which it is given here",
        ),
    ],
)
def test_wrong_name_or_kind_is_one_line_with_its_place(block: str, term: dict[str, Any], message: str) -> None:
    others = {"commands": {"base_velocity": VELOCITY}}.get(block, {})
    with pytest.raises(ConfigError) as error:
        read(**{block: others | {"x": term}})
    assert str(error.value) == f"env.{block}.x.{message}"


def test_default_command_that_is_not_there_is_found_too() -> None:
    with pytest.raises(ConfigError, match=r"^env\.observations\.command\.params\.command: no command 'base_velocity'"):
        read(commands={}, observations={"command": {"func": "generated_command"}})
