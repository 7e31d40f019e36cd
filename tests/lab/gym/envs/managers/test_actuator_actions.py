"""Actions that are the controls of a scene's actuators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from embodichain.utils import ConfigError
from tests.lab.scene_files import RAIL, rail_env


def test_the_exported_map_hands_the_action_on_within_the_actuators_ranges(tmp_path: Path) -> None:
    (term,) = rail_env(tmp_path).action_manager.terms.values()

    found = term.command_map()

    assert found is not None
    assert found.names == ["push"]
    numbers = [values.tolist() for values in (found.offset, found.factor, found.low, found.high)]
    assert numbers == [[0.0], [1.0], [-0.5], [1.0]]


def test_an_actuator_without_a_name_goes_by_its_number(tmp_path: Path) -> None:
    (term,) = rail_env(tmp_path, text=RAIL.replace('name="push" ', "")).action_manager.terms.values()

    found = term.command_map()

    assert found is not None
    assert found.names == ["actuator 0"]


def test_it_has_no_parameters(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^env\.actions\.control\.params\.scale: unknown"):
        rail_env(tmp_path, env={"actions": {"control": {"func": "ActuatorTerm", "params": {"scale": 2}}}})


def test_no_other_term_stands_beside_it(tmp_path: Path) -> None:
    actions = {"one": {"func": "ActuatorTerm"}, "two": {"func": "ActuatorTerm"}}

    with pytest.raises(ConfigError, match=r"^env\.actions\.one: sets the controls of all actuators"):
        rail_env(tmp_path, env={"actions": actions})


def test_scene_without_actuators_is_refused(tmp_path: Path) -> None:
    text = re.sub(r"<actuator>.*</actuator>", "", RAIL, flags=re.DOTALL)

    with pytest.raises(ConfigError, match="the scene's file has no actuator"):
        rail_env(tmp_path, text=text)
